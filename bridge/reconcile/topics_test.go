package reconcile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/reconcile"
)

// routed is a source whose routes send the events before a time to another topic, and drop the
// event of that time.
type routed struct {
	source
	drops int64
}

func (s routed) Decode(page *bridge.Page) error {
	err := s.source.Decode(page)
	for i := range page.Events {
		switch e := &page.Events[i]; {
		case e.Time < s.drops:
			e.Route = 1
		case e.Time == s.drops:
			e.Route = bridge.RouteDrop
		}
	}
	return err
}

// TestTopicCounts: each topic has its counts. An event in the topic of a former route is not
// missing. A dropped event is listed, and in the counts of no topic.
func TestTopicCounts(t *testing.T) {
	all := items(10)
	inOwnWorld(t, all, append(all[:2:2], all[5:9]...), func(t *testing.T, w *world) {
		w.routed()
		w.ports.Source = routed{source{w.source}, second(4)}
		want := []reconcile.TopicCount{
			{Topic: "export.events", Listed: 5, Held: 4, Missing: 1}, {Topic: "export.orders", Listed: 4, Elsewhere: 2, Missing: 2},
		}
		for _, batch := range []int{1000, 3} { // in one part, in several
			w.cfg.Batch = batch
			r := w.must(reconcile.Compare)
			if diff := cmp.Diff(want, r.Topics); diff != "" || r.API != 10 || r.Held != 6 || r.Missing != 3 || r.Dropped != 1 {
				t.Errorf("%+v (-want +got):\n%s", r, diff)
			}
		}
		for i := range want {
			want[i].Repaired = want[i].Missing
		}
		if diff := cmp.Diff(want, w.must(reconcile.Repair).Topics); diff != "" {
			t.Errorf("a repair (-want +got):\n%s", diff)
		}
	})
}
