package engine

import (
	"context"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
)

// progress is the position of the stream. It is reset when the stream is moved or ownership
// changes. Owned by the commit loop.
//
// at includes the open batch. A commit makes at the committed position. An error sets at
// back to committed.
type progress struct {
	committed, at position.Position
	batch         batch
	found         bridge.Observation // on the pages since the last commit
	last          position.Findings  // on the last page
	known         position.Known     // the events in the topic, during an overlap or a rewind
	marksLoaded   bool               // known.Marks is loaded, or there are no marks

	suspectItems uint64        // position.FirstItems of the page of schedule.suspect
	blockedOn    bridge.Reason // why the stream is blocked, until a page or a checkpoint ends that
	stale        bool          // committed is not what the store has: behind it, or only in the sink
	// rival is the store's checkpoint while it contradicts committed and an operator must
	// decide.
	rival bridge.Checkpoint
}

// newProgress starts at c without memory of earlier pages.
func newProgress(c bridge.Checkpoint) progress {
	at := position.Begin(c)
	return progress{committed: at, at: at}
}

// forgetMarks drops the index of the events that the topic held before a rewind.
func (s *progress) forgetMarks() { s.known.Marks, s.marksLoaded = nil, false }

// rollback returns to the last commit. An overlap keeps the index of the topic if no page was
// taken since: a new index would count the copies again that the overlap has dropped, and
// drop as many new events that equal them.
func (s *progress) rollback() {
	if !s.at.Overlaps() || s.batch.pages > 0 || s.at.Pages != s.committed.Pages {
		s.known.Published = nil
	}
	s.at, s.batch, s.found = s.committed, batch{}, bridge.Observation{}
}

// timesOfPage is the number of event times per page that measure the latency. More times
// would add little, because the times of a page are close together.
const timesOfPage = 8

// note records the findings on a page, and the times of some of its events. It leaves out
// events that a rewind publishes again: their age is not a latency.
func (s *progress) note(p *bridge.Page, found *position.Findings) {
	s.last = *found
	s.found.Repeated += found.Repeated
	s.found.Shared += found.Shared
	s.found.Vanished += found.Vanished
	s.found.Changed += found.Changed
	s.found.AtBorder += found.AtBorder
	s.found.Keyless += found.Keyless
	for i := range p.Events {
		if by := p.Events[i].Late; by > 0 {
			s.found.Late = append(s.found.Late, by)
		}
	}
	step := max(1, len(p.Events)/timesOfPage)
	for i := step - 1; i < len(p.Events); i += step {
		if e := &p.Events[i]; e.Defect == bridge.DefectNone && e.Time != bridge.NoTime && !e.Republished {
			s.found.Times = append(s.found.Times, e.Time)
			s.batch.position = e.Time
		}
	}
}

// repeatsEnd reports whether the last page ends prefetching because it only repeats the
// page before: such a page counts as empty.
func (s *progress) repeatsEnd(e *Engine) bool {
	if e.cfg.ends() && !s.at.KnowsEnd(&e.rules) {
		return s.last.Whole && s.at.Empty.Empties >= e.cfg.EmptyPages
	}
	return s.last.Whole && s.at.Empty.Allowance == 0
}

// take moves at past one page, and reports the findings.
func (s *stream) take(ctx context.Context, p *bridge.Page) error {
	s.loadMarks(ctx, s.e, p)
	next, found, err := s.at.Take(p, &s.e.rules, s.known)
	if err != nil {
		s.known.Published, s.suspectItems = nil, found.Suspect // the index lacks what the page matched
		if bridge.FaultOf(err).Code == position.CodeCycle {
			s.e.observeStuck(position.CodeCycle)
		}
		return err
	}
	if len(p.Next) > warnCursor && len(s.at.Cursor) <= warnCursor {
		s.log.Warn("long cursor", "bytes", len(p.Next), "limit", bridge.MaxCursor)
	}
	if found.Widened > 0 {
		s.log.Warn("pages overlap by all items kept of the page before: earlier ones may be published twice",
			"items", found.Items, "kept_next", found.Widened)
		s.e.observeStuck(bridge.StuckBorder)
	}
	switch {
	case found.FullEnd && p.Next == "":
		s.e.observeStuck(bridge.StuckFullPage)
	case found.FullEnd && len(p.Events) == 0:
		s.e.observeStuck("full-tail")
	}
	s.at = next
	s.note(p, &found)
	return nil
}

// rewindIndexTimeout bounds the wait for marks, which are only a hint.
const rewindIndexTimeout = 10 * time.Second

// loadMarks reads the topic back once, before the first page with events that a rewind may
// publish again.
func (s *progress) loadMarks(ctx context.Context, e *Engine, p *bridge.Page) {
	if s.at.RewindEnd == nil || s.marksLoaded || s.batch.events > 0 || e.ports.Published == nil {
		return
	}
	from, source, ok := s.at.MarksFrom(p)
	if !ok {
		return
	}
	defer e.watchdog.wait()()
	ctx, cancel := context.WithTimeout(ctx, rewindIndexTimeout)
	defer cancel()
	marks, err := e.ports.Published.PartialIndex(ctx, from.Add(-e.cfg.Overlap), source)
	if err != nil {
		e.log.Warn("republished events not marked: reading the topic failed", "error", err.Error())
	}
	s.known.Marks, s.marksLoaded = marks, true
}
