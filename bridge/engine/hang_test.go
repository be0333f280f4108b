package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// TestSourceHangs: a call of the source that does not return ends at its deadline. If
// not even that ends it, the engine is not alive, so that the process is restarted.
func TestSourceHangs(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Minute
	for name, tc := range map[string]struct {
		decode, obeys, waits bool
	}{
		"fetch, ends with its context":        {obeys: true},
		"fetch, ends with nothing":            {},
		"fetch, waits on purpose":             {waits: true},
		"decode, ends with nothing":           {decode: true},
		"fetch, waits on purpose, then obeys": {waits: true, obeys: true},
	} {
		row(t, name, bridgetest.Export{}, func(r *harness) {
			r.source.Grow(25)
			r.cfg.FetchTimeout = timeout
			release := make(chan struct{})
			var hung atomic.Bool
			hang := func(ctx context.Context) {
				if hung.Swap(true) {
					return
				}
				if tc.waits {
					resume := bridge.Waiting(ctx)
					time.Sleep(24 * time.Hour) //nolint:forbidigo // virtual time
					resume()
				}
				ended := ctx.Done()
				if !tc.obeys {
					ended = nil
				}
				select {
				case <-ended:
				case <-release:
				}
			}
			source := &bridgetest.Hanging{Source: r.source, InFetch: hang}
			if tc.decode {
				source.InFetch, source.InDecode = nil, hang
			}
			r.startWith(engine.Ports{Source: source})
			if tc.waits {
				r.after(24*time.Hour - time.Second)
				if !r.bridge.Alive() {
					r.t.Error("not alive while the source waits on purpose")
				}
				r.after(time.Second)
			}
			r.after(timeout - time.Second)
			if s := r.bridge.Status(); s.State == bridge.StateBackoff || !r.bridge.Alive() {
				r.t.Errorf("before the deadline: %s, alive %v", s.State, r.bridge.Alive())
			}
			r.after(2 * time.Minute)
			if r.bridge.Alive() != tc.obeys {
				r.t.Errorf("after the deadline: alive %v", r.bridge.Alive())
			}
			if retries := r.observed(bridge.ObserveRetry, "timeout"); tc.obeys != (len(retries) == 1) {
				r.t.Errorf("%d retries, want one where the call has ended", len(retries))
			}
			close(release)
			r.after(time.Minute)
			if !r.bridge.Alive() {
				r.t.Error("not alive after the call has returned")
			}
			r.wantOnce()
		})
	}
}

// stuckAt is an Observer that stands still at the first commit.
type stuckAt struct {
	once sync.Once
	time.Duration
}

func (s *stuckAt) Observe(o bridge.Observation) {
	if o.What == bridge.ObserveCommit {
		s.once.Do(func() { time.Sleep(s.Duration) }) //nolint:forbidigo // the loop must stand still
	}
}

func TestAlive(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(20)
		r.cfg.Limits.Once = true
		r.startWith(engine.Ports{Observer: &stuckAt{Duration: 2 * time.Minute}})
		for _, step := range []struct {
			name    string
			after   time.Duration
			turning bool
		}{
			{"at work", 50 * time.Second, true},
			{"at work for too long", 20 * time.Second, false},
			{"long after the run has ended", time.Hour, true},
		} {
			r.after(step.after)
			if got := r.bridge.Alive(); got != step.turning {
				t.Errorf("%s: alive %v", step.name, got)
			}
		}
		if err := r.endsWithin(0); err != nil {
			t.Error(err)
		}
	})
}

// blank is a Source that returns nothing, and no error.
type blank struct{ *bridgetest.Source }

func (blank) Fetch(context.Context,
	bridge.Position) (*bridge.Page, error) {
	return nil, nil
} //nolint:nilnil // the mistake

func TestNoPageAndNoError(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.Limits.Once = true
		wantBlocked(t, r.runWith(engine.Ports{Source: blank{r.source}}), bridge.ReasonConfig)
	})
}
