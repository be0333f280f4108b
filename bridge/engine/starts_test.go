package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestStartsInTurn: of many streams, a few begin their sessions at a time.
func TestStartsInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const streams, takes = 100, 50 * time.Millisecond
		s, began := NewStarts(), time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex // guards now, most
		var now, most int
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		for range streams {
			all.Go(func() {
				end, err := s.begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				count(1)
				bridge.Sleep(t.Context(), takes)
				count(-1)
				end()
			})
		}
		all.Wait()
		if most != mostStarts || time.Since(began) != 7*takes {
			t.Errorf("%d begin at a time, all have after %s", most, time.Since(began))
		}
	})
}

// TestSlowStartHoldsNobodyUp: sessions that hang let others begin, and end as those do.
func TestSlowStartHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := NewStarts(), time.Now()
		var hanging []func()
		for range 2 * mostStarts {
			end := must.Get(s.begin(t.Context()))(t)
			hanging = append(hanging, end)
		}
		if waited := time.Since(began); waited != slowStart {
			t.Errorf("the next ones waited %s for sessions that hang", waited)
		}
		for _, end := range hanging {
			end()
		}
		if n := len(s.slots); n > 0 {
			t.Errorf("%d sessions count after all have ended", n)
		}
	})
}

// TestStartEndsWithTheRun: a stream that waits for its turn asks the sink nothing, and ends
// with its run.
func TestStartEndsWithTheRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newSession(&Engine{cfg: Config{Mode: bridge.AtLeastOnce, Starts: &Starts{make(chan struct{})}}})
	if _, err := s.ask(ctx, nil); !errors.Is(err, context.Canceled) || s.open {
		t.Errorf("a wait that was cancelled ended with %v, session open: %v", err, s.open)
	}
}
