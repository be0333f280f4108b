package control_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
)

// TestBorderMoves: a move to a known position takes its border along, one to a bare cursor
// has none.
func TestBorderMoves(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		back := r.entryOf(12)
		if len(back.Border.Items) == 0 {
			t.Fatal("the entry has no border")
		}
		out := must.Get(control.NewExport(&back))(t)
		document := must.Get(json.Marshal(out))(t)
		imported := must.Get(control.ReadExport(bytes.NewReader(document)))(t)
		for _, to := range []control.Target{
			control.RewindToEntry{Entry: back.Version}, control.ResetToCurrent{}, control.ResetToEarliest{},
			control.Import{Checkpoint: imported}, control.ResetToCursor{Cursor: back.Cursor},
		} {
			want := back.Border
			switch to.(type) {
			case control.ResetToEarliest, control.ResetToCursor:
				want = bridge.Border{}
			}
			must.Get(r.Move(t.Context(), r.plan(to), why))(t)
			if diff := cmp.Diff(want, r.now().Border); diff != "" {
				t.Errorf("%T:\n%s", to, diff)
			}
			if a, err := r.Pause(t.Context(), why, 0); err != nil || !a.Answer.Applied {
				t.Fatalf("pause: %+v, %v", a, err)
			}
			if diff := cmp.Diff(want, r.now().Border); diff != "" {
				t.Errorf("%T, paused:\n%s", to, diff)
			}
			if a, err := r.Resume(t.Context(), why); err != nil || !a.Answer.Applied {
				t.Fatalf("resume: %+v, %v", a, err)
			}
		}
	})
}

// TestImportKeepsTimes: after an import, the stream knows the time from which an overlap begins.
func TestImportKeepsTimes(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		at := r.now()
		at.LastEventTime, at.AdvanceTime = at.LastEventTime-2000, at.AdvanceTime-1000
		r.must(control.Import{Checkpoint: at})
		if got := r.now(); got.LastEventTime != at.LastEventTime || got.AdvanceTime != at.AdvanceTime {
			t.Errorf("imported %+v as %+v", at, got)
		}
	})
}
