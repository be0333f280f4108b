package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// sparseItem is an event so many hours after the first, a year ago.
func sparseItem(id string, hours int) string {
	return fmt.Sprintf(`{"eventId":%q,"timestamp":%d}`, id, 915148800000+int64(hours)*3600_000)
}

// sparse serves an item, so many empty pages with a new cursor each, another
// item, and the end of the results as the API marks it.
func sparse(empties int, end func(cursor string) string) func(bridge.Position) bridgetest.Answer {
	return func(at bridge.Position) bridgetest.Answer {
		n := 0
		if _, err := fmt.Sscanf(at.Cursor, "e%d", &n); err != nil && at.Cursor != "" {
			return answer(end(at.Cursor))
		}
		switch n {
		case 0:
			return answer("e1", sparseItem("1", 0))
		case empties + 1:
			return answer("f", sparseItem("2", 1))
		}
		return answer(fmt.Sprint("e", n+1))
	}
}

// A sparse export is followed at the API's pace, and is not caught up while
// the cursor moves.
func TestSparseExportIsFollowed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(string) string{
		"no cursor":    func(string) string { return "" },
		"same cursor":  func(c string) string { return c },
		"fresh cursor": func(c string) string { return c + "f" },
	} {
		row(t, name, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
			r.source.Serve(sparse(1000, end))
			r.start()
			for range 40 {
				r.after(time.Second)
				if s := r.bridge.Status(); s.CaughtUp || s.State != bridge.StateRunning || r.store.Checkpoint().Drained {
					r.t.Fatalf("caught up (%s, drained %t) at an empty page, after %d requests", s.State,
						r.store.Checkpoint().Drained, r.source.Requests())
				}
			}
			r.after(3 * time.Minute)
			r.wantEvents(2)
			if n := len(r.store.History()); n > 300 {
				r.t.Errorf("%d commits in less than 4 minutes", n)
			}
			r.after(10 * time.Minute)
			r.wantState(bridge.StateIdle, "")
		})
	}
}

// That the API marks its end is committed with the page that shows it first, also where
// that has no events: jobs and comparisons read it in the checkpoint.
func TestEndMarkIsCommitted(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{true, false} {
		inModes(t, bridgetest.Export{Latency: time.Second}, func(r *harness) { // each page is a batch
			r.cfg.Limits.Once = once
			r.source.Serve(sparse(3, func(string) string { return "" }))
			r.startFor(20 * time.Second)
			if c := r.store.Checkpoint(); !c.MarksEnd {
				r.t.Errorf("checkpoint %s, once %t, does not say that the API marks its end", c.Version, once)
			}
			commits := len(r.store.History())
			if r.after(10 * time.Second); len(r.store.History()) != commits { // less than a heartbeat
				r.t.Error("it is committed again")
			}
		})
	}
}

// An API that gives a new cursor for ever at the end of its results is asked
// as rarely as any other, in the end: also where the last event is old, and so
// could be followed by a sparse part.
func TestFreshCursorsForEver(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 5 * time.Millisecond}, func(r *harness) {
		lag := 3 * time.Hour
		events := 0
		r.source.Serve(func(at bridge.Position) bridgetest.Answer {
			n := 0
			fmt.Sscanf(at.Cursor, "e%d", &n)
			if n%40 != 0 || n/40 < events { // now and then there is an event, always as old
				return answer(fmt.Sprint("e", n+1))
			}
			events++
			return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[{"eventId":"%d","timestamp":%d}],"nextCursor":"e%d"}`, n,
				time.Now().Add(-lag).UnixMilli(), n+1)}
		})
		r.startFor(time.Hour)
		before := r.source.Requests()
		if before > 6000 {
			t.Errorf("%d requests in the first hour", before)
		}
		r.after(time.Hour)
		if n := r.source.Requests() - before; n > 3700 {
			t.Errorf("%d requests in the second hour", n)
		}
		r.wantState(bridge.StateIdle, "")
	})
}

// An API that gives a new cursor with each empty page, and once by chance the
// same one, has not marked its end.
func TestSameCursorByChance(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 5 * time.Millisecond}, func(r *harness) {
		var chance atomic.Bool
		r.source.Serve(func(at bridge.Position) bridgetest.Answer {
			n := 0
			fmt.Sscanf(at.Cursor, "e%d", &n)
			switch {
			case at.Cursor == "":
				return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[{"eventId":"1","timestamp":%d}],"nextCursor":"e1"}`,
					time.Now().UnixMilli())}
			case n == 50 && chance.CompareAndSwap(false, true):
				return answer("e50")
			}
			return answer(fmt.Sprint("e", n+1))
		})
		r.startFor(3 * time.Hour)
		before := r.source.Requests()
		r.after(time.Hour)
		r.wantState(bridge.StateIdle, "")
		if n := r.source.Requests() - before; !chance.Load() || n > 3600/11 || !r.bridge.Status().CaughtUp {
			t.Errorf("%d requests in an hour, caught up %v", n, r.bridge.Status().CaughtUp)
		}
	})
}

// Empty pages whose cursors lead in a circle are the end of the results.
func TestEmptyCircleIsTail(t *testing.T) {
	t.Parallel()
	for _, length := range []int{2, 3, 7} {
		row(t, fmt.Sprint(length), bridgetest.Export{}, func(r *harness) {
			var more atomic.Bool // there is another item
			r.source.Serve(func(at bridge.Position) bridgetest.Answer {
				n := 0
				fmt.Sscanf(at.Cursor, "c%d", &n)
				switch {
				case at.Cursor == "":
					return answer("c1", sparseItem("1", 0))
				case at.Cursor == "on":
					return answer("c1")
				case n == 2 && more.Load():
					return answer("on", sparseItem("2", 1))
				}
				return answer(fmt.Sprint("c", n%length+1))
			})
			r.startFor(10 * time.Second)
			r.wantState(bridge.StateIdle, "")
			if !r.bridge.Status().CaughtUp {
				r.t.Error("not caught up")
			}
			r.after(10 * time.Minute)
			r.wantState(bridge.StateIdle, "")
			if n := r.source.Requests(); n > 100 {
				r.t.Errorf("%d requests in ten quiet minutes", n)
			}
			if got := r.store.Checkpoint(); !got.Drained || time.Since(time.UnixMilli(got.PositionTime)) > time.Minute {
				r.t.Errorf("drained %t, position %v ago", got.Drained, time.Since(time.UnixMilli(got.PositionTime)))
			}
			more.Store(true)
			r.after(5 * time.Minute)
			r.wantEvents(2)
		})
	}
}

// cycle serves pages with an item each, of which the last leads back to the third.
func cycle(pages int) func(bridge.Position) bridgetest.Answer {
	return func(at bridge.Position) bridgetest.Answer {
		n := 0
		fmt.Sscanf(at.Cursor, "c%d", &n)
		next := n + 1
		if next == pages {
			next = 2
		}
		return answer(fmt.Sprint("c", next), sparseItem(fmt.Sprint(n), n))
	}
}

// A restart does not forget where the stream has been.
func TestCycleOverRestarts(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.source.Serve(cycle(4))
		for range 4 {
			r.startFor(time.Minute)
			r.wantState(bridge.StateBlocked, bridge.ReasonCycle)
			r.end()
		}
		values := r.values()
		if distinct := slices.Compact(slices.Sorted(slices.Values(values))); len(distinct) != len(values) {
			r.t.Errorf("%d events in the topic, %d of them different", len(values), len(distinct))
		}
	})
}

// A rewind is no cycle, nor is a pause, in the same process and in another one.
func TestRewindIsNoCycle(t *testing.T) {
	bubble(t, bridgetest.Export{End: bridgetest.EndEmptyItems}, func(r *harness) {
		r.follow(100, 5*time.Second)
		back := r.store.History()[0]
		for i := range 3 {
			r.apply(fmt.Sprint("r", i), bridge.Target{Cursor: back.Cursor, Tail: back.Tail, Entry: &back.Version})
			r.restart(5 * time.Second)
			r.wantState(bridge.StateIdle, "")
		}
		if got := len(r.values()); got < 300 {
			t.Errorf("%d events, want the export three times and more", got)
		}
	})
}

// Empty pages end a bounded run only if the API has never marked the end of its results,
// and the run then reports it.
func TestEmptyPagesEnd(t *testing.T) {
	t.Parallel()
	end := func(string) string { return "" }
	for name, c := range map[string]struct {
		window, known bool // known: the API has marked its end before
		empties       int
		end           func(string) string
		events, cut   int
	}{
		"window, never marked":    {true, false, 8, end, 1, 5},
		"window, few empty pages": {true, false, 4, end, 2, 0},
		"window, marked before":   {true, true, 800, end, 2, 0},
		"once, never marked":      {false, false, 8, end, 1, 5},
		"once, marked before":     {false, true, 800, end, 2, 0},
		"window, for ever empty":  {true, false, 4, func(c string) string { return c + "f" }, 2, 5},
		"once, for ever empty":    {false, false, 4, func(c string) string { return c + "f" }, 2, 5},
		"window, in turn":         {true, true, 4, turnCursor, 2, 0},
		"once, in turn":           {false, false, 4, turnCursor, 2, 0},
	} {
		exactRow(t, name, bridgetest.Export{}, func(r *harness) {
			r.source.Serve(sparse(c.empties, c.end))
			if r.cfg.MarksEnd = c.known; c.window {
				r.cfg.Origin.Start, r.cfg.Origin.End = 1, time.Now().UnixMilli()
			} else {
				r.cfg.Limits.Once = true
			}
			r.mustRun()
			if s := r.bridge.Status(); len(r.values()) != c.events || s.EndedEmpty != c.cut {
				r.t.Errorf("%d events, ended by %d empty pages (%s); want %d and %d", len(r.values()), s.EndedEmpty, s.Ended,
					c.events, c.cut)
			}
			requests, ended := r.source.Requests(), r.bridge.Status().Ended
			r.mustRun()
			if !c.window {
				return
			}
			before := strings.Replace(ended, "the window ended", "the window was done before: it ended", 1)
			if s := r.bridge.Status(); s.EndedEmpty != c.cut || s.Ended != before || r.source.Requests() != requests {
				r.t.Errorf("run again: %q after %d requests, want %q", s.Ended, r.source.Requests()-requests, before)
			}
		})
	}
}

// TestEmptyForEver: an API that marks its end elsewhere names a next page for ever. The log says so, once,
// and what to set.
func TestEmptyForEver(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) {
		n := 0
		r.source.Serve(sparse(4, func(string) string {
			n++
			return fmt.Sprint("f", n)
		}))
		r.cfg.MarksEnd = true
		r.cfg.Origin.Start, r.cfg.Origin.End = 1, time.Now().UnixMilli()
		r.startFor(time.Minute)
		r.wantLogged("the results may have ended", 0)
		r.after(8 * time.Minute)
		r.wantLogged("the results may have ended", 1)
	})
}

// turnCursor hands out two cursors in turn.
func turnCursor(c string) string {
	if c == "f" {
		return "g"
	}
	return "f"
}
