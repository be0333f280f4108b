package control_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
)

// TestLargeTopicIsNoted: windows publish nothing again to a topic whose ends do not fit into a checkpoint, and the
// plan says so.
func TestLargeTopicIsNoted(t *testing.T) {
	t.Parallel()
	for partitions, noted := range map[int]bool{bridge.MaxEnds: false, bridge.MaxEnds + 1: true} {
		inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
			now := r.now()
			at := now
			at.Version, at.Cursor = now.Version.Next(), bridge.Watermark{At: 1_000_000}.Cursor()
			at.Origin.Follow, at.Topics = bridge.FollowWindows, slices.Clone(now.Topics)
			at.Topics[0].Partitions = partitions
			must.Do(t, r.redis.Advance(t.Context(), now, at))
			r.engine.Origin, r.engine.Overlap = at.Origin, 0
			r.control()
			m := r.plan(control.ResetToTime{Time: time.UnixMilli(at.PositionTime).Add(-10 * time.Minute)})
			notes := strings.Join(m.Notes, "; ")
			if strings.Contains(notes, "it has 257 partitions") != noted || (m.Min == 0) != noted || m.Max <= 0 {
				t.Errorf("%d partitions: %+v, notes %q", partitions, m.Repeats, notes)
			}
			if m = r.plan(control.ResetToCurrent{}); strings.Contains(strings.Join(m.Notes, "; "), "partitions") {
				t.Errorf("%d partitions, to the same position: notes %q", partitions, m.Notes)
			}
		})
	}
}
