package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
)

// The lines of a status do not contradict each other. They predict nothing while the stream
// does not run.
func TestStatusRows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)
	version := bridge.Version{Epoch: 1, Seq: 5}
	live := func(state bridge.State, behind time.Duration) *bridge.Status {
		return &bridge.Status{
			Stream: "events", Owner: "one", State: state, Since: now.Add(-time.Hour), Leader: true, Mode: bridge.ExactlyOnce,
			Version: version, CaughtUp: state == bridge.StateIdle,
			Position: now.Add(-behind), Rate: 120, Pace: 3, Published: 1234,
		}
	}
	committed := func(behind time.Duration) *bridge.Checkpoint {
		return &bridge.Checkpoint{
			Format: 1, Stream: "events", Version: version, Cursor: "c", Events: 99,
			PositionTime: now.Add(-behind).UnixMilli(), WrittenAt: now.UnixMilli(),
		}
	}
	moved, fresh, drained, paused := committed(time.Hour), committed(0), committed(time.Hour), committed(time.Minute)
	done, doubtful, ahead := committed(time.Hour), committed(time.Hour), committed(0)
	done.Drained, done.Origin.End = true, now.UnixMilli()
	doubtful.Drained, doubtful.Origin.End, doubtful.EndedEmpty = true, now.UnixMilli(), 5
	ahead.WrittenAt = now.Add(time.Minute).UnixMilli()
	moved.Epoch++
	fresh.Cursor, fresh.PositionTime = "", 0
	drained.Drained = true
	paused.PausedUntil, paused.Seq = bridge.Forever, 6
	resting, stuck := live(bridge.StateIdle, 0), live(bridge.StateRunning, 5*time.Minute)
	resting.Rate, stuck.Rate, stuck.Pace = 0.1, 0, 0
	expiring := live(bridge.StatePaused, time.Minute)
	expiring.Version.Seq, expiring.PausedUntil = 6, now.Add(time.Minute).UnixMilli()
	fitting, differing, odd := live(bridge.StateIdle, 0), live(bridge.StateIdle, 0), live(bridge.StateIdle, 0)
	fitting.Schema = &bridge.SchemaCheck{Unchecked: []string{"rare"}}
	odd.Schema = &bridge.SchemaCheck{Mismatches: 1}
	differing.Schema = &bridge.SchemaCheck{Mismatches: 1234, Differences: []bridge.Difference{{Pointer: "/a", Text: "is missing"}}}
	for name, test := range map[string]struct {
		live       *bridge.Status
		checkpoint *bridge.Checkpoint
		want       map[string]string // "" is no such line
	}{
		"running": {live(bridge.StateRunning, 5*time.Minute), committed(5 * time.Minute), map[string]string{
			"state": "behind 5m0s, for 1h0m (by one)", "position": "2026-11-20 12:55:00Z, 5m0s behind",
			"speed":     "120 events/s over the last 10 s, caught up in about 2m30s (3x real time)",
			"committed": "entry 1.5, page 0, 99 events up to the cursor, 0s ago",
			"published": "1,234 events by this owner since its start",
		}},
		"committed since the report": {live(bridge.StateRunning, 6*time.Minute), committed(5 * time.Minute),
			map[string]string{
				"state": "behind 5m0s, for 1h0m (by one)", "position": "2026-11-20 12:55:00Z, 5m0s behind",
			}},
		"paused for a time": {expiring, paused,
			map[string]string{"state": "paused 1h0m ago until 2026-11-20 13:01:00Z (1m0s left) (by one)"}},
		"caught up, the last page was empty": {live(bridge.StateIdle, 0), committed(5 * time.Minute), map[string]string{
			"state": "caught up, for 1h0m (by one)", "position": "2026-11-20 13:00:00Z, at the end of the export",
			"speed": "120 events/s over the last 10 s",
		}},
		"at rest": {resting, committed(5 * time.Minute),
			map[string]string{"state": "caught up, for 1h0m (by one)", "speed": ""}},
		"behind and stuck": {stuck, committed(5 * time.Minute),
			map[string]string{"state": "behind 5m0s, for 1h0m (by one)", "speed": "0 events/s over the last 10 s"}},
		"just moved": {live(bridge.StateIdle, 0), moved, map[string]string{"state": "running (by one)",
			"position": "2026-11-20 12:00:00Z, 1h0m behind"}},
		"Kafka is away": {live(bridge.StateBackoff, time.Hour), drained, map[string]string{
			"position": "2026-11-20 12:00:00Z, 1h0m behind", "speed": "",
		}},
		"just paused": {live(bridge.StateRunning, time.Minute), paused,
			map[string]string{"state": "paused (by one); to go on: exportbridge resume", "speed": ""}},
		"not running": {nil, drained,
			map[string]string{"position": "2026-11-20 12:00:00Z, 1h0m ago, at the end of what was read", "speed": "",
				"published": ""}},
		"ended": {nil, done, map[string]string{"state": "ended: the window ended"}},
		"the owner's clock is ahead": {nil, ahead,
			map[string]string{"committed": "entry 1.5, page 0, 99 events up to the cursor, 0s ago"}},
		"ended, as far as read": {nil, doubtful, map[string]string{
			"state": "ended: the window ended after 5 empty pages in a row: more events may follow",
		}},
		"events fit their schema": {fitting, drained, map[string]string{
			"schema": "no event differs from EVENT_SCHEMA since the start; not compared: topic rare", "differs": "",
		}},
		"events differ from their schema": {differing, drained, map[string]string{
			"schema": "1,234 events differ from EVENT_SCHEMA since the start", "differs": "/a is missing",
		}},
		"an event differs from its schema": {odd, drained, map[string]string{
			"schema": "1 event differs from EVENT_SCHEMA since the start",
		}},
		"nothing is read yet": {nil, fresh, map[string]string{"position": "the start of the export: the earliest event"}},
	} {
		report := control.NewReport("events", bridge.ExactlyOnce)
		report.Live, report.Checkpoint, report.MembersKnown = test.live, control.Mask(test.checkpoint), true
		report.Measure(now)
		s := streamStatus{Report: report}
		got := make(map[string]string)
		for _, row := range s.rows(now) {
			got[row[0]] = row[1]
		}
		for line, want := range test.want {
			if got[line] != want {
				t.Errorf("%s: %s is %q, want %q", name, line, got[line], want)
			}
		}
	}
}

// A status names Redis as the cause if Redis does not answer, or rejects writes.
func TestStatusOfAnOwnerWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		unreachable string
		full        bool
		want        string
	}{
		{bridge.DependencyStore, false, "running; what it does is unknown, since Redis does not answer"},
		{"", false, "running, but this Redis has no status of it: "},
		{"", true, "running; what it does is unknown, since Redis is at its maxmemory"},
	} {
		report := control.NewReport("events", bridge.ExactlyOnce)
		report.Members, report.MembersKnown = []bridge.Member{{Owner: true}}, true
		report.Unreachable = []string{test.unreachable}
		s := streamStatus{Report: report, redisFull: test.full}
		if got := s.rows(time.Now())[1][1]; !strings.HasPrefix(got, test.want) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

// TestPausedUnseen: without a status in Redis the members of the group say whether the
// bridge of a paused stream runs.
func TestPausedUnseen(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known   bool
		members []bridge.Member
		want    string
	}{
		"nobody":  {true, nil, "paused, not running; to go on: exportbridge resume"},
		"one":     {true, []bridge.Member{{ClientID: "one", Owner: true}}, "paused; to go on: exportbridge resume"},
		"unknown": {false, nil, "paused; to go on: exportbridge resume"},
	} {
		s := streamStatus{Report: control.NewReport("events", bridge.ExactlyOnce)}
		s.Checkpoint = control.Mask(&bridge.Checkpoint{Kind: bridge.KindPause, PausedUntil: bridge.Forever})
		s.MembersKnown, s.Members = test.known, test.members
		if got := s.stateText(time.Now()); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// BLOCKED is coloured only on a terminal, and without NO_COLOR.
func TestStatusColour(t *testing.T) {
	t.Parallel()
	blocked := streamStatus{Report: control.NewReport("BLOCKED", bridge.ExactlyOnce)}
	blocked.Live = &bridge.Status{State: bridge.StateBlocked, Reason: bridge.ReasonAuth}
	for _, test := range []struct {
		columns int
		environ string
		want    string
	}{{0, "A=b", " BLOCKED (auth)"}, {80, "NO_COLOR=1", " BLOCKED (auth)"},
		{80, "A=b", " \x1b[1;31mBLOCKED\x1b[0m (auth)"}} {
		var out bytes.Buffer
		a := &cli.App{Stdio: cli.Stdio{Stdout: &out, Columns: test.columns}, Environ: []string{test.environ}}
		must.Do(t, printStatus(a, []streamStatus{blocked}, false, false))
		if !strings.Contains(out.String(), test.want) || strings.Count(out.String(), "\x1b") > 2 ||
			!strings.Contains(out.String(), "  stream     BLOCKED\n") {
			t.Errorf("%+v: %q", test, out.String())
		}
	}
}

// A status without the part of a server is an error. An interrupted --watch is no error,
// whether servers answer or not, nor is the resume of a stream that is not paused.
func TestStatusWithoutServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runOnce(t)
	if got := runProgram(t, w.env, "resume"); got.code != cli.ExitOK || got.stdout != "  stream events is not paused\n" {
		t.Errorf("resume: %+v", got)
	}
	if got := runProgram(t, w.env, "resume", "--json"); got.code != cli.ExitOK ||
		!strings.Contains(got.stdout, `"applied": false`) {
		t.Errorf("resume --json: %+v", got)
	}
	if got := runProgram(t, w.env, "status"); got.code != cli.ExitOK || got.stderr != "" {
		t.Errorf("all servers answer: %+v", got)
	}
	succeed(t, w.env, "cursor", "rewind", "--to-entry", "0.0", "--execute")
	for _, args := range []string{"status", "cursor history", "cursor list --wide"} {
		if got := runProgram(t, w.env, strings.Fields(args)...); !strings.Contains(got.stdout, "rewind") ||
			strings.Contains(got.stdout, "reset") {
			t.Errorf("%s after a rewind: %+v", args, got)
		}
	}
	w.env["REDIS_TIMEOUT"] = "1s"
	for variable, address := range map[string]string{"KAFKA_BROKERS": servers.FreeAddress(t), "REDIS_URL": "redis://" +
		servers.FreeAddress(t)} {
		before := w.env[variable]
		w.env[variable] = address
		name := map[string]string{"KAFKA_BROKERS": "kafka", "REDIS_URL": "redis"}[variable]
		got := runProgram(t, w.env, "status", "--json")
		if got.code != cli.ExitFailed || !strings.Contains(got.stdout, `"unreachable": [`) ||
			!strings.Contains(got.stderr, "no answer from "+name) {
			t.Errorf("without %s: %+v", name, got)
		}
		ctx, interrupt := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { interrupt(errors.New("Ctrl-C")) })
		if got := runOn(ctx, cli.Stdio{}, w.env, "status", "--watch"); got.code != cli.ExitOK || got.stderr != "" {
			t.Errorf("an interrupted watch without %s: %+v", name, got)
		}
		w.env[variable] = before
	}
}

// frames is an output that calls end at its third line.
type frames struct {
	lines int
	end   func()
}

func (f *frames) Write(p []byte) (int, error) {
	if f.lines += strings.Count(string(p), "\n"); f.lines >= 3 {
		f.end()
	}
	return len(p), nil
}

// TestWatchWarnsOnce: a watch prints a warning about the settings once.
func TestWatchWarnsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["KAFKA_BROKER"] = "misspelt"
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	got := runOn(ctx, cli.Stdio{Stdout: &frames{end: interrupt}}, w.env, "status", "--watch", "--json")
	if got.code != cli.ExitOK || strings.Count(got.stderr, "warning: ") != 1 {
		t.Errorf("%+v, want one warning", got)
	}
}

// scene is an output that calls act for each write.
type scene func(text string)

func (s scene) Write(p []byte) (int, error) {
	s(string(p))
	return len(p), nil
}

// TestWatchOfBrokenSettings: a watch goes on while the file of BRIDGE_CONFIG is half written,
// and says so.
func TestWatchOfBrokenSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["BRIDGE_CONFIG"] = filepath.Join(t.TempDir(), "streams.yaml")
	write := func(text string) { must.Do(t, os.WriteFile(w.env["BRIDGE_CONFIG"], []byte(text), 0o600)) }
	const whole, half = "streams:\n  events: {}\n", "streams:\n  events: {EXPORT_PAGE"
	write(whole)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var frames int
	var said string
	std := cli.Stdio{
		Stdout: scene(func(text string) {
			if frames += strings.Count(text, "\n"); frames > 1 {
				interrupt()
			}
			write(half)
		}),
		Stderr: scene(func(text string) {
			said += text
			write(whole)
		}),
	}
	got := runOn(ctx, std, w.env, "status", "--watch", "--json")
	if got.code != cli.ExitOK || frames != 2 || !strings.HasPrefix(said, "status not updated: ") ||
		!strings.Contains(said, "streams.yaml") {
		t.Errorf("exit code %d, %d frames, said %q", got.code, frames, said)
	}
	// A watch that never showed anything has wrong settings.
	write(half)
	if got := runProgram(t, w.env, "status", "--watch"); got.code != cli.ExitUsage {
		t.Errorf("wrong from the start: %+v", got)
	}
}

// TestJSONHidesTheCursor: JSON has only the hash of the cursor, since it goes to logs and
// tickets.
func TestJSONHidesTheCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_PAGE_SIZE"] = "2"
	w.runOnce(t)
	if got := runProgram(t, w.env, "cursor", "reset", "--to-current",
		"--execute"); got.code != cli.ExitOK { // the history has every change
		t.Fatalf("reset: %+v", got)
	}
	cursor := strings.TrimSpace(runProgram(t, w.env, "cursor", "show", "--raw").stdout)
	if cursor == "" {
		t.Fatal("there is no cursor to hide")
	}
	for _, args := range []string{"status", "cursor show", "cursor list", "cursor history"} {
		got := runProgram(t, w.env, append(strings.Fields(args), "--json")...)
		if got.code != cli.ExitOK || !strings.Contains(got.stdout, `"cursor_hash": "`+bridge.CursorHash(cursor)) {
			t.Errorf("%s --json lacks the hash of the cursor: %+v", args, got)
		}
		for _, secret := range []string{cursor, `"cursor":`, `"tail":`} {
			if strings.Contains(got.stdout, secret) {
				t.Errorf("%s --json shows %s: %s", args, secret, got.stdout)
			}
		}
	}
}

// TestStatusOfTwoGroups: a process outside the group reports that it runs the stream.
func TestStatusOfTwoGroups(t *testing.T) {
	t.Parallel()
	s := streamStatus{Report: control.Report{
		Live:    &bridge.Status{Owner: "two", Leader: true},
		Members: []bridge.Member{{Process: "one", Host: "10.0.0.1", Owner: true}},
	}}
	if got := s.membersText(); !strings.Contains(got,
		"one at 10.0.0.1 is the owner in its group, but two reports from outside: ") ||
		!strings.Contains(got, "BRIDGE_GROUP") {
		t.Errorf("%q", got)
	}
	for _, owner := range []string{"one", "three"} { // three is a standby that has not yet given the stream up
		s.Live.Owner = owner
		s.Members = append(s.Members[:1], bridge.Member{Process: "three", Host: "10.0.0.3"})
		if got := s.membersText(); got != "one at 10.0.0.1 is the owner; three at 10.0.0.3 is standby" {
			t.Errorf("%s: %q", owner, got)
		}
	}
}

// A stream that hardly catches up has no estimate, and a long one does not overflow.
func TestSpeedText(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const rate = "50 events/s over the last 10 s"
	for _, test := range []struct {
		pace   float64
		behind time.Duration
		want   string
	}{
		{1.0001, 30 * 24 * time.Hour, rate + ", too slow to catch up"},
		{1.00004, 500 * time.Millisecond, rate},
		{2, 30 * time.Second, rate + ", caught up in about 30s (2x real time)"},
		{61, time.Hour, rate + ", caught up in about 1m0s (61x real time)"},
		{1.01, 250 * 365 * 24 * time.Hour, rate + ", caught up in about 106751d (1x real time)"},
	} {
		s := streamStatus{Report: control.NewReport("events", bridge.ExactlyOnce)}
		s.Live = &bridge.Status{State: bridge.StateRunning, Rate: 50, Pace: test.pace, Position: now.Add(-test.behind)}
		s.Checkpoint = control.Mask(&bridge.Checkpoint{Format: 1})
		s.Measure(now)
		if got := s.speedText(now); got != test.want {
			t.Errorf("%v behind at %v: %q, want %q", test.behind, test.pace, got, test.want)
		}
	}
}
