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

// TestRewindIntoWindow: a rewind into a window publishes the window again from its beginning. The plan counts
// these events too.
func TestRewindIntoWindow(t *testing.T) {
	t.Parallel()
	for part, within := range map[int]bool{0: false, 2: true} {
		inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
			from := r.now()
			r.engine.Origin, r.engine.Overlap = from.Origin, 0
			r.engine.Origin.Follow = bridge.FollowWindows
			var entry bridge.Version
			for i, w := range []bridge.Watermark{{At: 1_000_000, Part: part}, {At: 2_000_000}} {
				at := from
				at.Version, at.Cursor, at.Kind, at.Format = from.Version.Next(), w.Cursor(), bridge.KindData, bridge.ListingFormat
				at.Origin = r.engine.Origin
				at.Events, at.Pages, at.WrittenAt = from.Events+20, from.Pages+2, from.WrittenAt+60_000
				must.Do(t, r.redis.Advance(t.Context(), from, at))
				if from = at; i == 0 {
					entry = at.Version
				}
			}
			r.control()
			m := r.plan(control.RewindToEntry{Entry: entry})
			if m.Min != 20 || (m.Max == control.Unknown) != within || (len(m.Notes) > 0) != within ||
				m.FirstPublished.IsZero() != within {
				t.Errorf("part %d: %+v since %s, notes %q", part, m.Repeats, m.FirstPublished, m.Notes)
			}
			if m = r.plan(control.ResetToCurrent{}); m.Max != 0 {
				t.Errorf("part %d, to the same position: %+v", part, m.Repeats)
			}
		})
	}
}
