package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// wantCounts checks how many events the topic holds, and how many different ones.
func (r *harness) wantCounts(events, different int) {
	r.t.Helper()
	all := slices.Sorted(slices.Values(r.values()))
	if got := len(slices.Compact(slices.Clone(all))); len(all) != events || got != different {
		r.t.Errorf("%d events, %d different, want %d and %d", len(all), got, events, different)
	}
}

// TestBorderIsCarried: commands that keep the position, or go to one of the history, keep
// its border; a bare cursor has none.
func TestBorderIsCarried(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		command func(r *harness, entry bridge.Checkpoint)
		again   int
	}{
		"pause and resume": {func(r *harness, _ bridge.Checkpoint) {
			r.ask("1", bridge.KindPause, bridge.Forever)
			r.ask("2", bridge.KindResume, 0)
		}, 0},
		"the current position": {func(r *harness, _ bridge.Checkpoint) { r.command("1", stay(r.store.Checkpoint())) }, 0},
		"an entry": {func(r *harness, c bridge.Checkpoint) {
			r.command("1", (&bridge.Entry{Checkpoint: c}).Target())
		}, 5},
		"the cursor of an entry": {
			func(r *harness, c bridge.Checkpoint) { r.command("1", bridge.Target{Cursor: c.Cursor}) }, 6,
		},
	} {
		rowInModes(t, name, bridgetest.Export{PageSize: 5, Latency: time.Millisecond}, func(r *harness) {
			n := 9
			r.source.Serve(inclusive(func() int { return n }, 5, 1, "fresh"))
			r.startFor(10 * time.Second)
			entry := r.store.Checkpoint()
			if len(entry.Tail) > 0 || len(entry.Border.Items) == 0 {
				r.t.Fatalf("the entry has a tail of %d, a border of %d", len(entry.Tail), len(entry.Border.Items))
			}
			n += 5
			r.after(10 * time.Second)
			tc.command(r, entry)
			r.after(10 * time.Second)
			r.end()
			r.start()
			n += 5
			r.after(10 * time.Second)
			r.wantCounts(n+tc.again, n)
		})
	}
}

// TestBorderOfUncommittedPages: the border goes back with the pages that were fetched and
// not committed.
func TestBorderOfUncommittedPages(t *testing.T) {
	t.Parallel()
	for publish := range 3 {
		exactlyInBubble(t, bridgetest.Export{PageSize: 5}, func(r *harness) {
			r.source.Serve(inclusive(func() int { return 60 }, 5, 1, "none"))
			r.topic.FailPublish(publish+1, bridgetest.Failed)
			r.startFor(90 * time.Second)
			r.wantState(bridge.StateIdle, "")
			r.wantCounts(60, 60)
		})
	}
}

// refusingSource refuses a cursor until it has been asked for another position.
type refusingSource struct {
	bridge.Source
	cursor string
}

func (s *refusingSource) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	switch {
	case s.cursor == "":
	case at.Cursor == s.cursor:
		return nil, gone
	case at.Cursor != "" || at.Start > 0: // not the request that checks it
		s.cursor = ""
	}
	return s.Source.Fetch(ctx, at)
}

// TestBorderInOverlap: a part of the export that is read again after a refused cursor is
// known to its borders.
func TestBorderInOverlap(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"time", "previous"} {
		rowInModes(t, policy, bridgetest.Export{PageSize: 5}, func(r *harness) {
			n := 9
			r.source.Serve(inclusive(func() int { return n }, 5, 1, "same"))
			r.cfg.OnInvalidCursor = policy
			source := &refusingSource{Source: r.source}
			r.startWith(engine.Ports{Source: source, Inbox: r.inbox})
			r.after(time.Minute)
			n += 10
			r.after(time.Minute)
			r.end()
			source.cursor = r.store.Checkpoint().Cursor
			r.startWith(engine.Ports{Source: source, Inbox: r.inbox})
			r.after(5 * time.Minute)
			n += 20
			r.after(5 * time.Minute)
			r.wantState(bridge.StateIdle, "")
			r.wantCounts(n, n)
			if r.store.Checkpoint().Epoch != 1 {
				r.t.Error("the cursor was not left")
			}
		})
	}
}

// TestWideBorder: if pages overlap by more items than are kept, the first items are
// published twice once, with a warning. From then on enough items are kept, after restarts
// too.
func TestWideBorder(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{PageSize: 40}, func(r *harness) {
		n := 200
		r.source.Serve(inclusive(func() int { return n }, 40, 30, "none"))
		for range 2 {
			r.startFor(time.Minute)
			r.end()
			n += 100
		}
		r.wantCounts(300+30-16, 300)
		r.wantLogged("pages overlap by all items kept", 1)
	})
}

// TestBorderAtEnds: a bounded run and a window end on such an API, and are complete.
func TestBorderAtEnds(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"none", "same", "fresh"} {
		for _, window := range []bool{false, true} {
			rowInModes(t, fmt.Sprintf("%s/%t", end, window), bridgetest.Export{PageSize: 5}, func(r *harness) {
				r.source.Serve(inclusive(func() int { return 32 }, 5, 2, end))
				r.cfg.Limits = engine.Limits{Once: !window}
				if window {
					r.cfg.Origin.Start, r.cfg.Origin.End = 1, 946684800001
				}
				r.after(time.Hour)
				r.mustRun()
				r.wantCounts(32, 32)
				if got := r.source.Requests(); got > 40 { // some are asked ahead
					r.t.Errorf("%d requests", got)
				}
			})
		}
	}
}
