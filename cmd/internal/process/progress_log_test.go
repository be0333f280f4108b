package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
)

func idleStream(stream string) bridge.Status {
	return bridge.Status{Stream: stream, State: bridge.StateIdle, CaughtUp: true, Published: 2, Rate: 1}
}

// TestProgressDue: a process is logged once a minute while a stream is behind or in
// trouble, when all have come to rest, and every five minutes at rest.
func TestProgressDue(t *testing.T) {
	t.Parallel()
	busy := bridge.Status{Stream: "users", State: bridge.StateRunning}
	failing := bridge.Status{Stream: "users", State: bridge.StateBackoff, CaughtUp: true, Error: "503"}
	full := idleStream("users")
	full.Warnings = []bridge.Warning{{Code: bridge.StuckFullPage}}
	const tick = 10 * time.Second
	var log progressLog
	now := time.Now()
	for i, step := range []struct {
		after time.Duration
		users bridge.Status
		due   bool
	}{
		{0, busy, true},
		{tick, busy, false},
		{workInterval - tick, busy, true},
		{tick, failing, false},
		{workInterval - tick, failing, true},
		{workInterval, full, true},
		{tick, idleStream("users"), true}, // it came to rest
		{tick, idleStream("users"), false},
		{tick, busy, false},
		{tick, idleStream("users"), false}, // it was not logged at work
		{restInterval - 4*tick, idleStream("users"), false},
		{tick, idleStream("users"), true},
		{workInterval, busy, true},
		{tick, idleStream("users"), true},
	} {
		now = now.Add(step.after)
		if got := log.due([]bridge.Status{idleStream("events"), step.users}, now); got != step.due {
			t.Errorf("step %d: due %v, want %v", i, got, step.due)
		}
	}
}

// TestProgressDays: a day of a stream that catches up in an hour, then gets events now and
// then, is some hundred lines.
func TestProgressDays(t *testing.T) {
	t.Parallel()
	var log progressLog
	began, lines := time.Now(), 0
	for after := time.Duration(0); after < 24*time.Hour; after += 10 * time.Second {
		s := idleStream("events")
		if after < time.Hour || after%(20*time.Minute) == 0 {
			s.State, s.CaughtUp = bridge.StateRunning, false
		}
		if log.due([]bridge.Status{s}, began.Add(after)) {
			lines++
		}
	}
	if lines > 500 {
		t.Errorf("%d lines", lines)
	}
}

// TestProgressOfAll: a process with several streams is one line, which names those that
// need a look.
func TestProgressOfAll(t *testing.T) {
	t.Parallel()
	behind := bridge.Status{Stream: "users", State: bridge.StateRunning, Published: 5, Rate: 10,
		Position: time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC), DeadLettered: 1}
	later := behind
	later.Stream, later.Position = "sessions", behind.Position.Add(time.Hour)
	warned := idleStream("orders")
	warned.Warnings = []bridge.Warning{{Code: bridge.StuckFullPage}}
	blocked := bridge.Status{Stream: "audit", State: bridge.StateBlocked, Error: "401"}
	text := func(all ...bridge.Status) string { return strings.Trim(fmt.Sprint(progressOfAll(all)), "[]") }
	for want, all := range map[string][]bridge.Status{
		"streams 2 published 4 rate 2/s caught_up 2": {idleStream("a"), idleStream("b")},
		"streams 5 published 14 rate 22/s blocked 1 caught_up 2 running 2 position 2026-11-20T13:00:00Z behind " +
			"users,sessions warned orders failing audit dead_lettered 2": {
			idleStream("a"), behind, later, warned, blocked,
		},
	} {
		if got := text(all...); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := text(behind); !strings.HasPrefix(got,
		"stream users state running events 0 pages 0 published 5 rate 10/s caught_up false position ") {
		t.Errorf("one stream: %q", got)
	}
	if got := config.SomeOf(strings.Split("abcdefg", ""), ","); got != "a,b,c,d,e and 2 more" {
		t.Errorf("many names: %q", got)
	}
}
