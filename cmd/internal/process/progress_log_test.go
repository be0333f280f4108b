package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
)

// TestProgressLines: streams at rest are logged when they come to rest, then once in
// five minutes in one line; others every time.
func TestProgressLines(t *testing.T) {
	t.Parallel()
	idle := func(stream string) bridge.Status {
		return bridge.Status{Stream: stream, State: bridge.StateIdle, CaughtUp: true, Published: 2}
	}
	busy := bridge.Status{Stream: "users", State: bridge.StateRunning}
	failing := bridge.Status{Stream: "users", State: bridge.StateBackoff, CaughtUp: true, Error: "503"}
	full := idle("users")
	full.Warnings = []bridge.Warning{{Code: bridge.StuckFullPage}}
	var log progressLog
	now := time.Now()
	for i, step := range []struct {
		after time.Duration
		all   []bridge.Status
		want  []string
	}{
		{0, []bridge.Status{idle("events"), busy}, []string{"stream events", "stream users"}},
		{10 * time.Second, []bridge.Status{idle("events"), busy}, []string{"stream users"}},
		{10 * time.Second, []bridge.Status{idle("events"), failing}, []string{"stream users"}},
		{10 * time.Second, []bridge.Status{idle("events"), full}, []string{"stream users"}},
		{10 * time.Second, []bridge.Status{idle("events"), idle("users")}, []string{"stream users"}},
		{10 * time.Second, []bridge.Status{idle("events"), idle("users")}, nil},
		{restInterval, []bridge.Status{idle("events"), idle("users")}, []string{"published 4 caught_up events,users"}},
		{restInterval - time.Second, []bridge.Status{idle("events"), idle("users")}, nil},
		{time.Second, []bridge.Status{idle("events"), busy}, []string{"stream users", "stream events"}},
	} {
		now = now.Add(step.after)
		var got []string
		for _, fields := range log.lines(step.all, now) {
			got = append(got, strings.Trim(fmt.Sprint(fields[:min(4, len(fields))]), "[]"))
		}
		for i := range got {
			if name, _, cut := strings.Cut(got[i], " state"); cut {
				got[i] = name
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}
