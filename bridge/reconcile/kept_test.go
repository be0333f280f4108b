package reconcile_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/reconcile"
)

// TestRepairTopicMade: if a topic was recreated, or was truncated although it keeps
// everything, the events of an earlier repair are missing and are published again.
func TestRepairTopicMade(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*world){
		"made again": func(w *world) { w.topic.Remake("second") },
		"truncated":  func(w *world) { w.topic.Delete(0, 10) },
		"made again, with a retention": func(w *world) {
			w.topic.Remake("second")
			w.topic.Expire(10 * 365 * 24 * time.Hour)
		},
		"made again, and expired": func(w *world) {
			w.topic.Remake("second")
			w.topic.Expire(10 * 365 * 24 * time.Hour)
			w.topic.Append(1, fakelog.Record(time.UnixMilli(second(-10)), "{}"))
			w.topic.Delete(1, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
				if r := w.must(reconcile.Repair); r.Repair.Events != 10 {
					t.Fatalf("%+v", r.Repair)
				}
				lose(w)
				r := w.must(reconcile.Repair)
				if want(t, "afterwards", r, counts{API: 10, Missing: 10}); r.Repair.Events != 10 || r.Repair.Before != 0 {
					t.Errorf("%+v", r.Repair)
				}
				want(t, "in the end", w.must(reconcile.Compare), counts{API: 10, Held: 10})
			})
		})
	}
}

// TestRetriedLetter: the event of a dead letter that was retried must be in the topic,
// unless retention has deleted it there.
func TestRetriedLetter(t *testing.T) {
	all := items(4)
	inOwnWorld(t, all, nil, func(t *testing.T, w *world) {
		w.dead.Append(0, all[0].record(), all[1].record(), all[1].record(), all[2].record())
		w.ports.Retried = func(context.Context) (func(*deadletter.DeadLetter) bool, error) {
			return func(l *deadletter.DeadLetter) bool { return l.Offset < 2 }, nil
		}
		want(t, "a topic without them", w.must(reconcile.Compare), counts{API: 4, Missing: 3, Dead: 1})
		w.topic.Append(0, all[0].record())
		want(t, "one is there", w.must(reconcile.Compare), counts{API: 4, Held: 1, Missing: 2, Dead: 1})
		w.topic.Append(1, fakelog.Record(time.UnixMilli(second(-10)), "{}"))
		w.topic.Expire(10 * 365 * 24 * time.Hour)
		w.topic.Delete(1, 1)
		want(t, "retention", w.must(reconcile.Compare), counts{API: 4, Held: 1, Missing: 1, Dead: 2})
	})
}

// TestExpiredWithoutTimes: the record of an event without a time has the time of publishing. Retention cannot have deleted
// it if the event was ingested later than what is deleted, and not only by the difference of clocks.
func TestExpiredWithoutTimes(t *testing.T) {
	inOwnWorld(t, items(8), nil, func(t *testing.T, w *world) {
		w.ports.Source = timeless{source{w.source}}
		w.topic.Append(0, fakelog.Record(time.UnixMilli(second(-10)), "{}"), fakelog.Record(time.UnixMilli(second(2)), "{}"))
		w.topic.Expire(10 * 365 * 24 * time.Hour)
		w.topic.Delete(0, 1)
		r := w.must(reconcile.Compare)
		if want(t, "compared", r, counts{API: 8, Missing: 4}); r.Deleted != 4 {
			t.Errorf("%d events count as deleted, want those that were ingested up to 3 s after %d", r.Deleted, r.KeptFrom)
		}
	})
}

// TestKeptUntilRepeated: the range that a rejection names is still kept some minutes later.
func TestKeptUntilRepeated(t *testing.T) {
	inOwnWorld(t, items(8), items(8)[:7], func(t *testing.T, w *world) {
		w.topic.Append(0, fakelog.Record(time.UnixMilli(second(0)), "{}"))
		w.topic.Expire(time.Since(time.UnixMilli(second(5))))
		w.topic.Delete(0, 1)
		w.cfg.From = w.refused(reconcile.Repair, reconcile.NotKept).Position
		bridge.Sleep(t.Context(), 5*time.Minute)
		w.must(reconcile.Repair)
	})
}

// TestExpired: events that retention may have deleted are not missing, and not repaired.
// Later missing ones are.
func TestExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := items(20)
		w := newWorld(t, all, slices.Delete(slices.Clone(all), 15, 16)) // in three partitions
		w.topic.Expire(10 * 365 * 24 * time.Hour)
		want(t, "the whole topic", w.must(reconcile.Compare), counts{API: 20, Held: 19, Missing: 1})
		w.topic.Delete(0, 2)
		w.topic.Delete(1, 1) // 0, 1 and 3 are gone; partition 0 begins at 6
		r := w.must(reconcile.Compare)
		if want(t, "expired", r, counts{API: 20, Held: 16, Missing: 1}); r.Deleted != 3 || r.KeptFrom != second(6) {
			t.Errorf("deleted %d, kept from %d", r.Deleted, r.KeptFrom)
		}
		if err := w.refused(reconcile.Repair, reconcile.NotKept); err.Position != second(606) || len(w.repair.published) > 0 {
			t.Errorf("%+v, published %v", err, w.repair.published)
		}
		to := w.cfg.To
		if w.cfg.To = second(6); w.refused(reconcile.Repair, reconcile.NotKept).Position != 0 {
			t.Error("a position for a range that is deleted")
		}
		w.cfg.From, w.cfg.To = second(6), to
		if r := w.must(reconcile.Repair); r.Repair.Events != 1 || r.Deleted != 0 {
			t.Errorf("%+v", r.Repair)
		}

		keeping := newWorld(t, all, all) // a truncated topic explains nothing
		keeping.topic.Delete(0, 2)
		want(t, "truncated", keeping.must(reconcile.Compare), counts{API: 20, Held: 18, Missing: 2})
	})
}
