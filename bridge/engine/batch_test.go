package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// TestCommitsBehind: a stream that is behind commits a few large batches, and
// no more than that of its fetching is in doubt at a crash. An event from the
// future does not make it look caught up.
func TestCommitsBehind(t *testing.T) {
	t.Parallel()
	const pages, latency = 100, 20 * time.Millisecond
	exactlyInBubble(t, bridgetest.Export{PageSize: 10, Latency: latency}, func(r *harness) {
		r.source.Append(fmt.Sprintf(`{"eventId":"x","userId":"u","timestamp":%d,"payload":{}}`,
			time.Now().AddDate(5, 0, 0).UnixMilli()))
		r.grow(10*pages-1, time.Hour)
		r.startFor(time.Second)
		early := len(r.topic.Kept())
		if n := len(r.values()); n < 250 {
			t.Errorf("%d events are committed after a second, want all but those of 200 ms", n)
		}
		r.after(5 * time.Second)
		if n := len(r.topic.Kept()); early > 8 || n > 15 {
			t.Errorf("%d commits in the first second, %d for %d pages of %s, want one in 200 ms", early, n, pages, latency)
		}
		r.wantOnce()
	})
}

// TestCommitsSparse: empty pages between others are not the end of the results.
func TestCommitsSparse(t *testing.T) {
	t.Parallel()
	const pages = 100
	exactlyInBubble(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.source.Serve(func(at bridge.Position) bridgetest.Answer {
			n, items, next := 0, "", ""
			_, _ = fmt.Sscanf(at.Cursor, "e%d", &n) // none is the first page
			if n%2 == 0 {
				items = sparseItem(fmt.Sprint(n), n)
			}
			if n < pages {
				next = fmt.Sprint("e", n+1)
			}
			return answer(next, items)
		})
		r.startFor(5 * time.Second)
		if events, commits := len(r.values()), len(r.topic.Kept()); events != pages/2+1 || commits > 15 {
			t.Errorf("%d commits of %d events, want one in 200 ms", commits, events)
		}
	})
}

// TestCommitsAtTheTail: new events at the end of the results wait for nothing,
// however the API marks it.
func TestCommitsAtTheTail(t *testing.T) {
	t.Parallel()
	const latency = 20 * time.Millisecond
	for _, end := range bridgetest.Ends {
		for _, poll := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
			exactlyInBubble(t, bridgetest.Export{PageSize: 10, End: end, Latency: latency}, func(r *harness) {
				r.cfg.PollInterval, r.cfg.PollIntervalMax = poll, poll
				r.startFor(time.Minute)
				for _, events := range []int{3, 10, 13, 25} { // one page, a full one, with more pages behind it
					n := len(r.values())
					r.source.Grow(events)
					asked := r.source.Requests()
					for r.source.Requests() == asked {
						r.after(time.Millisecond)
					}
					r.after(time.Duration(events/10+2) * latency) // the page behind a full one may be the end
					if got := len(r.values()) - n; got != events {
						t.Errorf("%s, a poll in %s: %d of %d events are committed when they could be", end, poll, got, events)
					}
					r.after(time.Second)
				}
			})
		}
	}
}

// TestCommitsOldAtTheTail: a page that is half empty does not wait for the next
// one, a full one a tenth of the age of its events.
func TestCommitsOldAtTheTail(t *testing.T) {
	t.Parallel()
	const latency = 150 * time.Millisecond
	for _, end := range []bridgetest.End{bridgetest.EndEmptyItems,
		bridgetest.EndFreshCursor} { // the others mark the last page
		for _, tc := range []struct {
			events    int
			age, wait time.Duration
		}{{3, time.Hour, 0}, {10, 500 * time.Millisecond, 75 * time.Millisecond}} {
			exactlyInBubble(t, bridgetest.Export{PageSize: 10, End: end, Latency: latency}, func(r *harness) {
				r.cfg.PollInterval, r.cfg.PollIntervalMax = 100*time.Millisecond, 100*time.Millisecond
				r.follow(10, time.Minute)
				for round := range 2 { // each poll begins anew
					n, asked := len(r.values()), r.source.Requests()
					for i := range tc.events {
						r.source.Append(fmt.Sprintf(`{"eventId":"old-%d-%d","userId":"u","timestamp":%d,"payload":{}}`, round, i,
							time.Now().Add(-tc.age).UnixMilli()))
					}
					for r.source.Requests() == asked {
						r.after(time.Millisecond)
					}
					r.after(latency + tc.wait + time.Millisecond)
					if got := len(r.values()) - n; got != tc.events {
						t.Errorf("%s: %d of %d events that are %s old are committed when they could be", end, got, tc.events, tc.age)
					}
					r.after(5 * time.Second)
				}
			})
		}
	}
}

// TestCommitsLastOfSparse: if pages are partly empty, a page with fewer items than the
// last page with items does not wait for more.
func TestCommitsLastOfSparse(t *testing.T) {
	t.Parallel()
	const latency = 150 * time.Millisecond
	exactlyInBubble(t, bridgetest.Export{PageSize: 10, Latency: latency}, func(r *harness) {
		full := append(slices.Repeat([]string{sparseItem("a", 1)}, 9), sparseItem("b", 2))
		pages := map[string]bridgetest.Answer{
			"": answer("1", full...), "1": answer("2"), "2": answer("3", sparseItem("c", 3)), "3": answer(""),
		}
		r.source.Serve(func(at bridge.Position) bridgetest.Answer { return pages[at.Cursor] })
		r.startFor(3*latency + time.Millisecond)
		r.wantEvents(3)
	})
}

// TestCommitsPageByPage: where a page takes longer than a batch grows, none
// waits for the next one, and all the waiting is measured.
func TestCommitsPageByPage(t *testing.T) {
	t.Parallel()
	for _, latency := range []time.Duration{250 * time.Millisecond, 390 * time.Millisecond} {
		exactlyInBubble(t, bridgetest.Export{PageSize: 10, Latency: latency}, func(r *harness) {
			r.grow(5000, time.Hour)
			r.startFor(30 * time.Second)
			asked := r.source.Requests()
			for r.source.Requests() == asked {
				r.after(time.Millisecond)
			}
			r.after(time.Millisecond)
			if got, want := len(r.values()), 10*asked; got != want {
				t.Errorf("%s a page: %d events are committed when %d have come", latency, got, want)
			}
			var waited time.Duration
			for _, o := range r.observed(bridge.ObserveWait, "") {
				waited += o.Took
			}
			if waited < 29*time.Second {
				t.Errorf("%s a page: waited %s of 30 s", latency, waited)
			}
		})
	}
}

// TestCommitsOnSlowBrokers: batches become large again after a failed commit
// although commits take long.
func TestCommitsOnSlowBrokers(t *testing.T) {
	exactBubble(t, bridgetest.Export{PageSize: 10, Latency: 20 * time.Millisecond}, func(r *harness) {
		r.startFor(time.Second)
		r.topic.SetLatency(1500 * time.Millisecond)
		r.topic.FailNext(bridgetest.Failed)
		r.grow(1, time.Minute)
		n := len(r.values())
		r.grow(20000, time.Minute)
		if got := len(r.values()) - n; got < 4000 {
			t.Errorf("%d events in a minute after a failed commit, want 4,000", got)
		}
	})
}

// TestCommitsAtRest: at the end of the results only the heartbeat commits, ever more
// rarely, even if each poll brings a new cursor: then one commits every 30 s.
func TestCommitsAtRest(t *testing.T) {
	t.Parallel()
	for _, end := range bridgetest.Ends {
		exactlyInBubble(t, bridgetest.Export{PageSize: 10, End: end, Latency: 20 * time.Millisecond}, func(r *harness) {
			r.cfg.PollInterval, r.cfg.PollIntervalMax = time.Second, time.Second
			r.source.Grow(25)
			r.start()
			early, late := 3, 2 // after 30 s and 60 s, and 2 minutes; then every 5 minutes
			if end == bridgetest.EndFreshCursor {
				early, late = 4, 20
			}
			r.after(10 * time.Second)
			for _, period := range []struct {
				of   time.Duration
				want int
			}{{2 * time.Minute, early}, {28 * time.Minute, 0}, {10 * time.Minute, late}} {
				n := len(r.topic.Kept())
				r.after(period.of)
				if got := len(r.topic.Kept()) - n; period.want > 0 && (got < period.want-1 || got > period.want+1) {
					t.Errorf("%s: %d commits in %s, want %d", end, got, period.of, period.want)
				}
			}
			n := len(r.topic.Kept())
			r.grow(25, time.Minute)
			if got := len(r.topic.Kept()) - n; got < 2 {
				t.Errorf("%s: %d commits a minute after more events, want theirs and a heartbeat", end, got)
			}
		})
	}
}

// TestCursorsOnce: an API that takes each cursor only once loses nothing by an
// error or a pause at rest.
func TestCursorsOnce(t *testing.T) {
	t.Parallel()
	unavailable := &bridge.Fault{Class: bridge.Transient, Code: "503", Err: errors.New("unavailable")}
	for name, interrupt := range map[string]func(r *harness, next int){
		"error": func(r *harness, next int) { r.source.FailRequest(next, unavailable) },
		"pause": func(r *harness, _ int) {
			r.ask("p", bridge.KindPause, bridge.Forever)
			r.after(time.Minute)
			r.ask("r", bridge.KindResume, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			atRest(t, func(r *harness) {
				r.after(20 * time.Second) // since the last commit
				n := r.source.Requests()
				interrupt(r, n+1)
				r.after(20 * time.Second)
				asked := r.source.Asked()
				if len(asked) < n+5 {
					t.Fatalf("%d requests after it, want some", len(asked)-n)
				}
				if name == "error" {
					asked = append(asked[:n], asked[n+1:]...) // that one came to nothing
				}
				for i, p := range asked[n-10:] {
					if slices.Contains(asked[:n-10+i], p) {
						t.Errorf("request %d has the cursor of one before it", n-10+i+1)
					}
				}
			})
		})
	}
}

// atRest runs test on a stream that has reached the end of the results, of an API
// that gives a new cursor with each poll, and has just committed.
func atRest(t *testing.T, test func(r *harness)) {
	t.Helper()
	exactlyInBubble(t, bridgetest.Export{PageSize: 10, End: bridgetest.EndFreshCursor, Latency: 20 * time.Millisecond},
		func(r *harness) {
			r.cfg.PollInterval, r.cfg.PollIntervalMax = time.Second, time.Second
			r.follow(25, 5*time.Minute)
			for n := len(r.topic.Kept()); len(r.topic.Kept()) == n; {
				r.after(time.Second)
			}
			test(r)
		})
}

// TestNothingWaitsForABatch: while a batch grows, a command and the end of the
// run commit it.
func TestNothingWaitsForABatch(t *testing.T) {
	exactBubble(t, bridgetest.Export{PageSize: 10, Latency: 90 * time.Millisecond}, func(r *harness) {
		r.grow(1000, time.Hour)
		r.startFor(1100 * time.Millisecond)
		began := time.Now()
		r.ask("p", bridge.KindPause, 0)
		if d := time.Since(began); d > time.Millisecond {
			t.Errorf("a pause took %s", d)
		}
		r.ask("r", bridge.KindResume, 0)
		r.after(100 * time.Millisecond)
		n := len(r.values())
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if got := len(r.values()); got <= n {
			t.Errorf("%d events are committed at the end of the run, %d before it", got, n)
		}
	})
}

// Batches shrink while the sink is slow and grow again when it is quick.
func TestBatchesAdapt(t *testing.T) {
	exactBubble(t, bridgetest.Export{PageSize: 1, Latency: time.Millisecond}, func(r *harness) {
		r.cfg.PrefetchPages = 16
		r.startFor(time.Second)
		largest := func(latency time.Duration) int {
			before := len(r.topic.Kept())
			r.topic.SetLatency(latency)
			r.source.Grow(600)
			for len(r.values()) < len(r.source.Items()) {
				r.after(time.Second)
			}
			kept, most := r.topic.Kept()[before:], 0
			for _, k := range kept[len(kept)/2:] {
				most = max(most, len(k.Records))
			}
			return most
		}
		if n := largest(100 * time.Millisecond); n <= r.cfg.PrefetchPages {
			t.Errorf("%d pages in a quick batch, want more than may be in memory at once", n)
		}
		if n := largest(3 * time.Second); n != 1 {
			t.Errorf("%d pages in a batch of three seconds, want 1", n)
		}
		if n := largest(100 * time.Millisecond); n <= r.cfg.PrefetchPages {
			t.Errorf("%d pages in a batch that is quick again", n)
		}
		r.wantOnce()
	})
}
