package control_test

import (
	"errors"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
)

// A reset of a stream with an end keeps its start, or is rejected: another start would block the
// stream.
func TestResetOfABoundedStream(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		origin := &r.engine.Origin
		origin.Start, origin.End = 1_000, time.Now().Add(time.Hour).UnixMilli()
		r.control()
		begun := r.now()
		begun.Origin.Start, begun.Origin.End = origin.Start, origin.End
		r.must(control.Import{Checkpoint: begun})
		for _, test := range []struct {
			to       control.Target
			rejected bool
		}{
			{control.ResetToTime{Time: time.UnixMilli(5_000)}, true},
			{control.ResetToEarliest{}, true},
			{control.ResetToLatest{}, true},
			{control.ResetToCurrent{}, false},
			{control.ResetToCursor{Cursor: "c1"}, false},
			{control.ResetToTime{Time: time.UnixMilli(origin.Start)}, false},
		} {
			m, err := r.Plan(t.Context(), test.to)
			if err == nil {
				_, err = r.Move(t.Context(), m, why)
			}
			if errors.Is(err, control.ErrRejected) != test.rejected || err != nil && !test.rejected {
				t.Errorf("%T: %v", test.to, err)
			}
			at := r.now()
			if fault := bridge.OriginFault(&at, *origin, ""); fault != nil {
				t.Errorf("%T blocks the stream: %v", test.to, fault)
			}
		}
		origin.Start = 2_000
		r.control()
		at := r.now()
		if fault := bridge.OriginFault(&at, *origin, ""); fault == nil || fault.HintCode != bridge.HintOtherStart {
			t.Errorf("another EXPORT_START: %v", fault)
		}
		want[*control.RefusedError](t, func() error { _, err := r.Plan(t.Context(), control.ResetToCurrent{}); return err }())
		r.must(control.ResetToTime{Time: time.UnixMilli(origin.Start)})
		at = r.now()
		if fault := bridge.OriginFault(&at, *origin, ""); fault != nil {
			t.Error(fault)
		}
	})
}
