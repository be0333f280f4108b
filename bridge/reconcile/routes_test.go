package reconcile_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/reconcile"
)

// topics are read as one, as by a kafkaclient.TopicReader.
type topics struct{ all []*fakelog.Log }

// perTopic is more than the partitions of a topic.
const perTopic = 1000

func gather[T any](of *topics, list func(*fakelog.Log) (map[int32]T, error)) (map[int32]T, error) {
	found := make(map[int32]T)
	for i, l := range of.all {
		own, err := list(l)
		if err != nil {
			return nil, err
		}
		for id, v := range own {
			found[int32(i)*perTopic+id] = v
		}
	}
	return found, nil
}

func (of *topics) Topic() string { return "several" }

func (of *topics) Bounds(ctx context.Context) (map[int32]kafkaclient.Span, error) {
	return gather(of, func(l *fakelog.Log) (map[int32]kafkaclient.Span, error) { return l.Bounds(ctx) })
}

func (of *topics) Ends(ctx context.Context) (map[int32]int64, error) {
	return gather(of, func(l *fakelog.Log) (map[int32]int64, error) { return l.Ends(ctx) })
}

func (of *topics) After(ctx context.Context, millis int64) (map[int32]int64, error) {
	return gather(of, func(l *fakelog.Log) (map[int32]int64, error) { return l.After(ctx, millis) })
}

func (of *topics) Read(ctx context.Context, spans map[int32]kafkaclient.Span, visit func(*kgo.Record) error) error {
	for i, l := range of.all {
		own := make(map[int32]kafkaclient.Span)
		for id, s := range spans {
			if id/perTopic == int32(i) {
				own[id%perTopic] = s
			}
		}
		if err := l.Read(ctx, own, visit); err != nil {
			return err
		}
	}
	return nil
}

func (of *topics) Kept(ctx context.Context) (kept []kafkaclient.Kept, err error) {
	for _, l := range of.all {
		k, err := l.Kept(ctx)
		if err != nil {
			return nil, err
		}
		kept = append(kept, k...)
	}
	return kept, nil
}

// routing is the export of a stream with routes.
type routing struct {
	source
	route func(*bridge.Event) uint8
}

func (s routing) Decode(page *bridge.Page) error {
	err := s.source.Decode(page)
	for i := range page.Events {
		page.Events[i].Route = s.route(&page.Events[i])
	}
	return err
}

// odd routes the events with an odd number.
func odd(e *bridge.Event) uint8 {
	n, _ := strconv.Atoi(strings.TrimPrefix(string(e.ID), "e"))
	return uint8(n % 2)
}

// routed gives the world a second topic, of the events with an odd number.
func (w *world) routed(further ...*fakelog.Log) (orders *fakelog.Log) {
	orders = fakelog.New("export.orders", 1)
	orders.Remake("orders")
	w.cfg.Topics, w.repair.routed = []string{"export.events", "export.orders"}, orders
	w.ports.Topic = &topics{append([]*fakelog.Log{w.topic, orders}, further...)}
	w.ports.Source = routing{source{w.source}, odd}
	return orders
}

// TestRoutedTopicMade: if one of several topics was recreated, the events that an earlier
// repair published to it are missing, whatever the other topic has deleted.
func TestRoutedTopicMade(t *testing.T) {
	inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
		orders := w.routed()
		if r := w.must(reconcile.Repair); r.Repair.Events != 10 {
			t.Fatalf("%+v", r.Repair)
		}
		of := make(map[string]int) // the ids in the marks of a topic
		for _, value := range w.repair.marks {
			var m struct {
				TopicID string `json:"topic_id"`
				IDs     []byte
			}
			must.Do(t, json.Unmarshal(value, &m))
			of[m.TopicID] += len(m.IDs) / 16
		}
		if len(of) != 2 || of["first"] != 5 || of["orders"] != 5 {
			t.Errorf("the marks are of the topics %v", of)
		}
		for _, again := range []string{"second", "third"} {
			orders.Remake(again)
			r := w.must(reconcile.Repair)
			if want(t, again, r, counts{API: 10, Held: 5, Missing: 5}); r.Repair.Events != 5 || r.Repair.Before != 0 {
				t.Errorf("%+v", r.Repair)
			}
			orders.Expire(10 * 365 * 24 * time.Hour) // nothing is deleted yet
			w.topic.Expire(10 * 365 * 24 * time.Hour)
			w.topic.Append(1, fakelog.Record(time.UnixMilli(second(-10)), "{}"))
			w.topic.Delete(1, 1)
		}
		want(t, "in the end", w.must(reconcile.Compare), counts{API: 10, Held: 10})
	})
}

// TestTopicLost: while the stream is blocked because of a recreated topic, nothing is
// published to it.
func TestTopicLost(t *testing.T) {
	inOwnWorld(t, items(4), nil, func(t *testing.T, w *world) {
		w.routed()
		w.live.trail[0].Topics = []bridge.TopicState{{Name: "export.events", ID: "first"}, {Name: "export.orders", ID: "before"}}
		want(t, "compared", w.must(reconcile.Compare), counts{API: 4, Missing: 4})
		for _, mode := range []reconcile.Mode{reconcile.Rehearse, reconcile.Repair} {
			if err := w.refused(mode, reconcile.TopicLost); !strings.Contains(err.Error(), "export.orders was deleted") {
				t.Error(err)
			}
		}
		w.live.trail[0].Topics[1].ID = "orders"
		if r := w.must(reconcile.Repair); r.Repair.Events != 4 {
			t.Errorf("%+v", r.Repair)
		}
	})
}

// TestDroppedMeanwhile: a missing event that has changed when it is listed again, so that a route drops it now, is not
// published.
func TestDroppedMeanwhile(t *testing.T) {
	inOwnWorld(t, items(4), nil, func(t *testing.T, w *world) {
		w.routed()
		listed := 0
		w.ports.Source = routing{source{w.source}, func(e *bridge.Event) uint8 {
			if listed++; listed > 4 && string(e.ID) == "e2" {
				return bridge.RouteDrop
			}
			return 0
		}}
		r := w.must(reconcile.Repair)
		if got := w.repaired(); r.Missing != 4 || r.Repair.Events != 3 || slices.Contains(got, "e2") {
			t.Errorf("published %v, %+v", got, r.Repair)
		}
	})
}

// TestUneven: an event counts as deleted by the retention of its topic, or of a former topic,
// but not by that of another one.
func TestUneven(t *testing.T) {
	inOwnWorld(t, items(20), nil, func(t *testing.T, w *world) {
		former := fakelog.New("export.former", 1)
		orders := w.routed(former)
		for n, i := range items(20) {
			switch {
			case n == 4 || n == 5 || n == 14 || n == 15: // in neither
			case n%2 == 1:
				orders.Append(0, i.record())
			default:
				w.topic.Append(0, i.record())
			}
		}
		want(t, "all kept", w.must(reconcile.Compare), counts{API: 20, Held: 16, Missing: 4})
		orders.Expire(10 * 365 * 24 * time.Hour)
		orders.Delete(0, 4) // 1, 3, 7 and 9 are gone; it begins at 11
		r := w.must(reconcile.Compare)
		if want(t, "uneven", r, counts{API: 20, Held: 12, Missing: 3}); r.Deleted != 5 || r.KeptFrom != second(11) {
			t.Errorf("deleted %d, kept from %d", r.Deleted, r.KeptFrom)
		}
		if r := w.must(reconcile.Repair); r.Repair.Events != 3 || r.Deleted != 5 {
			t.Errorf("%+v", r.Repair)
		}
		w.topic.Expire(10 * 365 * 24 * time.Hour)
		w.topic.Delete(0, 1) // 0 is gone
		if err := w.refused(reconcile.Repair, reconcile.NotKept); err.Position != second(602) {
			t.Errorf("%+v", err)
		}
	})
	t.Run("former", func(t *testing.T) {
		inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
			former := fakelog.New("export.former", 1)
			w.routed(former)
			former.Expire(10 * 365 * 24 * time.Hour)
			for _, i := range items(6) {
				former.Append(0, i.record())
			}
			former.Delete(0, 5)
			if r := w.must(reconcile.Compare); r.Deleted != 5 {
				t.Errorf("%+v", r)
			}
		})
	})
}

// TestFurtherTopicMade: one of several topics that is recreated meanwhile is noticed.
func TestFurtherTopicMade(t *testing.T) {
	inOwnWorld(t, items(4), items(4), func(t *testing.T, w *world) {
		orders := w.routed()
		w.ports.Retried = func(context.Context) (func(*deadletter.DeadLetter) bool, error) {
			orders.Remake("again")
			return nil, nil
		}
		w.refused(reconcile.Compare, reconcile.TopicMade)
	})
}

// TestTopicCounts: each topic has its counts. An event in the topic of a former route is not
// missing. A dropped event is listed, and in the counts of no topic, though the topic has it. Two
// equal events without an id are two, and a repeated event with an id is one.
func TestTopicCounts(t *testing.T) {
	twice := item{at: second(9)}
	all := append(withoutIngestion(items(10)), twice, twice)
	inOwnWorld(t, all, slices.Concat(all[:2], all[4:9], all[5:6]), func(t *testing.T, w *world) {
		w.routed()
		w.ports.Source = routing{source{w.source}, func(e *bridge.Event) uint8 {
			switch {
			case e.Time < second(4):
				return 1
			case e.Time == second(4):
				return bridge.RouteDrop
			}
			return 0
		}}
		want := []reconcile.TopicCount{
			{Topic: "export.events", Listed: 7, Held: 4, Missing: 3}, {Topic: "export.orders", Listed: 4, Elsewhere: 2, Missing: 2},
		}
		for _, batch := range []int{1000, 3} { // in one part, in several
			w.cfg.Batch = batch
			r := w.must(reconcile.Compare)
			if diff := cmp.Diff(want, r.Topics); diff != "" || r.API != 12 || r.Held != 6 || r.Missing != 5 || r.Dropped != 1 || r.Again != 1 {
				t.Errorf("%+v (-want +got):\n%s", r, diff)
			}
		}
		for i := range want {
			want[i].Repaired = want[i].Missing
		}
		w.cfg.Batch = 1000
		time.AfterFunc(10*time.Second, func() { w.live.commit(atEnd(6, time.Now().UnixMilli())) })
		if diff := cmp.Diff(want, w.must(reconcile.Repair).Topics); diff != "" {
			t.Errorf("a repair (-want +got):\n%s", diff)
		}
	})
}

// TestRoutesChanged: an event from before a change of the routes may have been in any of the
// topics, and counts as deleted if one of them no longer keeps its time.
func TestRoutesChanged(t *testing.T) {
	const year = 365 * 24 * time.Hour
	inOwnWorld(t, items(20), nil, func(t *testing.T, w *world) {
		orders := w.routed()
		for n, i := range items(20) {
			switch {
			case n == 14: // in neither
			case n%2 == 1 || n < 8: // an earlier rule sent all events to orders
				orders.Append(0, i.record())
			default:
				w.topic.Append(0, i.record())
			}
		}
		w.live.trail[0].RoutesChanged = second(8)
		want(t, "all kept", w.must(reconcile.Compare), counts{API: 20, Held: 19, Missing: 1})
		orders.Expire(10 * year)
		orders.Delete(0, 12) // 0 to 7, 9, 11, 13 and 15 are gone; it begins at 17
		r := w.must(reconcile.Compare)
		if want(t, "changed", r, counts{API: 20, Held: 7, Missing: 1}); r.Deleted != 12 {
			t.Errorf("deleted %d", r.Deleted)
		}
		w.cfg.Routes = "a*=export.orders"
		if r := w.must(reconcile.Compare); r.Deleted != 13 {
			t.Errorf("%d deleted", r.Deleted)
		}
		for _, mode := range []reconcile.Mode{reconcile.Rehearse, reconcile.Repair} {
			want := `KAFKA_ROUTES is "a*=export.orders", but stream events publishes by "b*=export.orders"`
			w.live.trail[0].Routes = "b*=export.orders"
			if err := w.refused(mode, reconcile.OtherRoutes); err.Error() != want {
				t.Error(err)
			}
			w.live.trail[0].Routes = ""
			w.refused(mode, reconcile.OtherRoutes)
		}
		w.cfg.Routes = ""
		if r := w.must(reconcile.Repair); r.Repair.Events != 1 || r.Deleted != 12 {
			t.Errorf("%+v, %d deleted", r.Repair, r.Deleted)
		}
	})
}
