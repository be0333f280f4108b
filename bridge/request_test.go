package bridge_test

import (
	"testing"

	"exportbridge/bridge"
)

// TestResetKeepsTheRewindEnd: a stream that is moved again before a rewind is over
// marks events up to where the first rewind began.
func TestResetKeepsTheRewindEnd(t *testing.T) {
	t.Parallel()
	from := bridge.Checkpoint{Cursor: "c9", Source: bridge.SourceIdentity{Organization: "acme"}}
	cmd := bridge.Command{ID: "r", Kind: bridge.KindReset, Target: bridge.Target{Cursor: "c1"}}
	first := bridge.Reset(from, from.Origin, cmd)
	if end := first.RewindEnd; end == nil || end.CursorHash != bridge.CursorHash("c9") || end.Source != from.Source {
		t.Fatalf("a rewind ends at %+v, want the cursor and source before it", end)
	}
	if again := bridge.Reset(first, from.Origin, cmd); again.RewindEnd == nil || *again.RewindEnd != *first.RewindEnd {
		t.Errorf("a second one ends at %+v, want %+v", again.RewindEnd, first.RewindEnd)
	}
}
