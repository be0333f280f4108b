package command

import (
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
	"exportbridge/cmd/internal/cli"
)

// TestEntryNote: the note names the change that made an entry, and marks another branch.
func TestEntryNote(t *testing.T) {
	t.Parallel()
	rewind := &bridge.Change{Kind: bridge.KindRewind, Who: "ann", Reason: "bad deploy", From: bridge.Version{Seq: 9}}
	for want, c := range map[string]struct {
		kind  bridge.Kind
		seq   int64
		other bool
	}{
		"": {bridge.KindData, 4, false}, "other branch": {bridge.KindData, 4, true},
		"other branch; start":                              {bridge.KindStart, 4, true},
		"rewind from 0.9 by ann: bad deploy":               {bridge.KindReset, 0, false},
		"other branch; rewind from 0.9 by ann: bad deploy": {bridge.KindReset, 0, true},
	} {
		e := control.HistoryEntry{OtherBranch: c.other}
		e.Kind, e.Seq, e.Change = c.kind, c.seq, rewind
		if got := entryNote(&e); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

// A commit by another process than the live one shows a second bridge only if no command made it
// and the live process does not know it.
func TestShowTwoBridges(t *testing.T) {
	t.Parallel()
	known, newer := bridge.Version{Epoch: 1, Seq: 5}, bridge.Version{Epoch: 1, Seq: 6}
	for _, test := range []struct {
		name  string
		kind  bridge.Kind
		at    bridge.Version
		shown bool
	}{
		{"a pause without a bridge", bridge.KindPause, bridge.Version{Epoch: 2}, false},
		{"a resume without a bridge", bridge.KindResume, bridge.Version{Epoch: 2}, false},
		{"a take-over", bridge.KindData, known, false},
		{"a second bridge", bridge.KindData, newer, true},
	} {
		live := &bridge.Status{Stream: "events", Owner: "bridge-0", State: bridge.StateRunning, Leader: true, Version: known}
		at := &control.Position{Checkpoint: bridge.Checkpoint{Format: 1, Stream: "events", Kind: test.kind,
			Version: test.at, Owner: "host-4711"}}
		var out strings.Builder
		a := &cli.App{Stdio: cli.Stdio{Stdout: &out}}
		must.Do(t, showCursor(a, at, live, false))
		if strings.Contains(out.String(), "two bridges") != test.shown {
			t.Errorf("%s:\n%s", test.name, &out)
		}
	}
}
