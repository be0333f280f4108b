package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
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
	next := f.at.cp
	switch policy {
	case invalidPrevious:
		before, err := f.e.ports.History.Before(hard, f.at.cp, func(p *bridge.Checkpoint) bool { return p.Cursor != f.at.cp.Cursor })
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
		next.Origin, next.Source = f.at.cp.Origin, f.at.cp.Source
		next.Origin.Start = start
		next.Events, next.LastEventTime, next.AdvanceTime = f.at.cp.Events, f.at.cp.LastEventTime, f.at.cp.AdvanceTime
		next.Overlap = &bridge.Overlap{From: f.e.overlapStart(&f.at.cp, min(before.LastEventTime, before.AdvanceTime)), Until: f.at.cp.LastEventTime}
		next.OverlapTopics = before.Topics
	case invalidTime:
		next.Origin.Start = f.e.overlapStart(&f.at.cp, min(f.at.cp.LastEventTime, f.at.cp.AdvanceTime))
		next.Cursor, next.Tail, next.Carried, next.Border, next.OverlapTopics = "", nil, 0, bridge.Border{}, nil
		next.Overlap = &bridge.Overlap{From: next.Origin.Start, Until: f.at.cp.LastEventTime}
	}
	if o := f.at.cp.Overlap; o != nil && !o.Done { // refused again before the end
		next.Overlap.From, next.Overlap.Dropped = min(o.From, next.Overlap.From), o.Dropped
		next.OverlapTopics = bridge.EarlierTopics(next.OverlapTopics, f.at.cp.OverlapTopics)
	}
	if next.RewindEnd = f.at.cp.RewindEnd; next.RewindEnd == nil {
		next.RewindEnd = &bridge.RewindEnd{CursorHash: bridge.CursorHash(f.at.cp.Cursor), Source: f.at.cp.Source}
	}
	next.Drained, next.PausedUntil = false, f.at.cp.PausedUntil
	next.RecentCursors, next.MarksEnd = nil, f.at.cp.MarksEnd
	next = f.session.stamp(next, bridge.KindReset, bridge.Version{Epoch: f.at.cp.Epoch + 1})
	next.Change = f.e.ownChange(f.at.cp, "cursor rejected by the API ("+fault.Code+"): "+policy)
	if err := f.commitCheckpoint(hard, f.at.cp, next); err != nil {
		return false, err
	}
	f.incidents.cursorRecoveries = append(f.incidents.cursorRecoveries, time.Now())
	f.log.Warn("cursor rejected by the API; resuming at another position and dropping events already published", "error", fault.Error(),
		"how", policy, "from", f.at.cp.Version.String(), "to", next.Version.String(), "cursor", bridge.CursorHash(next.Cursor), "overlap_from", describeInstant(next.Overlap.From),
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

// overlaps reports whether the stream is reading an overlap.
func (at *progress) overlaps() bool { return at.head.Overlap != nil && !at.head.Overlap.Done }

// loadPublished reads back the topic before an overlap is read.
func (at *progress) loadPublished(ctx context.Context) error {
	if !at.overlaps() || at.published != nil {
		return nil
	}
	defer at.e.watchdog.wait()()
	held, err := at.e.ports.Published.Index(ctx, bridge.Since{Time: time.UnixMilli(at.head.Overlap.From), Topics: at.head.OverlapTopics}, at.head.Source)
	if err != nil {
		return fmt.Errorf("read the published events: %w", err)
	}
	at.published = held
	return nil
}

// dropPublished drops the events that are already in the topic. The end of the
// results ends the overlap.
func (at *progress) dropPublished(ctx context.Context, p *bridge.Page) {
	if !at.overlaps() {
		return
	}
	o := *at.head.Overlap // the committed checkpoint keeps its own
	o.Dropped += drop(p, at.published.Match)
	if at.head.RewindEnd != nil { // the index of the marks goes further back
		at.loadRewindIndex(ctx, p)
	}
	if at.rewind.index != nil { // which equal events without an id are dropped already it cannot tell
		o.Dropped += drop(p, func(e *bridge.Event) bool { return e.ID != nil && at.rewind.index.Match(e) })
	}
	if o.Done = p.Tail(); o.Done {
		at.head.OverlapTopics = nil
	}
	at.head.Overlap = &o
}

// drop drops events from a page and returns their number.
func drop(p *bridge.Page, which func(*bridge.Event) bool) (dropped int64) {
	kept := p.Events[:0]
	for i := range p.Events {
		if which(&p.Events[i]) {
			dropped++
			continue
		}
		kept = append(kept, p.Events[i])
	}
	p.Events = kept
	return dropped
}

// reportOverlap logs an overlap whose end is committed.
func (at *progress) reportOverlap(was *bridge.Overlap) {
	now := at.cp.Overlap
	if was == nil || was.Done || now == nil || !now.Done {
		return
	}
	at.published = nil
	at.e.log.Warn("overlap re-read finished", "from", describeInstant(now.From), "until", describeInstant(now.Until), "dropped_as_known", now.Dropped)
}
