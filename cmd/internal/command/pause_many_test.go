package command

import (
	"encoding/json"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/cli"
)

// One command pauses or resumes many streams: first it prints a plan; with --execute, it
// changes each stream and names those that failed.
func TestPauseMany(t *testing.T) {
	t.Parallel()
	w := fourStreams(t)
	run := func(code int, args string) result {
		t.Helper()
		got := runProgram(t, w.env, strings.Fields(args)...)
		if got.code != code {
			t.Fatalf("%s: %+v, want exit code %d", args, got, code)
		}
		return got
	}
	paused := func(want string) {
		t.Helper()
		names := ""
		var all []struct {
			Stream     string
			Checkpoint struct {
				PausedUntil int64 `json:"paused_until"`
			}
		}
		must.Do(t, json.Unmarshal([]byte(run(cli.ExitOK, "status --json").stdout), &all))
		for _, s := range all {
			if s.Checkpoint.PausedUntil != 0 {
				names += s.Stream
			}
		}
		if names != want {
			t.Errorf("%q are paused, want %q", names, want)
		}
	}
	for _, args := range []string{"pause --all", "pause --all --dry-run --json"} {
		if got := run(cli.ExitOK, args); strings.Count(got.stdout, "not running") == 0 {
			t.Errorf("%s: %s", args, got.stdout)
		}
	}
	paused("")
	got := run(cli.ExitOK, "pause --match [ab] --reason why --execute")
	if !strings.Contains(got.stdout, "  a: paused, acknowledged by ") ||
		!strings.HasSuffix(got.stdout, "  2 of 2 streams paused\n") {
		t.Errorf("%s", got.stdout)
	}
	paused("ab")
	w.env["BRIDGE_STREAMS"] += ",e" // it has no checkpoint
	w.env["STREAM_E_EXPORT_RESOURCE"] = "events"
	got = run(cli.ExitFailed, "pause --all --execute")
	if !strings.Contains(got.stderr, "error: 1 stream of 5 not paused: e\n") || !strings.Contains(got.stderr, "  e: ") ||
		!strings.Contains(got.stdout, "  4 of 5 streams paused\n") {
		t.Errorf("%+v", got)
	}
	w.env["BRIDGE_STREAMS"] = "a,b,c,d"
	paused("abcd")
	run(cli.ExitOK, "resume --stream d")
	if got = run(cli.ExitOK, "resume --all --execute"); !strings.HasSuffix(got.stdout,
		"  3 of 4 streams resumed, 1 not paused\n") {
		t.Errorf("%s", got.stdout)
	}
	paused("")
	var results []pauseReport
	if err := json.Unmarshal([]byte(run(cli.ExitOK, "pause --match ? --execute --json").stdout), &results); err != nil ||
		len(results) != 4 || results[3].Stream != "d" || results[3].PausedUntil != -1 || !results[3].Answer.Applied {
		t.Errorf("%v %+v", err, results)
	}
	paused("abcd")
	var one pauseReport
	if err := json.Unmarshal([]byte(run(cli.ExitOK, "pause --stream a --json").stdout), &one); err != nil ||
		one.Stream != "a" || one.PausedUntil != -1 || !one.Answer.Applied {
		t.Errorf("%v %+v", err, one)
	}
}

// TestPlanOfPauseWithoutRedis: a plan without the state of a stream is an error in each form.
func TestPlanOfPauseWithoutRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.redis.Close()
	w.env["REDIS_TIMEOUT"] = "1s"
	for _, args := range []string{"pause --all", "pause --all --json"} {
		if got := runProgram(t, w.env, strings.Fields(args)...); got.code != cli.ExitFailed ||
			!strings.Contains(got.stderr, "no answer from redis") {
			t.Errorf("%s: %+v, want an error that names Redis", args, got)
		}
	}
}

// Wrong calls change nothing.
func TestPauseManyWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for args, want := range map[string]string{
		"pause --all --stream events":   "mutually exclusive",
		"pause --all --match x":         "mutually exclusive",
		"pause --match [ --execute":     "syntax error in pattern",
		"pause --match users --execute": `no stream matches "users"`,
		"pause --dry-run":               "--execute and --dry-run require --all or --match",
		"resume --execute":              "--execute and --dry-run require --all or --match",
	} {
		if got := runProgram(t, w.env, strings.Fields(args)...); got.code != cli.ExitUsage ||
			!strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v, want %q", args, got, want)
		}
	}
}

// The hint of a wrong call is a right call: it has no second flag that selects streams.
func TestHintOfPauseOfMany(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"pause", "--stream", "events", "--all"}, {"resume", "--stream", "events", "--match", "e*"},
	} {
		got := runProgram(t, nil, args...)
		_, hint, ok := strings.Cut(got.stderr, "Try: ")
		if !ok || strings.Contains(hint, "--stream") && strings.Contains(hint, "--match") {
			t.Errorf("%v: the hint %q has two flags that are mutually exclusive", args, hint)
		}
	}
}
