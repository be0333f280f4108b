package engine_test

import (
	"errors"
	"fmt"
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
		r.source.Append(fmt.Sprintf(`{"eventId":"x","userId":"u","timestamp":%d,"payload":{}}`, time.Now().AddDate(5, 0, 0).UnixMilli()))
		r.source.Grow(10*pages - 1)
		r.after(time.Hour)
		r.start()
		r.after(time.Second)
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
			return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[%s],"nextCursor":%q}`, items, next)}
		})
		r.start()
		r.after(5 * time.Second)
		if events, commits := len(r.values()), len(r.topic.Kept()); events != pages/2+1 || commits > 15 {
			t.Errorf("%d commits of %d events, want one in 200 ms", commits, events)
		}
	})
}

// TestCommitsAtTheTail: events at the end of the results wait for nothing,
// however the API marks it and however old they are.
func TestCommitsAtTheTail(t *testing.T) {
	t.Parallel()
	const latency = 20 * time.Millisecond
	for _, end := range bridgetest.Ends {
		for _, poll := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
			exactlyInBubble(t, bridgetest.Export{PageSize: 10, End: end, Latency: latency}, func(r *harness) {
				r.cfg.PollInterval, r.cfg.PollIntervalMax = poll, poll
				r.start()
				r.after(time.Minute)
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

// TestCommitsPageByPage: where a page takes longer than a batch grows, none
// waits for the next one, and all the waiting is measured.
func TestCommitsPageByPage(t *testing.T) {
	t.Parallel()
	for _, latency := range []time.Duration{250 * time.Millisecond, 390 * time.Millisecond} {
		exactlyInBubble(t, bridgetest.Export{PageSize: 10, Latency: latency}, func(r *harness) {
			r.source.Grow(5000)
			r.after(time.Hour)
			r.start()
			r.after(30 * time.Second)
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

// TestCommitsAtRest: at the end of the results only the heartbeat commits,
// even if each poll brings a new cursor.
func TestCommitsAtRest(t *testing.T) {
	t.Parallel()
	for _, end := range bridgetest.Ends {
		exactlyInBubble(t, bridgetest.Export{PageSize: 10, End: end, Latency: 20 * time.Millisecond}, func(r *harness) {
			r.cfg.PollInterval, r.cfg.PollIntervalMax = time.Second, time.Second
			r.source.Grow(25)
			r.start()
			r.after(5 * time.Minute)
			n := len(r.topic.Kept())
			r.after(10 * time.Minute)
			if got := len(r.topic.Kept()) - n; got < 19 || got > 21 {
				t.Errorf("%s: %d commits in 10 minutes, want one in 30 s", end, got)
			}
		})
	}
}

// TestCursorsOnce: an API that takes each cursor only once loses nothing by an
// error at rest.
func TestCursorsOnce(t *testing.T) {
	t.Parallel()
	exactlyInBubble(t, bridgetest.Export{PageSize: 10, End: bridgetest.EndFreshCursor, Latency: 20 * time.Millisecond}, func(r *harness) {
		r.cfg.PollInterval, r.cfg.PollIntervalMax = time.Second, time.Second
		r.source.Grow(25)
		r.start()
		r.after(5*time.Minute + 20*time.Second)
		n := r.source.Requests()
		r.source.FailRequest(n+1, &bridge.Fault{Class: bridge.Transient, Code: "503", Err: errors.New("unavailable")})
		r.after(20 * time.Second)
		if asked := r.source.Asked(); len(asked) < n+2 || asked[n+1] != asked[n] {
			t.Errorf("after a failed request: %d requests, want the same cursor once more", len(asked)-n)
		}
		for i, p := range r.source.Asked()[n-10 : n+1] {
			if i > 0 && p == r.source.Asked()[n-10+i-1] {
				t.Errorf("the cursor is not new at rest: the test shows nothing")
			}
		}
	})
}

// TestNothingWaitsForABatch: while a batch grows, a command and the end of the
// run commit it.
func TestNothingWaitsForABatch(t *testing.T) {
	t.Parallel()
	exactlyInBubble(t, bridgetest.Export{PageSize: 10, Latency: 90 * time.Millisecond}, func(r *harness) {
		r.source.Grow(1000)
		r.after(time.Hour)
		r.start()
		r.after(1100 * time.Millisecond)
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
