package process

import (
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
)

// TestDueStatuses: a change is written at the next tick, an unchanged status at each second
// one, and that of a standby never.
func TestDueStatuses(t *testing.T) {
	t.Parallel()
	told, start := make(map[string]*toldStatus), time.Now()
	polled := bridge.Status{Stream: "polled", State: bridge.StateIdle, Dependencies: map[string]bridge.Dependency{}}
	for tick, want := range [][]string{
		{"quiet", "polled", "moving"}, {"polled"}, {"quiet", "moving"}, {"polled"}, {"quiet"}, {"polled", "moving"},
		{"quiet"},
	} {
		quiet := bridge.Status{Stream: "quiet", State: bridge.StateIdle,
			Dependencies: map[string]bridge.Dependency{"redis": {Up: true}}}
		if tick%2 == 1 {
			polled.LastPoll = start.Add(time.Duration(tick))
		}
		moving := bridge.Status{Stream: "moving", State: bridge.StateIdle}
		if tick == 3 || tick == 4 { // it is another process's for two seconds
			moving.State = bridge.StateStandby
		}
		late := time.Duration(tick%3-1) * 100 * time.Millisecond
		due := dueStatuses(told, start.Add(time.Duration(tick)*statusInterval+late), []bridge.Status{quiet, polled, moving})
		var names []string
		for _, s := range due {
			names = append(names, s.Stream)
		}
		if !slices.Equal(names, want) {
			t.Errorf("tick %d writes %q, want %q", tick, names, want)
		}
	}
	for range 2 {
		if dueStatuses(told, start, []bridge.Status{{Stream: "left"}}); len(told) != 1 {
			t.Errorf("%d statuses are known of one stream", len(told))
		}
	}
}
