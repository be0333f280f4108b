package control_test

import (
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
)

// Without a bridge, a move keeps the topic of the stream, and a rewind keeps its filter,
// whatever the settings of the command. Only a reset to the current position adopts them.
// The plan names the difference.
func TestMoveUnderOtherSettings(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		r.engine.Topic = "crm.events"
		r.control()
		r.must(control.ResetToCurrent{})
		r.runFor(3)
		was := r.now()
		r.engine.Topic, r.engine.Origin.Events = "export.events", []string{"click"}
		r.control()
		move := func(to control.Target, notes ...string) bridge.Checkpoint {
			t.Helper()
			m := r.plan(to)
			for _, note := range append(notes, "the stream publishes to topic crm.events, these settings name export.events") {
				if !strings.Contains(strings.Join(m.Notes, "\n"), note) {
					t.Errorf("%T: notes %q, want %q", to, m.Notes, note)
				}
			}
			must.Get(r.Move(t.Context(), m, why))(t)
			return r.now()
		}
		if now := move(control.RewindPages{Pages: 1}, "these settings"); now.Topic != was.Topic ||
			!now.Origin.Same(was.Origin) {
			t.Errorf("a rewind: topic %s, %s", now.Topic, now.Origin)
		}
		if now := move(control.ResetToEarliest{}, "the settings change"); now.Topic != was.Topic ||
			!now.Origin.Same(r.engine.Origin) {
			t.Errorf("a reset: topic %s, %s", now.Topic, now.Origin)
		}
		r.engine.Origin.Events = nil
		r.control()
		if now := move(control.ResetToCurrent{}, "the settings change"); now.Topic != "export.events" ||
			!now.Origin.Same(r.engine.Origin) {
			t.Errorf("a reset that keeps the position: topic %s, %s", now.Topic, now.Origin)
		}
	})
}
