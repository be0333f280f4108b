package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

func TestBoundedRuns(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limits func(r *harness, items [][]byte) engine.Limits
		events int
		why    string
	}{
		"once": {func(*harness, [][]byte) engine.Limits { return engine.Limits{Once: true} }, 95,
			"drained"},
		"max events, rounded to page": {func(*harness, [][]byte) engine.Limits { return engine.Limits{MaxEvents: 31} }, 40,
			string(bridge.HintMaxEvents)},
		"max events, exact": {func(*harness, [][]byte) engine.Limits { return engine.Limits{MaxEvents: 30} }, 30,
			string(bridge.HintMaxEvents)},
		"more than there is": {func(*harness, [][]byte) engine.Limits { return engine.Limits{Once: true, MaxEvents: 1000} },
			95, "drained"},
		"until": {func(r *harness, items [][]byte) engine.Limits {
			return engine.Limits{Until: timeOf(r, items[42])}
		}, 50, string(bridge.HintUntil)},
	} {
		row(t, name, bridgetest.Export{}, func(r *harness) {
			items := r.source.Grow(95)
			r.cfg.Limits = tc.limits(r, items)
			r.mustRun()
			r.wantEvents(tc.events)
			if why := r.bridge.Status().Ended; !strings.Contains(why, tc.why) {
				r.t.Errorf("ended %q, want %q", why, tc.why)
			}
			// The next run goes on where this one ended.
			r.cfg.Limits = engine.Limits{Once: true}
			r.mustRun()
			r.wantOnce()
		})
	}
}

func timeOf(r *harness, item []byte) int64 {
	r.t.Helper()
	_, rest, _ := strings.Cut(string(item), `"timestamp":`)
	var ms int64
	must.Get(fmt.Sscanf(rest, "%d", &ms))(r.t)
	return ms
}

func TestWindow(t *testing.T) {
	t.Parallel()
	window := func(r *harness, items [][]byte) {
		r.cfg.Origin.Start, r.cfg.Origin.End = timeOf(r, items[10]), timeOf(r, items[60])
	}
	row(t, "ends on its last page, is resumed, and stays done", bridgetest.Export{}, func(r *harness) {
		window(r, r.source.Grow(95))
		r.after(time.Hour)
		r.cfg.Limits.MaxEvents = 20
		r.mustRun()
		r.cfg.Limits = engine.Limits{}
		r.mustRun()
		if why := r.bridge.Status().Ended; !strings.Contains(why, "last page") {
			r.t.Errorf("ended %q", why)
		}
		r.wantEvents(50)
		for _, at := range r.source.Asked() {
			if !at.Window || at.Start != r.cfg.Origin.Start || at.End != r.cfg.Origin.End {
				r.t.Errorf("asked %+v, want the window's bounds with every request", at)
			}
		}
		asked := r.source.Requests()
		r.mustRun()
		if r.source.Requests() != asked || len(r.values()) != 50 {
			r.t.Error("a window that is done was fetched again")
		}
	})
	row(t, "ends after empty pages", bridgetest.Export{End: bridgetest.EndFreshCursor}, func(r *harness) {
		window(r, r.source.Grow(95))
		r.after(time.Hour)
		r.mustRun()
		if why := r.bridge.Status().Ended; !strings.Contains(why, "5 empty pages") {
			r.t.Errorf("ended %q", why)
		}
		r.wantEvents(50)
	})
}

// TestWindowInTheFuture is not over before its end has passed.
func TestWindowInTheFuture(t *testing.T) {
	t.Parallel()
	for _, end := range bridgetest.Ends {
		row(t, string(end), bridgetest.Export{End: end}, func(r *harness) {
			r.cfg.Origin.End = time.Now().Add(10 * time.Minute).UnixMilli()
			r.follow(25, 5*time.Minute)
			r.wantState(bridge.StateIdle, "")
			r.grow(25, 10*time.Minute)
			if why := r.bridge.Status().Ended; !strings.Contains(why, "window ended") {
				r.t.Errorf("ended %q", why)
			}
			r.wantOnce()
		})
	}
}

// The same --until again publishes nothing more.
func TestUntilRepeated(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.Limits.Until = timeOf(r, r.source.Grow(95)[42])
		for range 4 {
			r.mustRun()
		}
		r.wantEvents(50)
	})
}

// A window that was moved is another window.
func TestWindowStartChanged(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		items := r.source.Grow(95)
		r.cfg.Origin.Start, r.cfg.Origin.End = timeOf(r, items[20]), timeOf(r, items[60])
		r.mustRun()
		n := len(r.values())
		r.cfg.Origin.Start = timeOf(r, items[0])
		if err := r.run(); err == nil && len(r.values()) == n {
			t.Errorf("another window is taken for done: 20 events are skipped in silence")
		}
	})
}

// slowDecode is a Source that takes its time to take pages apart.
type slowDecode struct{ *bridgetest.Source }

func (s slowDecode) Decode(p *bridge.Page) error {
	<-time.After(3 * time.Millisecond)
	return s.Source.Decode(p)
}

// stopsAt is an Observer that stops the run at its third wait, while the loop is slow.
type stopsAt struct {
	stop  func()
	waits int
}

func (s *stopsAt) Observe(o bridge.Observation) {
	if o.What != bridge.ObserveWait {
		return
	}
	if s.waits++; s.waits == 3 {
		<-time.After(2 * time.Millisecond)
		s.stop()
		<-time.After(5 * time.Millisecond)
	}
}

// A run that was stopped does not say that it was drained.
func TestOnceSaysDrainedOnShutdown(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) {
		r.source.Grow(1000)
		r.cfg.Limits.Once = true
		_ = r.runWith(engine.Ports{Source: slowDecode{r.source}, Observer: &stopsAt{stop: func() { r.stop() }}})
		if s := r.bridge.Status(); strings.HasPrefix(s.Ended, "drained") || len(r.values()) == 1000 {
			t.Errorf("says %q with %d of 1000 events", s.Ended, len(r.values()))
		}
	})
}
