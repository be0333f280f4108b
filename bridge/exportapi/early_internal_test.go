package exportapi

import (
	"errors"
	"testing"

	"exportbridge/bridge"
)

// TestThrottledEarlyRequests: an API that asks for less while requests leave
// early is tried with them less and less; for others it is a new beginning.
func TestThrottledEarlyRequests(t *testing.T) {
	t.Parallel()
	c := &Client{earlyThreshold: earlyAfter}
	step := func(early int32, class bridge.Class, want int32) {
		t.Helper()
		c.early.Store(early)
		c.slowDown(&bridge.Fault{Class: class, Err: errors.New("x")})
		if c.earlyThreshold != want || c.early.Load() != 0 {
			t.Errorf("wants %d pages and counts from %d, want %d and 0", c.earlyThreshold, c.early.Load(), want)
		}
	}
	step(1, bridge.Throttled, 2)
	step(2, bridge.Transient, 2)
	step(2, bridge.Throttled, 8)
	step(7, bridge.Throttled, 8)
	step(8, bridge.Throttled, 32)
	for range 20 {
		c.early.Store(c.earlyThreshold)
		c.slowDown(&bridge.Fault{Class: bridge.Throttled, Err: errors.New("x")})
	}
	if c.earlyThreshold != maxEarlyThreshold {
		t.Errorf("wants %d pages in the end, want %d", c.earlyThreshold, maxEarlyThreshold)
	}
}
