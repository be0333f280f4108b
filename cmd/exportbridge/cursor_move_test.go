package main

import (
	"testing"

	"exportbridge/bridge"
)

// A reset to a time that the stream has not come to says what it skips.
func TestResetAheadIsSaid(t *testing.T) {
	t.Parallel()
	now := bridge.Checkpoint{Version: 1, PositionTime: 5000, Origin: bridge.Origin{Start: 1000}}
	for at, notes := range map[int64]int{4000: 0, 5000: 0, 6000: 1} {
		plan, err := resetToTime(at)(t.Context(), nil, now)
		if err != nil || len(plan.Notes) != notes {
			t.Errorf("to %d: notes %q, %v", at, plan.Notes, err)
		}
	}
	if plan, _ := resetToTime(6000)(t.Context(), nil, bridge.Checkpoint{}); len(plan.Notes) > 0 {
		t.Errorf("a stream that has not begun: notes %q", plan.Notes)
	}
}
