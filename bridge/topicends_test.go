package bridge_test

import (
	"slices"
	"testing"

	"exportbridge/bridge"
)

// TestEnds: what is encoded is read back; what is damaged or too much is unknown.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, offsets := range [][]int64{nil, {0}, {7, 0, 1 << 40}, make([]int64, 256)} {
		if got := bridge.EncodeEnds(offsets).Offsets(); !slices.Equal(got, offsets) {
			t.Errorf("%v: %v", offsets, got)
		}
	}
	for _, unknown := range []bridge.Ends{bridge.EncodeEnds(make([]int64, 257)), "?", "gA", "////////////"} {
		if got := unknown.Offsets(); got != nil {
			t.Errorf("%q: %v, want nothing", unknown, got)
		}
	}
}

// TestEarlierTopics: each topic as it was earlier; of an unknown state the other.
func TestEarlierTopics(t *testing.T) {
	t.Parallel()
	early, late := bridge.TopicState{Name: "x", End: 5, Ends: "BQ"}, bridge.TopicState{Name: "x", End: 9, Ends: "CQ"}
	unknown, other := bridge.TopicState{Name: "x", End: 1}, bridge.TopicState{Name: "y"}
	for _, tc := range []struct{ a, b, want []bridge.TopicState }{
		{[]bridge.TopicState{late}, []bridge.TopicState{early}, []bridge.TopicState{early}},
		{[]bridge.TopicState{early}, []bridge.TopicState{late, other}, []bridge.TopicState{early, other}},
		{[]bridge.TopicState{unknown}, []bridge.TopicState{late}, []bridge.TopicState{late}},
		{[]bridge.TopicState{late}, []bridge.TopicState{unknown}, []bridge.TopicState{late}},
		{nil, []bridge.TopicState{late}, []bridge.TopicState{late}},
	} {
		var c bridge.Checkpoint
		c.BeginOverlap(&bridge.Checkpoint{Overlap: new(bridge.Overlap), OverlapTopics: tc.b}, 0, tc.a)
		if got := c.OverlapTopics; !slices.Equal(got, tc.want) {
			t.Errorf("of %v and %v: %v", tc.a, tc.b, got)
		}
	}
}
