package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The values of Config.OnInvalidCursor.
const (
	invalidStop     = "stop"
	invalidPrevious = "previous"
	invalidTime     = "time"
)

// History tells where a stream was.
type History interface {
	// Before returns the newest committed checkpoint on the way to c that has
	// another cursor, or ErrNoCheckpoint. A store that is not in the epoch of c
	// does not know the way: an error, as those of Store.Load are.
	Before(ctx context.Context, c Checkpoint) (Checkpoint, error)
}

// PublishedEvents tells what the sink's topic holds, and what became dead letters.
type PublishedEvents interface {
	// Index returns the events of the stream that were committed to the topic, or
	// to that of the dead letters, before the call, and maybe later ones, with a
	// time from this one on; a dead letter's is that of its publishing. Those of
	// another source than this one are not among them, where both are known: two
	// may have equal ids. It is only called between two batches. Too many to
	// remember is a Permanent Fault.
	Index(ctx context.Context, from time.Time, source SourceIdentity) (PublishedIndex, error)
	// PartialIndex is Index for marks: of the events that the topic holds of this
	// source, those that were found when ctx ends or when there are too many to
	// remember. All of them are there with the same bytes only: other ones under
	// an id are news. Nil where the records carry no marks.
	PartialIndex(ctx context.Context, from time.Time, source SourceIdentity) (PublishedIndex, error)
}

// PublishedIndex is a set of events. One goroutine uses it.
type PublishedIndex interface {
	// Match reports whether the set has the event. An event without an id is
	// taken out: two equal ones can both be real. One that shares its id
	// (Event.Shared) is only there with the same bytes.
	Match(e *Event) bool
}

// Overlap is a part of the export that is read again, because the API refused
// the cursor for good. What the topic holds already is dropped from it.
type Overlap struct {
	// From is the time from which on events are known to be told apart,
	// Until the time of the newest event when the cursor was refused, both in
	// milliseconds since the epoch.
	From  int64 `json:"from"`
	Until int64 `json:"until"`
	// Dropped counts the events that the topic held already.
	Dropped int64 `json:"dropped,omitempty"`
	// Done is true from the end of the results on.
	Done bool `json:"done,omitempty"`
}

// observeRefused is the code of an ObserveReset that no operator asked for.
const observeRefused = "refused-cursor"

const (
	// A cursor that is refused so often within cursorRecoveryWindow is no accident.
	maxCursorRecoveries  = 5
	cursorRecoveryWindow = time.Hour
)

// recoverInvalidCursor moves the stream away from a cursor that the API refuses for good, as
// the configuration says: a new epoch at another position, from which on what
// the topic holds already is dropped. It reports false where that cannot be
// done, and adds to the fault why.
func (f *follower) recoverInvalidCursor(hard context.Context, fault *Fault) (bool, error) {
	policy := f.b.cfg.OnInvalidCursor
	if policy == invalidStop || f.b.cfg.window() {
		return false, nil
	}
	f.incidents.cursorRecoveries = slices.DeleteFunc(f.incidents.cursorRecoveries, func(t time.Time) bool { return time.Since(t) > cursorRecoveryWindow })
	if len(f.incidents.cursorRecoveries) >= maxCursorRecoveries {
		fault.Err = fmt.Errorf("%w; %d rejected cursors within %s", fault.Err, len(f.incidents.cursorRecoveries), cursorRecoveryWindow)
		return false, nil
	}
	next := f.at.cp
	switch policy {
	case invalidPrevious:
		before, err := f.b.ports.History.Before(hard, f.at.cp)
		switch {
		case errors.Is(err, ErrNoCheckpoint):
			fault.Err = fmt.Errorf("%w; the history has no earlier cursor", fault.Err)
			return false, nil
		case err != nil:
			return false, &sessionError{fmt.Errorf("find the previous cursor: %w", err)}
		}
		next = before
		// Only what is not dropped counts. The pages are the entry's, by which
		// the history finds it.
		next.Events, next.LastEventTime, next.AdvanceTime = f.at.cp.Events, f.at.cp.LastEventTime, f.at.cp.AdvanceTime
		next.Overlap = &Overlap{From: f.at.overlapStart(min(before.LastEventTime, before.AdvanceTime)), Until: f.at.cp.LastEventTime}
	case invalidTime:
		next.Origin.Start = f.at.overlapStart(min(f.at.cp.LastEventTime, f.at.cp.AdvanceTime))
		next.Cursor, next.Tail, next.Carried = "", nil, 0
		next.Overlap = &Overlap{From: next.Origin.Start, Until: f.at.cp.LastEventTime}
	}
	if o := f.at.cp.Overlap; o != nil && !o.Done { // refused again before the end
		next.Overlap.From, next.Overlap.Dropped = min(o.From, next.Overlap.From), o.Dropped
	}
	if next.RewindEnd = f.at.cp.RewindEnd; next.RewindEnd == nil {
		next.RewindEnd = &RewindEnd{CursorHash: CursorHash(f.at.cp.Cursor), Source: f.at.cp.Source}
	}
	next.Drained, next.PausedUntil = false, f.at.cp.PausedUntil
	next.RecentCursors, next.MarksEnd = nil, f.at.cp.MarksEnd
	next = f.session.stamp(next, KindReset, Version{Epoch: f.at.cp.Epoch + 1})
	next.Change = f.b.ownChange(f.at.cp, "cursor rejected by the API ("+fault.Code+"): "+policy)
	if err := f.commitCheckpoint(hard, f.at.cp, next); err != nil {
		return false, err
	}
	f.incidents.cursorRecoveries = append(f.incidents.cursorRecoveries, time.Now())
	f.log.Warn("cursor rejected by the API; resuming at another position and dropping events already published", "error", fault.Error(),
		"how", policy, "from", f.at.cp.Version.String(), "to", next.Version.String(), "cursor", CursorHash(next.Cursor), "overlap_from", describeInstant(next.Overlap.From),
		"overlap_until", describeInstant(next.Overlap.Until), "bound", f.b.cfg.bound(policy))
	f.move(next)
	f.b.observe(Observation{What: ObserveReset, Code: observeRefused})
	return true, nil
}

// bound says what may be missing after that.
func (c *Config) bound(policy string) string {
	if policy == invalidTime {
		return "events listed later with an earlier time are not read"
	}
	return c.words(HintOverlapRepeats)
}

// overlapStart is where an overlap begins for a stream that had events up to t.
// The start of the export bounds it.
func (at *progress) overlapStart(t int64) int64 {
	if t == 0 {
		return at.cp.Origin.Start
	}
	return max(at.cp.Origin.Start, t-at.b.cfg.Overlap.Milliseconds(), 0)
}

// overlaps reports whether the stream reads a part of the export again.
func (at *progress) overlaps() bool { return at.head.Overlap != nil && !at.head.Overlap.Done }

// loadPublished asks what the topic holds, before an overlap is read.
func (at *progress) loadPublished(ctx context.Context) error {
	if !at.overlaps() || at.published != nil {
		return nil
	}
	at.b.watchdog.wait()
	defer at.b.watchdog.work()
	held, err := at.b.ports.Published.Index(ctx, time.UnixMilli(at.head.Overlap.From), at.head.Source)
	if err != nil {
		return fmt.Errorf("read the published events: %w", err)
	}
	at.published = held
	return nil
}

// dropPublished drops the events of a page that the topic holds already. The end of
// the results ends the overlap.
func (at *progress) dropPublished(p *Page) {
	if !at.overlaps() {
		return
	}
	o := *at.head.Overlap // the committed checkpoint keeps its own
	kept := p.Events[:0]
	for i := range p.Events {
		if at.published.Match(&p.Events[i]) {
			o.Dropped++
			continue
		}
		kept = append(kept, p.Events[i])
	}
	p.Events = kept
	o.Done = p.Tail()
	at.head.Overlap = &o
}

// reportOverlap says what an overlap brought, when its end is committed.
func (at *progress) reportOverlap(was *Overlap) {
	now := at.cp.Overlap
	if was == nil || was.Done || now == nil || !now.Done {
		return
	}
	at.published = nil
	at.b.log.Warn("overlap re-read finished", "from", describeInstant(now.From), "until", describeInstant(now.Until), "dropped_as_known", now.Dropped)
}
