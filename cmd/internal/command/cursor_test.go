package command

import (
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
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
