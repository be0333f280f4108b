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

// observeRefused is the code of the ObserveReset that reports a rejected cursor.
const observeRefused = "refused-cursor"

// More than maxCursorRecoveries rejected cursors within cursorRecoveryWindow block the
// stream.
const maxCursorRecoveries, cursorRecoveryWindow = 5, time.Hour

// mayRecover reports whether the stream may leave a rejected cursor by
// Config.OnInvalidCursor. If too many were rejected, it adds their number to the fault.
func (i *incidents) mayRecover(cfg *Config, fault *bridge.Fault) bool {
	if cfg.OnInvalidCursor == invalidStop || cfg.window() {
		return false
	}
	i.cursorRecoveries = slices.DeleteFunc(i.cursorRecoveries,
		func(t time.Time) bool { return time.Since(t) > cursorRecoveryWindow })
	if n := len(i.cursorRecoveries); n >= maxCursorRecoveries {
		fault.Err = fmt.Errorf("%w; %d rejected cursors within %s", fault.Err, n, cursorRecoveryWindow)
		return false
	}
	return true
}

// recoverInvalidCursor returns the checkpoint of a new epoch at another position, by
// Config.OnInvalidCursor. From there on, events already in the topic are dropped. If there
// is no such position, it returns the zero checkpoint, and adds the cause to the fault.
// bound says what is not guaranteed from then on.
func (s *session) recoverInvalidCursor(ctx context.Context, was bridge.Checkpoint,
	fault *bridge.Fault) (next bridge.Checkpoint, bound string, err error) {
	policy := s.e.cfg.OnInvalidCursor
	since := s.e.overlapStart(&was, &was)
	to := bridge.Target{Start: since, Pages: was.Pages, PositionTime: was.PositionTime}
	var topics []bridge.TopicState
	bound = "events listed later with an earlier time are not read"
	if policy == invalidPrevious {
		before, err := s.e.previousCursor(ctx, was, fault)
		if before.Zero() {
			return before, "", err
		}
		// Pages is that of the entry in the history, since the history is searched by
		// pages.
		to = bridge.Target{
			Cursor: before.Cursor, Tail: before.Tail, Carried: before.Carried, Border: before.Border, Start: before.Origin.Start,
			Pages: before.Pages, PositionTime: before.PositionTime,
		}
		since, topics, bound = s.e.overlapStart(&was, &before), before.Topics, s.e.cfg.words(bridge.HintOverlapRepeats)
	}
	next = bridge.GoBack(was, to, since, topics)
	next = s.stamp(next, bridge.KindReset, next.Version)
	next.Change = s.e.ownChange(was, "cursor rejected by the API ("+fault.Code+"): "+policy)
	return next, bound, nil
}

// previousCursor returns the checkpoint before the rejected cursor. If there is none, it
// returns the zero checkpoint and adds the cause to the fault.
func (e *Engine) previousCursor(ctx context.Context, was bridge.Checkpoint,
	fault *bridge.Fault) (bridge.Checkpoint, error) {
	sameList, epoch, change := true, was.Epoch, was.Change
	before, err := e.ports.History.Before(ctx, was, func(p *bridge.Checkpoint) bool {
		if p.Epoch != epoch { // the change that began the later epoch may have accepted another list
			sameList = sameList && change != nil && change.AcceptSource == "" && change.From.Epoch == p.Epoch
		}
		epoch, change = p.Epoch, p.Change
		return p.Cursor != was.Cursor
	})
	switch {
	case errors.Is(err, bridge.ErrNoCheckpoint):
		fault.Err = fmt.Errorf("%w; the history has no earlier cursor", fault.Err)
		return bridge.Checkpoint{}, nil
	case err != nil:
		return bridge.Checkpoint{}, &sessionError{fmt.Errorf("find the previous cursor: %w", err)}
	}
	if other := before.Origin.Request.Changed(e.cfg.Origin.Request, before.Cursor).Other; len(other) > 0 {
		fault.Err = fmt.Errorf("%w; the previous cursor is of another request: %s differs", fault.Err,
			strings.Join(other, ", "))
		return bridge.Checkpoint{}, nil
	}
	if !sameList && was.Origin.Request.Known() && !before.Origin.Request.Known() {
		fault.Err = fmt.Errorf("%w; nothing is known of the request of the previous cursor, from before a reset", fault.Err)
		return bridge.Checkpoint{}, nil
	}
	return before, nil
}

// overlapStart returns the time at which an overlap begins for a stream at c that continues
// from to. It is not before the start of the export.
func (e *Engine) overlapStart(c, to *bridge.Checkpoint) int64 {
	t := min(to.LastEventTime, to.AdvanceTime)
	if t == 0 {
		return c.Origin.Start
	}
	return max(c.Origin.Start, t-e.cfg.Overlap.Milliseconds(), 0)
}

// trustOlder accepts the suspect page, which lists older items than before, unless the page
// is the first page of an API that has started over. It reports whether it accepted the
// page.
func (s *progress) trustOlder(e *Engine, first *bridge.Page) bool {
	if position.FirstItems(first) == s.suspectItems {
		return false
	}
	s.committed.Trusted = s.suspectItems
	e.log.Warn("the last page lists none of its items any more, but older ones: the API may have forgotten the cursor",
		"cursor", bridge.CursorHash(s.committed.Cursor), "tail", len(s.committed.Tail),
		"hint", e.cfg.words(bridge.HintCursorRejected))
	e.observeStuck(bridge.StuckOlder)
	return true
}
