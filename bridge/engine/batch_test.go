package engine_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// TestCommitsBehind: a stream that is behind commits a few large batches, and
// no more than that of its fetching is in doubt at a crash.
func TestCommitsBehind(t *testing.T) {
	t.Parallel()
	const pages, latency = 100, 20 * time.Millisecond
	exactlyInBubble(t, bridgetest.Export{PageSize: 10, Latency: latency}, func(r *harness) {
		r.source.Grow(10 * pages)
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

// TestCommitsAtTheTail: events at the end of the results wait for nothing.
func TestCommitsAtTheTail(t *testing.T) {
	t.Parallel()
	const latency = 20 * time.Millisecond
	exactlyInBubble(t, bridgetest.Export{PageSize: 10, Latency: latency}, func(r *harness) {
		r.cfg.PollInterval, r.cfg.PollIntervalMax = 100*time.Millisecond, 100*time.Millisecond
		r.start()
		r.after(time.Second)
		for _, events := range []int{3, 10, 13, 25} { // one page, a full one, with more pages behind it
			n := len(r.values())
			r.source.Grow(events)
			r.after(r.cfg.PollInterval + time.Duration(events/10+2)*latency)
			if got := len(r.values()) - n; got != events {
				t.Errorf("%d of %d events are committed when they could be", got, events)
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
