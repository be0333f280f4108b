package command

import (
	"maps"
	"strings"
	"testing"

	"exportbridge/cmd/internal/cli"
)

// TestWithoutBounds: a command that requires bounds or times is rejected as a wrong
// configuration if the API has none. It creates nothing, and its error names the setting.
func TestWithoutBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runOnce(t)
	noEnd, noStart := map[string]string{"EXPORT_END_PARAM": "none"}, map[string]string{"EXPORT_START_PARAM": "none"}
	undated := map[string]string{"EXPORT_END_INCLUSIVE": "true", "EXPORT_ITEM_TIME": "none"}
	few := map[string]string{"EXPORT_TIME_FORMAT": "s", "EXPORT_ITEM_TIME": "/timestamp,none"}
	window := []string{"--from", "-2h", "--to", "-1h"}
	for _, test := range []struct {
		env  map[string]string
		args []string
		want string // in the error
	}{
		{noEnd, append([]string{"backfill"}, window...), "EXPORT_END_PARAM=none"},
		{noEnd, append([]string{"backfill", "--execute"}, window...), "EXPORT_END_PARAM=none"},
		{noEnd, append([]string{"backfill", "--from", "earliest"}, window[2:]...), "EXPORT_END_PARAM=none"},
		{noEnd, append([]string{"replay", "--execute"}, window...), "EXPORT_END_PARAM=none"},
		{noEnd, append([]string{"verify"}, window...), "EXPORT_END_PARAM=none"},
		{noStart, append([]string{"backfill"}, window...), "EXPORT_START_PARAM=none"},
		{noStart, append([]string{"replay", "--execute"}, window...), "EXPORT_START_PARAM=none"},
		{noStart, append([]string{"verify"}, window...), "EXPORT_START_PARAM=none"},
		{noStart, []string{"cursor", "reset", "--to-datetime", "-1h"}, "EXPORT_START_PARAM=none"},
		{noStart, []string{"cursor", "reset", "--to-latest", "--execute"}, "EXPORT_START_PARAM=none"},
		{undated, append([]string{"backfill"}, window...), "EXPORT_ITEM_TIME"},
		{undated, append([]string{"replay"}, window...), "EXPORT_ITEM_TIME"},
		{undated, append([]string{"verify"}, window...), "EXPORT_ITEM_TIME"},
		{few, append([]string{"backfill"}, window...), "EXPORT_ITEM_TIME"},
		{few, append([]string{"verify"}, window...), "EXPORT_ITEM_TIME"},
	} {
		env := maps.Clone(w.env)
		maps.Copy(env, test.env)
		got := runProgram(t, env, test.args...)
		if got.code != cli.ExitUsage || got.stdout != "" || !strings.Contains(got.stderr, test.want) ||
			!strings.Contains(got.stderr, "\nTry: ") {
			t.Errorf("%v with %v: code %d, %s%s", test.args, test.env, got.code, got.stdout, got.stderr)
		}
	}
	if got := runProgram(t, w.env, "backfill", "list"); got.code != cli.ExitOK ||
		!strings.Contains(got.stdout, "no jobs") {
		t.Errorf("jobs: %+v", got)
	}
	// These go to a commit, or to the first event.
	maps.Copy(w.env, noStart)
	maps.Copy(w.env, noEnd)
	for _, args := range [][]string{{"cursor", "rewind", "--to-datetime", "now"}, {"cursor", "reset", "--to-earliest"}} {
		if got := runProgram(t, w.env, args...); got.code != cli.ExitOK {
			t.Errorf("%v: %+v", args, got)
		}
	}
	// EXPORT_PARAMS has the bounds. It is a secret, so these commands do not read it.
	w.env["EXPORT_PARAMS"], w.env["EXPORT_START"] = "q=at>{start}", "-1d"
	for _, args := range [][]string{
		{"pause"}, {"resume"}, {"cursor", "show"}, {"cursor", "reset", "--to-datetime", "-1h"},
	} {
		if got := runProgram(t, w.env, args...); got.code != cli.ExitOK {
			t.Errorf("%v with bounds in EXPORT_PARAMS: %+v", args, got)
		}
	}
}
