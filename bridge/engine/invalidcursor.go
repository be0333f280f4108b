package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
)

// The values of Config.OnInvalidCursor.
const (
	invalidStop     = "stop"
	invalidPrevious = "previous"
	invalidTime     = "time"
)

// observeRefused is the code of the program's own ObserveReset.
const observeRefused = "refused-cursor"

// More than so many rejected cursors within cursorRecoveryWindow block the stream.
const maxCursorRecoveries, cursorRecoveryWindow = 5, time.Hour

// recoverInvalidCursor applies Config.OnInvalidCursor to a rejected cursor: it
// begins a new epoch at another position, from which events already in the
// topic are dropped. If that is impossible it reports false and adds the cause
// to the fault.
func (f *follower) recoverInvalidCursor(hard context.Context, fault *bridge.Fault) (bool, error) {
	policy := f.e.cfg.OnInvalidCursor
	if policy == invalidStop || f.e.cfg.window() {
		return false, nil
	}
	f.incidents.cursorRecoveries = slices.DeleteFunc(f.incidents.cursorRecoveries, func(t time.Time) bool { return time.Since(t) > cursorRecoveryWindow })
	if len(f.incidents.cursorRecoveries) >= maxCursorRecoveries {
		fault.Err = fmt.Errorf("%w; %d rejected cursors within %s", fault.Err, len(f.incidents.cursorRecoveries), cursorRecoveryWindow)
		return false, nil
	}
	was := f.committed.Checkpoint
	since := f.e.overlapStart(&was, &was)
	to := bridge.Target{Start: since, Pages: was.Pages, PositionTime: was.PositionTime}
	var topics []bridge.TopicState
	bound := "events listed later with an earlier time are not read" // the limit of the guarantee after that
	if policy == invalidPrevious {
		before, err := f.e.previousCursor(hard, was, fault)
		if before.Zero() {
			return false, err
		}
		// Pages is the entry's: the history is searched by it.
		to = bridge.Target{
			Cursor: before.Cursor, Tail: before.Tail, Carried: before.Carried, Border: before.Border, Start: before.Origin.Start,
			Pages: before.Pages, PositionTime: before.PositionTime,
		}
		since, topics, bound = f.e.overlapStart(&was, &before), before.Topics, f.e.cfg.words(bridge.HintOverlapRepeats)
	}
	next := bridge.GoBack(was, to, since, topics)
	next = f.session.stamp(next, bridge.KindReset, next.Version)
	next.Change = f.e.ownChange(was, "cursor rejected by the API ("+fault.Code+"): "+policy)
	if err := f.commitCheckpoint(hard, was, next); err != nil {
		return false, err
	}
	f.incidents.cursorRecoveries = append(f.incidents.cursorRecoveries, time.Now())
	f.log.Warn("cursor rejected by the API; resuming at another position and dropping events already published", "error", fault.Error(),
		"how", policy, "from", was.Version.String(), "to", next.Version.String(), "cursor", bridge.CursorHash(next.Cursor), "overlap_from", describeInstant(next.Overlap.From),
		"overlap_until", describeInstant(next.Overlap.Until), "bound", bound)
	f.move(next)
	f.e.observe(bridge.Observation{What: bridge.ObserveReset, Code: observeRefused})
	return true, nil
}

// previousCursor returns the checkpoint before the refused cursor, the zero one with the
// cause in the fault if there is none.
func (e *Engine) previousCursor(ctx context.Context, was bridge.Checkpoint, fault *bridge.Fault) (bridge.Checkpoint, error) {
	before, err := e.ports.History.Before(ctx, was, func(p *bridge.Checkpoint) bool { return p.Cursor != was.Cursor })
	switch {
	case errors.Is(err, bridge.ErrNoCheckpoint):
		fault.Err = fmt.Errorf("%w; the history has no earlier cursor", fault.Err)
		return bridge.Checkpoint{}, nil
	case err != nil:
		return bridge.Checkpoint{}, &sessionError{fmt.Errorf("find the previous cursor: %w", err)}
	}
	if other := before.Origin.Request.Changed(e.cfg.Origin.Request, before.Cursor).Other; len(other) > 0 {
		fault.Err = fmt.Errorf("%w; the previous cursor is of another request: %s differs", fault.Err, strings.Join(other, ", "))
		return bridge.Checkpoint{}, nil
	}
	return before, nil
}

// overlapStart is where an overlap begins for a stream at c that goes on from to, at
// the start of the export at the earliest.
func (e *Engine) overlapStart(c, to *bridge.Checkpoint) int64 {
	t := min(to.LastEventTime, to.AdvanceTime)
	if t == 0 {
		return c.Origin.Start
	}
	return max(c.Origin.Start, t-e.cfg.Overlap.Milliseconds(), 0)
}

// trustOlder goes on from a suspect page that is not the first one, given the first
// one. It reports false if it is.
func (s *progress) trustOlder(e *Engine, first *bridge.Page) bool {
	if position.FirstItems(first) == s.suspectItems {
		return false
	}
	s.committed.Trusted = s.suspectItems
	e.log.Warn("the last page lists none of its items any more, but older ones: the API may have forgotten the cursor",
		"cursor", bridge.CursorHash(s.committed.Cursor), "tail", len(s.committed.Tail), "hint", e.cfg.words(bridge.HintCursorRefused))
	e.observeStuck(bridge.StuckOlder)
	return true
}
