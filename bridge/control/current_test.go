package control_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
)

// TestCurrentAcceptsSettings: after a change of its filter, a reset to the current position
// lets a stream continue.
func TestCurrentAcceptsSettings(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		r.engine.Origin.Events, r.engine.Origin.ItemID = []string{"click"}, "/id"
		r.control()
		before := r.now()
		state := func() bridge.State {
			stop := r.run()
			defer stop()
			time.Sleep(time.Minute) //nolint:forbidigo // virtual
			live, _, err := r.redis.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return live.State
		}
		if got := state(); got != bridge.StateBlocked {
			t.Fatalf("with another filter the stream is %s", got)
		}
		must.Get(r.Move(t.Context(), r.plan(control.ResetToCurrent{}), why))(t)
		if got := state(); got == bridge.StateBlocked {
			t.Error("the stream is blocked after the reset")
		}
		if after := r.now(); after.Cursor != before.Cursor || after.Events != before.Events ||
			!after.Origin.Same(r.engine.Origin) {
			t.Errorf("the stream was at %s with %d events and is at %+v", before.Version, before.Events, after)
		}
	})
}

// TestCurrentOfMovingStream: the stream commits pages between the plan of a reset to the
// current position and the reset. The reset keeps the newest position.
func TestCurrentOfMovingStream(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		m := r.plan(control.ResetToCurrent{})
		stop := r.run()
		r.source.Grow(30)
		time.Sleep(time.Minute) //nolint:forbidigo // virtual
		stop()
		before := r.now()
		must.Get(r.Move(t.Context(), m, why))(t)
		after := r.now()
		if after.Change.Kind != bridge.KindReset || after.Events != before.Events || after.Cursor != before.Cursor {
			t.Errorf("a %s of the stream with %d events leads to one with %d", after.Change.Kind, before.Events, after.Events)
		}
		if !after.SamePosition(&before) || after.PositionTime != before.PositionTime {
			t.Errorf("the stream was at %s and is at another position", before.Version)
		}
	})
}
