package command

import (
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
)

// TestManyDeadLetters: the state of a stream with many dead letters mentions them.
func TestManyDeadLetters(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		state           bridge.State
		published, dead int64
		says, row       string
	}{
		{bridge.StateIdle, 10_824, 56_821, "caught up, 83 % dead letters",
			"56,821 dead letters since the start, 83 % of the events: exportbridge dlq list"},
		{bridge.StateIdle, 0, 1, "caught up, 100 % dead letters", "100 % of the events"},
		{bridge.StateIdle, 1, 99_999, "caught up, 99 % dead letters", "99 % of the events"},
		{bridge.StateIdle, 1_000, 1, "caught up", "1 dead letters since the start, < 1 % of the events"},
		{bridge.StateIdle, 1_000, 0, "caught up", ""},
		{bridge.StateIdle, 0, 0, "caught up, no event so far", ""},
		{bridge.StateRunning, 50, 50, "running, 50 % dead letters", "50 % of the events"},
	} {
		live := &bridge.Status{State: test.state, Published: test.published, DeadLettered: test.dead}
		if got := describeState(live, time.Now()); got != test.says {
			t.Errorf("%d of %d: %q, want %q", test.dead, test.published, got, test.says)
		}
		row := ""
		s := streamStatus{Report: control.Report{Live: live}}
		for _, r := range s.rows(time.Now()) {
			if r[0] == "dead" {
				row = r[1]
			}
		}
		if !strings.Contains(row, test.row) || (row == "") != (test.row == "") {
			t.Errorf("%d of %d: %q, want %q", test.dead, test.published, row, test.row)
		}
	}
}

// The text has a rate if the stream publishes events, or is expected to.
func TestDescribeRate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		state    bridge.State
		rate     float64
		caughtUp bool
		want     bool
	}{
		{bridge.StateRunning, 120, false, true}, {bridge.StateRunning, 0, false, true},
		{bridge.StateRunning, 0.2, true, false},
		{bridge.StateIdle, 50, true, true}, {bridge.StateIdle, 0.2, true, false}, {bridge.StatePaused, 0, false, false},
		{bridge.StateStandby, 0, false, false},
	} {
		s := &bridge.Status{State: test.state, Rate: test.rate, CaughtUp: test.caughtUp, PausedUntil: bridge.Forever}
		if got := describeStatus(s, time.Now()); strings.Contains(got, "/s") != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
