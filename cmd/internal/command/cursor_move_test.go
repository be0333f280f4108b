package command

import (
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
)

// TestRepeatsText: a plan always says how many events come again, or why that is
// not known.
func TestRepeatsText(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)
	entries := control.Plan{From: control.Endpoint{At: at.Add(time.Minute)}, FirstPublished: at}
	for want, r := range map[string]control.Repeats{
		"not known: this cursor is not in the history": {Min: control.Unknown, Max: control.Unknown,
			Pages: control.Unknown, Why: "this cursor is not in the history"},
		"no event is published again":                {},
		"at least 5 events, with the same ce_id":     {Min: 5, Max: control.Unknown, Pages: control.Unknown},
		"at most 1 event, with the same ce_id":       {Max: 1, Pages: control.Unknown},
		"5 to 9 events, with the same ce_id":         {Min: 5, Max: 9, Pages: control.Unknown},
		"1,200 to 2,000 events, with the same ce_id": {Min: 1200, Max: 2000, Pages: control.Unknown},
		"9 events, with the same ce_id":              {Min: 9, Max: 9, Pages: control.Unknown},
		"9 events in 2 pages, with the same ce_id,\n         first published between 2026-11-20 13:00:00Z and " +
			"2026-11-20 13:01:00Z": {Min: 9, Max: 9, Pages: 2},
		"8 events in 2 pages, with the same ce_id": {Min: 8, Max: 8, Pages: 2},
		"at least 7 events":                        {Min: 7, Max: control.Unknown, Pages: control.Unknown},
	} {
		plan := entries
		if r.Min == 8 { // behind a rewind
			plan.FirstPublished = time.Time{}
		}
		plan.OtherIDs, plan.Repeats = r.Min == 7, r
		if got := repeatsText(&plan); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}

// A target that is switched off is no target: --to-latest=false must not skip events.
func TestTargetSwitchedOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runOnce(t)
	for _, flag := range []string{"--to-latest=false", "--to-earliest=false", "--to-current=false"} {
		if got := runProgram(t, w.env, "cursor", "reset", flag, "--execute"); got.code != cli.ExitUsage ||
			!strings.Contains(got.stderr, "a target is required") {
			t.Errorf("reset %s --execute: %+v", flag, got)
		}
	}
}
