package main

import (
	"errors"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
)

// A stream that was just moved has no position yet: the hint must not be a time
// of 1970.
func TestRepairWithoutPosition(t *testing.T) {
	t.Parallel()
	moved := bridge.Checkpoint{Version: bridge.CheckpointVersion, Kind: bridge.KindReset, Place: bridge.Place{Epoch: 1}, Cursor: "c"}
	v := &verifier{stream: &config.Stream{Name: "events"}, live: moved}
	v.report.To = 1
	err := v.repairable()
	if err == nil {
		t.Fatal("a window of a stream that was just moved may be repaired")
	}
	exit, _ := errors.AsType[*exitError](err)
	if said := err.Error() + exit.hint; strings.Contains(said, "1970") || !strings.Contains(said, "events was moved") {
		t.Errorf("it says %q, want that the stream was moved", said)
	}
}
