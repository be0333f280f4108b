package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// answer is a page of items that names the next one.
func answer(next string, items ...string) bridgetest.Answer {
	return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[%s],"nextCursor":%q}`, strings.Join(items, ","), next)}
}

// inclusive serves n items in pages of size, each of which begins with the last
// overlap items of the page before. Its end is an empty cursor, the same cursor, or a
// fresh one for ever.
func inclusive(n func() int, size, overlap int, end string) func(bridge.Position) bridgetest.Answer {
	fresh := 0
	return func(at bridge.Position) bridgetest.Answer {
		from := 0
		if at.Cursor != "" {
			fmt.Sscanf(at.Cursor, "c%d", &from)
		}
		to := min(from+size, n())
		var items []string
		for i := from; i < to; i++ {
			items = append(items, sparseItem(fmt.Sprintf("e%d", i), i))
		}
		next := fmt.Sprintf("c%d", to-overlap)
		if to == n() {
			switch end {
			case "none":
				next = ""
			case "same":
				next = at.Cursor
			default:
				fresh++
				next = fmt.Sprintf("c%d-%d", to-overlap, fresh)
			}
		}
		return answer(next, items...)
	}
}

// TestInclusiveBorder: what ended the page before is published once, at every kind of
// end, over restarts and while the export grows.
func TestInclusiveBorder(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"none", "same", "fresh"} {
		for _, overlap := range []int{1, 3} {
			rowInModes(t, fmt.Sprintf("%s/%d", end, overlap), bridgetest.Export{PageSize: 5, Latency: time.Millisecond},
				func(r *harness) {
					n := 12
					r.source.Serve(inclusive(func() int { return n }, 5, overlap, end))
					want := 0
					for range 2 {
						r.startFor(2 * time.Minute)
						if n += 3; want == 0 {
							n -= 3
						}
						r.after(2 * time.Minute)
						r.end()
						want = n
					}
					got := r.values()
					slices.Sort(got)
					if unique := slices.Compact(slices.Clone(got)); len(got) != want || len(unique) != want {
						r.t.Errorf("%d events, %d different, want %d", len(got), len(unique), want)
					}
					if r.source.Requests() > 20_000 { // as where such pages are empty: 2,000 after each event
						r.t.Errorf("%d requests in 16 minutes", r.source.Requests())
					}
					if s := r.bridge.Status(); s.State == bridge.StateBlocked {
						r.t.Errorf("blocked: %s", s.Error)
					}
				})
		}
	}
}

// forgetful serves 40 pages of two items. Once it is stale it answers the last cursor
// with the first page, whose times do not tell.
func forgetful(stale bool) func(bridge.Position) bridgetest.Answer {
	return func(at bridge.Position) bridgetest.Answer {
		n := 0
		fmt.Sscanf(at.Cursor, "c%d", &n)
		if stale && n == 39 {
			n = 0
		}
		next := fmt.Sprintf("c%d", n+1)
		if n == 39 {
			next = ""
		}
		return answer(next, sparseItem(fmt.Sprint("a", n), 0), sparseItem(fmt.Sprint("b", n), 0))
	}
}

// TestFirstPageForAStaleCursor: an API that has forgotten the cursor answers with the
// first page. Nothing of it is published, and the setting for refused cursors applies.
func TestFirstPageForAStaleCursor(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
		for _, policy := range []string{"stop", "previous"} {
			row(t, string(mode)+"/"+policy, bridgetest.Export{PageSize: 2}, func(r *harness) {
				r.deliver(mode)
				r.cfg.OnInvalidCursor = policy
				r.source.Serve(forgetful(false))
				r.startFor(time.Minute)
				r.end()
				r.source.Serve(forgetful(true))
				r.startFor(3 * time.Minute)
				if policy == "stop" {
					r.wantState(bridge.StateBlocked, bridge.ReasonCursor)
				}
				r.wantEvents(80)
				if moved := len(r.observed(bridge.ObserveReset, "refused-cursor")); (moved > 0) != (policy == "previous") {
					r.t.Errorf("moved %d times under %s", moved, policy)
				}
				r.source.Serve(forgetful(false))
				r.after(5 * time.Minute)
				r.wantEvents(80)
			})
		}
	}
}

// TestFullPageWithoutNext: a full page that names no next page, or itself, may hide
// items. The stream warns about it, once a day in its log.
func TestFullPageWithoutNext(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		next     string
		explicit bool
		size     int
		warns    int
	}{
		"no next":            {"", false, 2, 2},
		"one second":         {"a", false, 2, 2},
		"not full":           {"", false, 3, 0},
		"the API marks ends": {"", true, 2, 0},
	} {
		row(t, name, bridgetest.Export{PageSize: tc.size}, func(r *harness) {
			r.cfg.EndExplicit, r.cfg.PollInterval, r.cfg.PollIntervalMax = tc.explicit, 20*time.Minute, time.Hour
			r.source.Serve(func(at bridge.Position) bridgetest.Answer {
				if at.Cursor == "" {
					return answer("a", sparseItem("0", 0))
				}
				return answer(tc.next, sparseItem("1", 1), sparseItem("2", 1))
			})
			r.startFor(25 * time.Hour)
			r.wantLogged("full page without a next page", tc.warns)
			if got := r.bridge.Status().FullPage; got != (tc.warns > 0) {
				r.t.Errorf("status says %t", got)
			}
			if n := len(r.observed(bridge.ObserveStuck, "")); (n > 0) != (tc.warns > 0) {
				r.t.Errorf("%d observations", n)
			}
		})
	}
}

// TestOlderPage: the last page is read again, and lists only items older than its own. If
// it is the first page, the cursor counts as rejected; if it is another one, the stream
// warns. If the items are within the overlap, or one of the page's own is still there,
// nothing happens.
func TestOlderPage(t *testing.T) {
	t.Parallel()
	item := func(n int) string { return sparseItem(fmt.Sprint(n), n) }
	for name, tc := range map[string]struct {
		first, later []string
		blocked      bool
		published    int
		warns        bool
	}{
		"the first page":      {[]string{item(0), item(1)}, []string{item(0), item(1)}, true, 4, false},
		"another one":         {[]string{item(0), item(1)}, []string{item(3), item(4)}, false, 6, true},
		"one of its own":      {[]string{item(0), item(1)}, []string{item(5), item(100)}, false, 5, false},
		"within the overlap":  {[]string{item(0), item(1)}, []string{sparseItem("late", 100)}, false, 5, false},
		"an empty page again": {[]string{item(0), item(1)}, nil, false, 4, false},
	} {
		row(t, name, bridgetest.Export{PageSize: 3}, func(r *harness) {
			last := []string{item(100), item(101)}
			r.source.Serve(func(at bridge.Position) bridgetest.Answer {
				if at.Cursor == "" {
					return answer("a", tc.first...)
				}
				return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[%s]}`, strings.Join(last, ","))}
			})
			r.startFor(time.Minute)
			r.end()
			last = tc.later
			r.startFor(3 * time.Minute)
			if tc.blocked {
				r.wantState(bridge.StateBlocked, bridge.ReasonCursor)
			} else {
				r.wantState(bridge.StateIdle, "")
			}
			r.wantEvents(tc.published)
			if n := len(r.observed(bridge.ObserveStuck, bridge.StuckOlder)); (n > 0) != tc.warns || n > 1 {
				r.t.Errorf("%d warnings", n)
			}
			if got := r.bridge.Status().OlderPage; got != tc.warns {
				r.t.Errorf("status says %t", got)
			}
		})
	}
}

// TestCursorIgnored: an API that ignores the cursor lists the same page for ever. That
// is no end of the results, after a restart either, however long the page is.
func TestCursorIgnored(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 16, 17, 40} {
		rowInModes(t, fmt.Sprint(n), bridgetest.Export{PageSize: n}, func(r *harness) {
			items := make([]string, n)
			for i := range items {
				items[i] = sparseItem(fmt.Sprint("e", i), i)
			}
			r.source.Serve(func(bridge.Position) bridgetest.Answer {
				return answer("a", items...)
			})
			for range 2 {
				r.startFor(3 * time.Minute)
				r.wantState(bridge.StateBlocked, bridge.ReasonCycle)
				r.end()
			}
			r.wantEvents(n)
		})
	}
}

// TestInclusiveEndOfOneTime: an API that lists from its cursor's time on, inclusive, answers
// the last page again at its end, as long as nothing comes after that time.
func TestInclusiveEndOfOneTime(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 12, 40} {
		for _, stop := range []bool{false, true} {
			rowInModes(t, fmt.Sprintf("%d, stopped %t", n, stop), bridgetest.Export{PageSize: 100}, func(r *harness) {
				later := 0
				r.source.Serve(func(at bridge.Position) bridgetest.Answer {
					var items []string
					for i := range n {
						items = append(items, sparseItem(fmt.Sprintf("e%d", i), 0))
					}
					next := "t0"
					for i := range later {
						items, next = append(items, sparseItem(fmt.Sprintf("l%d", i), 1)), "t1"
					}
					if at.Cursor == "t1" {
						items = items[n:]
					}
					return answer(next, items...)
				})
				again := func() {
					r.after(time.Minute)
					r.wantState(bridge.StateIdle, "")
					if stop {
						_ = r.end()
						r.start()
					}
					r.after(time.Minute)
				}
				r.start()
				again()
				later = 2
				again()
				r.wantState(bridge.StateIdle, "")
				r.wantEvents(n + 2)
			})
		}
	}
}

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

// TestWideBorder: all items of the first page are kept, so an overlap of any width is known from the
// second page on. If later pages overlap by more items than are kept, the first items are published
// twice once, with a warning. From then on enough items are kept, after restarts too.
func TestWideBorder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ first, twice, warnings int }{
		"from the first page on": {30, 0, 0}, "later": {0, 30 - 16, 1},
	} {
		rowInModes(t, name, bridgetest.Export{PageSize: 40}, func(r *harness) {
			n := 200
			count := func() int { return n }
			first, later := inclusive(count, 40, test.first, "none"), inclusive(count, 40, 30, "none")
			r.source.Serve(func(at bridge.Position) bridgetest.Answer {
				if at.Cursor == "" {
					return first(at)
				}
				return later(at)
			})
			for range 2 {
				r.startFor(time.Minute)
				r.end()
				n += 100
			}
			r.wantCounts(300+test.twice, 300)
			r.wantLogged("pages overlap by all items kept", test.warnings)
		})
	}
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
