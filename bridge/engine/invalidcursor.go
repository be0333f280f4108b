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
	next := f.committed.Checkpoint
	switch policy {
	case invalidPrevious:
		before, err := f.e.ports.History.Before(hard, f.committed.Checkpoint, func(p *bridge.Checkpoint) bool { return p.Cursor != f.committed.Cursor })
		switch {
		case errors.Is(err, bridge.ErrNoCheckpoint):
			fault.Err = fmt.Errorf("%w; the history has no earlier cursor", fault.Err)
			return false, nil
		case err != nil:
			return false, &sessionError{fmt.Errorf("find the previous cursor: %w", err)}
		}
		if other := before.Origin.Request.Changed(f.e.cfg.Origin.Request, before.Cursor).Other; len(other) > 0 {
			fault.Err = fmt.Errorf("%w; the previous cursor is of another request: %s differs", fault.Err, strings.Join(other, ", "))
			return false, nil
		}
		next = before
		// Dropped events do not count. Pages is the entry's: the history is
		// searched by it.
		start := before.Origin.Start
		next.Origin, next.Source = f.committed.Origin, f.committed.Source
		next.Origin.Start = start
		next.Events, next.LastEventTime, next.AdvanceTime = f.committed.Events, f.committed.LastEventTime, f.committed.AdvanceTime
		next.Overlap = &bridge.Overlap{From: f.e.overlapStart(&f.committed.Checkpoint, min(before.LastEventTime, before.AdvanceTime)), Until: f.committed.LastEventTime}
		next.OverlapTopics = before.Topics
	case invalidTime:
		next.Origin.Start = f.e.overlapStart(&f.committed.Checkpoint, min(f.committed.LastEventTime, f.committed.AdvanceTime))
		next.Cursor, next.Tail, next.Carried, next.Border, next.OverlapTopics = "", nil, 0, bridge.Border{}, nil
		next.Overlap = &bridge.Overlap{From: next.Origin.Start, Until: f.committed.LastEventTime}
	}
	if o := f.committed.Overlap; o != nil && !o.Done { // refused again before the end
		next.Overlap.From, next.Overlap.Dropped = min(o.From, next.Overlap.From), o.Dropped
		next.OverlapTopics = bridge.EarlierTopics(next.OverlapTopics, f.committed.OverlapTopics)
	}
	if next.RewindEnd = f.committed.RewindEnd; next.RewindEnd == nil {
		next.RewindEnd = &bridge.RewindEnd{CursorHash: bridge.CursorHash(f.committed.Cursor), Source: f.committed.Source}
	}
	next.Drained, next.PausedUntil = false, f.committed.PausedUntil
	next.RecentCursors, next.MarksEnd = nil, f.committed.MarksEnd
	next = f.session.stamp(next, bridge.KindReset, bridge.Version{Epoch: f.committed.Epoch + 1})
	next.Change = f.e.ownChange(f.committed.Checkpoint, "cursor rejected by the API ("+fault.Code+"): "+policy)
	if err := f.commitCheckpoint(hard, f.committed.Checkpoint, next); err != nil {
		return false, err
	}
	f.incidents.cursorRecoveries = append(f.incidents.cursorRecoveries, time.Now())
	f.log.Warn("cursor rejected by the API; resuming at another position and dropping events already published", "error", fault.Error(),
		"how", policy, "from", f.committed.Version.String(), "to", next.Version.String(), "cursor", bridge.CursorHash(next.Cursor), "overlap_from", describeInstant(next.Overlap.From),
		"overlap_until", describeInstant(next.Overlap.Until), "bound", f.e.cfg.bound(policy))
	f.move(next)
	f.e.observe(bridge.Observation{What: bridge.ObserveReset, Code: observeRefused})
	return true, nil
}

// bound describes the limit of the guarantee after that.
func (c *Config) bound(policy string) string {
	if policy == invalidTime {
		return "events listed later with an earlier time are not read"
	}
	return c.words(bridge.HintOverlapRepeats)
}

// overlapStart is where an overlap begins for a stream at c with events up to t, at
// the start of the export at the earliest.
func (e *Engine) overlapStart(c *bridge.Checkpoint, t int64) int64 {
	if t == 0 {
		return c.Origin.Start
	}
	return max(c.Origin.Start, t-e.cfg.Overlap.Milliseconds(), 0)
}

// reportOverlap logs an overlap whose end is committed.
func (f *follower) reportOverlap(was *bridge.Overlap) {
	now := f.committed.Overlap
	if was == nil || was.Done || now == nil || !now.Done {
		return
	}
	f.known.Published = nil
	f.log.Warn("overlap re-read finished", "from", describeInstant(now.From), "until", describeInstant(now.Until), "dropped_as_known", now.Dropped)
}

// trustOlder goes on from a suspect page that is not the first one, given the first
// one. It reports false if it is.
func (f *follower) trustOlder(first *bridge.Page) bool {
	if f.schedule.suspect.Code != position.CodeOlder || position.FirstItems(first) == f.schedule.suspectItems {
		return false
	}
	f.committed.Trusted = f.schedule.suspectItems
	f.schedule.suspect = nil
	f.log.Warn("the last page lists none of its items any more, but older ones: the API may have forgotten the cursor",
		"cursor", bridge.CursorHash(f.committed.Cursor), "tail", len(f.committed.Tail), "hint", f.e.cfg.words(bridge.HintCursorRefused))
	f.observeStuck(bridge.StuckOlder)
	return true
}
