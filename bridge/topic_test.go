package bridge_test

import (
	"testing"

	"exportbridge/bridge"
)

// TestCarryOverKeepsTheEnd: a broker that lags behind does not lower the known end of a
// topic: otherwise the loss of a log's end would go unnoticed. A recreated topic has new
// ends.
func TestCarryOverKeepsTheEnd(t *testing.T) {
	t.Parallel()
	was := []bridge.TopicState{{Name: "x", ID: "a", Partitions: 3, End: 30}}
	for _, tc := range []struct {
		id        string
		end, want int64
	}{{"a", 20, 30}, {"a", 40, 40}, {"", 20, 30}, {"b", 20, 20}} {
		next, grown := bridge.CarryOver(was, []bridge.TopicState{{Name: "x", ID: tc.id, Partitions: 3, End: tc.end}})
		if next[0].End != tc.want || len(grown) > 0 {
			t.Errorf("id %q with end %d: carried over %+v, grown %v; want end %d", tc.id, tc.end, next[0], grown, tc.want)
		}
	}
}

// TestAsFoundForgetsTheEnds: after an accepted loss the ends of the partitions are unknown.
func TestAsFoundForgetsTheEnds(t *testing.T) {
	t.Parallel()
	known := []bridge.TopicState{{Name: "x", End: 30, Ends: bridge.EncodeEnds([]int64{30})}}
	for end, want := range map[int64]bridge.Ends{20: "", 30: known[0].Ends, 40: known[0].Ends} {
		if got := bridge.AsFound(known, []bridge.TopicState{{Name: "x", End: end}}); got[0].Ends != want {
			t.Errorf("found with end %d: ends %q, want %q", end, got[0].Ends, want)
		}
	}
	known[0].Ends = bridge.EncodeEnds([]int64{10, 20})
	found := []bridge.TopicState{{Name: "x", End: 40, Ends: bridge.EncodeEnds([]int64{25, 15})}}
	if got := bridge.AsFound(known, found); got[0].Ends != "" || got[0].End != 30 {
		t.Errorf("of one cut partition: %+v", got[0])
	}
}

// TestWithLossOfFewerPartitions: a broker that lags behind shows fewer partitions of the same
// topic. The sum of their ends proves no loss, the end of each of them does.
func TestWithLossOfFewerPartitions(t *testing.T) {
	t.Parallel()
	was := []bridge.TopicState{{Name: "x", ID: "a", Partitions: 2, End: 30, Ends: bridge.EncodeEnds([]int64{20, 10})}}
	for _, x := range []struct {
		id         string
		partitions int
		ends       []int64
		lost       int64
	}{
		{"a", 1, []int64{20}, 0}, {"a", 1, []int64{15}, 5}, {"a", 2, []int64{20, 4}, 6}, {"", 1, []int64{20}, 10},
	} {
		found := []bridge.TopicState{{Name: "x", ID: x.id, Partitions: x.partitions, Ends: bridge.EncodeEnds(x.ends)}}
		for _, end := range x.ends {
			found[0].End += end
		}
		lost := int64(0)
		if topics := bridge.WithLoss(was, found); topics != nil {
			lost = topics[0].Lost
		}
		if lost != x.lost {
			t.Errorf("%+v: %d offsets are lost, want %d", x, lost, x.lost)
		}
	}
}
