package main

import (
	"errors"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/reconcile"
)

// TestVerifyErrors: each refusal has an exit code and a hint. A stream that was
// just moved has no position yet: its hint must not be a time of 1970.
func TestVerifyErrors(t *testing.T) {
	t.Parallel()
	for why, code := range map[reconcile.Reason]int{
		reconcile.NeverRan: exitUsage, reconcile.PositionUnknown: exitUsage, reconcile.NotPassed: exitUsage, reconcile.OtherOrigin: exitUsage,
		reconcile.BackfillOpen: exitFailed, reconcile.StreamPaused: exitFailed, reconcile.NotRunning: exitFailed, reconcile.NotAtEnd: exitFailed,
		reconcile.Moved: exitFailed, reconcile.UnknownMark: exitFailed, reconcile.CursorCycle: exitFailed,
	} {
		refused := &reconcile.RefusedError{Reason: why, Backfill: "k3xq7a"}
		if why == reconcile.NotPassed {
			refused.Position = firstEvent.UnixMilli()
		}
		exit, ok := errors.AsType[*exitError](verifyError(refused))
		if !ok || exit.code != code || exit.hint == "" || strings.Contains(exit.hint, "1970") || strings.Contains(exit.hint, "%") {
			t.Errorf("%s: %+v, want code %d and a hint", why, exit, code)
		}
	}
	if exit, ok := errors.AsType[*exitError](verifyError(bridge.ErrFenced)); !ok || exit.code != exitNotOwner {
		t.Errorf("fenced: %+v", exit)
	}
}
