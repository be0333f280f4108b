package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

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
