package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
)

// TestAttestTurns: of many streams that are due at once, a few compare at a time, and each gets
// its turn. A stream that ends does not wait for one.
func TestAttestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := make(chan struct{}, attestedAtOnce)
		var all sync.WaitGroup
		var now, most, done atomic.Int32
		for range 100 {
			w := &attestPorts{turns: turns}
			all.Go(func() {
				end, err := w.turn(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				defer end()
				most.Store(max(most.Load(), now.Add(1)))
				bridge.Sleep(t.Context(), time.Second)
				now.Add(-1)
				done.Add(1)
			})
		}
		synctest.Wait()
		if got := now.Load(); got != attestedAtOnce {
			t.Errorf("%d streams compare at once, want %d", got, attestedAtOnce)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := (&attestPorts{turns: turns}).compare(ended, 1, 2, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("a stream that ended: %v", err)
		}
		all.Wait()
		if most.Load() != attestedAtOnce || done.Load() != 100 {
			t.Errorf("%d streams at once, %d done", most.Load(), done.Load())
		}
	})
}

// TestAttestSpread: streams with the same periods are due at different times, soon after each
// other.
func TestAttestSpread(t *testing.T) {
	t.Parallel()
	for _, period := range []time.Duration{time.Minute, time.Hour, 7 * 24 * time.Hour} {
		seconds := make(map[time.Duration]int)
		for i := range 600 {
			spread := spreadOf(fmt.Sprint("stream-", i), period)
			if spread < 0 || spread >= min(attestSpread, period/20) {
				t.Fatalf("%s of %s", spread, period)
			}
			seconds[spread.Truncate(time.Second)]++
		}
		for second, n := range seconds {
			if period > time.Minute && n > 30 { // 10 on average
				t.Errorf("%d of 600 streams are due in second %s of %s", n, second, period)
			}
		}
	}
}
