package position

import (
	"fmt"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestEmptyPagesInOverlap: empty pages with fresh cursors end an overlap only after a recent
// event. Before, they may lie between the events that the overlap lists again.
func TestEmptyPagesInOverlap(t *testing.T) {
	t.Parallel()
	const now = 2_000_000_000_000
	hour := time.Hour.Milliseconds()
	at := Begin(bridge.Checkpoint{
		LastEventTime: now, Origin: bridge.Origin{Start: now - 1}, Overlap: &bridge.Overlap{From: now - hour},
	})
	page := func(n int, times ...int64) {
		p := &bridge.Page{At: at.Position(), Next: fmt.Sprint("c", n), Items: len(times), ServerTime: time.UnixMilli(now)}
		for _, ms := range times {
			p.Events = append(p.Events, bridge.Event{ID: fmt.Append(nil, n), Raw: fmt.Append(nil, n), Time: ms})
		}
		next, _, err := at.Take(p, &Rules{PageSize: 10}, Known{Published: held("1 3")})
		must.Do(t, err)
		at = next
	}
	for i, step := range []struct {
		times []int64
		done  bool
	}{{nil, false}, {[]int64{now - hour/2}, false}, {nil, false}, {[]int64{now - 1}, false}, {nil, true}} {
		if page(i, step.times...); at.Overlap.Done != step.done {
			t.Fatalf("page %d: the overlap is %+v, want done: %t", i, *at.Overlap, step.done)
		}
	}
	if at.Overlap.Dropped != 2 {
		t.Errorf("%d events dropped, want 2", at.Overlap.Dropped)
	}
}
