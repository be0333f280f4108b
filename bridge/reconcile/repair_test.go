package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/reconcile"
)

// TestQuietStream: a quiet stream commits its position rarely. What its owner reports counts
// too, once the stream has caught up in this epoch.
func TestQuietStream(t *testing.T) {
	t.Parallel()
	to, reported := second(5030), time.UnixMilli(second(5040))
	caughtUp := bridge.Status{Leader: true, CaughtUp: true, Version: bridge.Version{Epoch: atEnd(5, 0).Epoch},
		Position: reported}
	for name, test := range map[string]struct {
		change func(*bridge.Status)
		passed bool
	}{
		"caught up":     {func(*bridge.Status) {}, true},
		"behind":        {func(s *bridge.Status) { s.CaughtUp = false }, false},
		"a standby":     {func(s *bridge.Status) { s.Leader = false }, false},
		"moved":         {func(s *bridge.Status) { s.Version.Epoch++ }, false},
		"not that far":  {func(s *bridge.Status) { s.Position = time.UnixMilli(to - 1) }, false},
		"no event time": {func(s *bridge.Status) { s.Position = time.Time{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
				w.cfg.To, w.live.status = to, caughtUp
				test.change(&w.live.status)
				if !test.passed {
					w.refused(reconcile.Rehearse, reconcile.NotPassed)
					return
				}
				if r := w.must(reconcile.Rehearse); r.Repair.Events != 10 || r.Position != reported.UnixMilli() {
					t.Errorf("would repair %d events, live position %d", r.Repair.Events, r.Position)
				}
			})
		})
	}
}

// TestLongTrail: a stream that is behind has not been at the end of the export for long. A repair ends the search for
// that checkpoint and leaves the events to the stream.
func TestLongTrail(t *testing.T) {
	inOwnWorld(t, items(3), nil, func(t *testing.T, w *world) {
		w.live.trail[0].Drained = false
		w.live.onLook = func(n int) {
			if n == 2 {
				time.Sleep(time.Hour) //nolint:forbidigo // virtual time
			}
		}
		if r := w.must(reconcile.Repair); r.Missing != 3 || r.Repair.Live != 3 || r.Repair.Events != 0 {
			t.Errorf("%+v", r.Repair)
		}
	})
}

// TestRepairRefused: nothing is published of a range that the stream, or a backfill, may still
// publish, and no error shows a time of 1970.
func TestRepairRefused(t *testing.T) {
	t.Parallel()
	moved := atEnd(0, 0)
	moved.Kind = bridge.KindReset
	timeless := atEnd(0, 0)
	timeless.Kind, timeless.Drained = bridge.KindData, false
	sessions := atEnd(5, second(5000))
	sessions.Origin.Resource = "sessions"
	filtered := atEnd(5, second(5000))
	filtered.Origin.Events = []string{"a", "b"}
	for name, test := range map[string]struct {
		change func(*world)
		why    reconcile.Reason
		says   string
	}{
		"a stream that never ran": {func(w *world) { w.live.trail = nil }, reconcile.NeverRan,
			"it will publish the range itself"},
		"a stream that was just moved": {func(w *world) { w.live.trail = []bridge.Checkpoint{moved} },
			reconcile.PositionUnknown, "stream events was moved"},
		"a stream without times": {func(w *world) { w.live.trail = []bridge.Checkpoint{timeless} }, reconcile.NotAtEnd,
			"no event of stream events has had a time"},
		"an open end": {func(w *world) { w.cfg.To = second(5000) + 1 }, reconcile.NotPassed, "after the live position"},
		"another resource": {func(w *world) { w.live.trail[0] = sessions }, reconcile.OtherOrigin,
			"exports sessions, these settings request events"},
		"other ids":      {func(w *world) { w.live.trail[0].Origin.ItemID = "/id" }, reconcile.OtherOrigin, "ids at /id"},
		"another filter": {func(w *world) { w.live.trail[0] = filtered }, reconcile.OtherOrigin, "exports events (a, b)"},
		"a backfill of a part": {func(w *world) {
			w.live.backfills = []reconcile.Backfill{{ID: "k3xq7a", From: second(999), To: second(2000)}}
		}, reconcile.BackfillOpen, "backfill k3xq7a"},
		"a backfill from the earliest event": {func(w *world) {
			w.live.backfills = []reconcile.Backfill{{ID: "k3xq7a",
				To: second(1)}}
		}, reconcile.BackfillOpen, "the earliest event"},
	} {
		for _, mode := range []reconcile.Mode{reconcile.Rehearse, reconcile.Repair} {
			t.Run(fmt.Sprintf("%s, %d", name, mode), func(t *testing.T) {
				inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
					test.change(w)
					err := w.refused(mode, test.why)
					if !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "1970-") {
						t.Errorf("it says %q, want %q", err, test.says)
					}
					if test.why == reconcile.NotPassed && err.Position != second(5000) || test.why == reconcile.BackfillOpen &&
						err.Backfill != "k3xq7a" {
						t.Errorf("%+v", err)
					}
					if len(w.repair.published) > 0 || w.source.Requests() > 0 {
						t.Errorf("published %v after %d requests", w.repair.published, w.source.Requests())
					}
					want(t, "to compare is allowed", w.must(reconcile.Compare), counts{API: 10, Missing: 10})
				})
			})
		}
	}
	t.Run("nothing is passed yet", func(t *testing.T) {
		inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
			w.cfg.From, w.cfg.To = second(5000), second(5001)
			if err := w.refused(reconcile.Repair, reconcile.NotPassed); err.Position != 0 {
				t.Errorf("%+v", err)
			}
		})
	})
	t.Run("neighbours", func(t *testing.T) {
		inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
			w.cfg.To = second(5000)
			w.live.backfills = []reconcile.Backfill{{ID: "before", To: w.cfg.From},
				{ID: "behind", From: w.cfg.To, To: w.cfg.To + 1}}
			if r := w.must(reconcile.Repair); r.Repair.Events != 10 {
				t.Errorf("repaired %+v", r.Repair)
			}
		})
	})
}

// TestRepair: what is missing and passed is published once, with a mark, what
// the stream may still bring is left to it.
func TestRepair(t *testing.T) {
	all := items(12)
	all[11].ingested = second(5000) // within the clocks' difference of the last end
	all[10].ingested = second(4000)
	inOwnWorld(t, all, all[:6], func(t *testing.T, w *world) {
		r := w.must(reconcile.Rehearse)
		want(t, "a rehearsal", r, counts{API: 12, Held: 6, Missing: 6})
		if diff := cmp.Diff(&reconcile.Repaired{Events: 5, Live: 1}, r.Repair); diff != "" || len(w.repair.published) > 0 {
			t.Errorf("published %v, said (-want +got):\n%s", w.repair.published, diff)
		}
		r = w.must(reconcile.Repair)
		if diff := cmp.Diff(&reconcile.Repaired{Events: 5, Live: 1}, r.Repair); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"e10", "e6", "e7", "e8", "e9"}, w.repaired()); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
		for name, value := range w.repair.marks {
			var mark map[string]any
			if err := json.Unmarshal(value, &mark); err != nil || mark["v"] != 1.0 || mark["by"] != "a test" ||
				mark["ids"] == "" || mark["at"] != float64(time.Now().UnixMilli()) {
				t.Errorf("mark %s is %s", name, value)
			}
		}
		if w.repair.open {
			t.Error("the repair is not closed")
		}
		r = w.must(reconcile.Repair)
		if want(t, "a second repair", r, counts{API: 12, Held: 11, Missing: 1}); r.Repair.Events != 0 || r.Repair.Live != 1 {
			t.Errorf("a second repair: %+v", r.Repair)
		}
	})
}

// TestRepairBefore: an event that a repair has published is not published again,
// although the topic has deleted it.
func TestRepairBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := item{id: "shared", at: second(3), ingested: second(4), form: "a"}, item{id: "shared", at: second(3),
			ingested: second(4), form: "b"}
		all := append(items(3), a, b)
		w := newWorld(t, all, all[:1])
		if r := w.must(reconcile.Repair); r.Repair.Events != 4 {
			t.Fatalf("%+v", r.Repair)
		}
		w.topic.Expire(10 * 365 * 24 * time.Hour)
		w.topic.Delete(0, 5)
		r := w.must(reconcile.Repair)
		if diff := cmp.Diff(&reconcile.Repaired{Events: 1, Before: 4}, r.Repair); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
		// Marks that are old are removed, and known once more.
		time.Sleep(91 * 24 * time.Hour) //nolint:forbidigo // of the bubble's time
		w.topic.Delete(0, 6)
		n := len(w.repair.marks)
		if r := w.must(reconcile.Rehearse); r.Repair.Before != 5 || len(w.repair.marks) != n {
			t.Errorf("a rehearsal: %+v with %d marks of %d", r.Repair, len(w.repair.marks), n)
		}
		if r := w.must(reconcile.Repair); r.Repair.Before != 5 || len(w.repair.marks) != 0 {
			t.Errorf("%+v with %d marks", r.Repair, len(w.repair.marks))
		}
	})
}

// TestRepairOneForm: of two events that share an id, one was repaired. The other
// one is another event.
func TestRepairOneForm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := item{id: "shared", at: second(3), ingested: second(4), form: "a"}, item{id: "shared", at: second(3),
			ingested: second(4), form: "b"}
		w := newWorld(t, []item{a, b}, []item{b})
		if r := w.must(reconcile.Repair); r.Repair.Events != 1 {
			t.Fatalf("%+v", r.Repair)
		}
		w.topic.Expire(10 * 365 * 24 * time.Hour)
		w.topic.Delete(0, 2)
		if diff := cmp.Diff(&reconcile.Repaired{Events: 1, Before: 1}, w.must(reconcile.Repair).Repair); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
	})
}

// TestRepairUnknownMark: a mark of a newer version could name any event.
func TestRepairUnknownMark(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`{"v":2,"ids":""}`, `{"v":1,"ids":"AAAA"}`, `x`} {
		inWorld(t, items(3), nil, func(t *testing.T, w *world) {
			w.repair.marks["m"] = []byte(value)
			w.refused(reconcile.Repair, reconcile.UnknownMark)
			if len(w.repair.published) > 0 || w.repair.open {
				t.Errorf("%s: published %v", value, w.repair.published)
			}
		})
	}
}

// TestRepairRefusedEvents: what the topic cannot take does not hold back the
// events of its transaction.
func TestRepairRefusedEvents(t *testing.T) {
	inOwnWorld(t, items(40), nil, func(t *testing.T, w *world) {
		w.repair.tooLarge = func(id string) bool { return strings.HasSuffix(id, "7") }
		r := w.must(reconcile.Repair)
		if r.Repair.Events != 36 || r.Repair.Refused != 4 || len(r.Repair.Reasons) != 4 ||
			!strings.Contains(r.Repair.Reasons[0], "e7 is too large") {
			t.Errorf("%+v", r.Repair)
		}
		if got := w.repaired(); len(got) != 36 || slices.ContainsFunc(got, w.repair.tooLarge) {
			t.Errorf("published %v", got)
		}
	})
}

// TestRepairFails: an error of the publisher ends the repair, and another one
// goes on from there.
func TestRepairFails(t *testing.T) {
	inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
		w.repair.fails = bridge.ErrFenced
		if _, err := w.run(reconcile.Repair); !errors.Is(err, bridge.ErrFenced) || w.repair.open {
			t.Errorf("%v, want ErrFenced", err)
		}
		w.repair.refuses = bridge.ErrFenced
		if _, err := w.run(reconcile.Repair); !errors.Is(err, bridge.ErrFenced) {
			t.Errorf("%v, want ErrFenced", err)
		}
		w.repair.refuses = nil
		if r := w.must(reconcile.Repair); r.Repair.Events != 10 {
			t.Errorf("%+v", r.Repair)
		}
		w.repaired()
	})
}

// TestRepairFrontier: the stream has passed what the API took in before it was
// last at the end of the export, wherever its position is.
func TestRepairFrontier(t *testing.T) {
	t.Parallel()
	at := func(epoch, seq, position int64, end bool) bridge.Checkpoint {
		c := atEnd(seq, position)
		c.Epoch, c.Drained = epoch, end
		return c
	}
	pause := at(2, 0, second(3000), false)
	pause.Kind, pause.Change = bridge.KindPause, &bridge.Change{Kind: bridge.KindPause,
		From: bridge.Version{Epoch: 1, Seq: 9}}
	reset := pause
	reset.Kind, reset.Change = bridge.KindReset, &bridge.Change{Kind: bridge.KindReset,
		From: bridge.Version{Epoch: 1, Seq: 9}}
	window := at(1, 9, second(3000), true)
	window.EndedEmpty = 5
	for name, test := range map[string]struct {
		trail []bridge.Checkpoint // newest first
		want  reconcile.Repaired
	}{
		"at the end now": {[]bridge.Checkpoint{at(1, 9, second(3000), true)}, reconcile.Repaired{Events: 10}},
		"at the end once, between them": {[]bridge.Checkpoint{at(1, 9, second(3000), false), at(1, 8, second(308), true)},
			reconcile.Repaired{Events: 5, Live: 5}},
		"never at the end": {[]bridge.Checkpoint{at(1, 9, second(3000), false)}, reconcile.Repaired{Live: 10}},
		"only empty pages": {[]bridge.Checkpoint{window}, reconcile.Repaired{Live: 10}},
		"at the end before a pause": {[]bridge.Checkpoint{pause, at(1, 9, second(3000), true)},
			reconcile.Repaired{Events: 10}},
		"at the end before a reset": {[]bridge.Checkpoint{reset, at(1, 9, second(3000), true)}, reconcile.Repaired{Live: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
				w.live.trail = test.trail
				if diff := cmp.Diff(&test.want, w.must(reconcile.Repair).Repair); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestRepairNearTheFrontier: an API may list an event some minutes after it took it in, so
// that the stream may still publish it. It is repaired only once the stream has been at
// the end again, by the API's clock; otherwise it is left to the stream.
func TestRepairNearTheFrontier(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reaches, byAPI bool
		want           reconcile.Repaired
	}{
		"it reaches the end":             {true, true, reconcile.Repaired{Events: 9}},
		"it does not":                    {false, true, reconcile.Repaired{Live: 10}},
		"it does, by a clock of its own": {true, false, reconcile.Repaired{Live: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			all := items(10)
			inOwnWorld(t, all, nil, func(t *testing.T, w *world) {
				w.live.trail = []bridge.Checkpoint{atEnd(5, second(30))}
				if test.reaches {
					time.AfterFunc(10*time.Second, func() {
						w.topic.Append(1, all[5].record()) // listed late
						c := atEnd(6, time.Now().UnixMilli())
						c.PositionByAPI = test.byAPI
						w.live.commit(c)
					})
				}
				w.cfg.To = second(20)
				if diff := cmp.Diff(&test.want, w.must(reconcile.Repair).Repair); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestRepairMoved: a stream that is moved meanwhile may publish the events itself.
func TestRepairMoved(t *testing.T) {
	inOwnWorld(t, items(10), nil, func(t *testing.T, w *world) {
		w.live.onLook = func(int) {
			if len(w.repair.published) == 4 { // the first page
				c := atEnd(0, second(6000))
				c.Epoch = 2
				w.live.commit(c)
			}
		}
		err := w.refused(reconcile.Repair, reconcile.Moved)
		if !strings.Contains(err.Error(), "was moved meanwhile, from epoch 1 to 2") || len(w.repaired()) != 4 {
			t.Errorf("%v, published %v", err, w.repair.published)
		}
	})
}

// TestRepairWithoutIngestion: events do not say when the API took them in. Only a stream
// that came to the end of the export after they were read has passed them.
func TestRepairWithoutIngestion(t *testing.T) {
	all := withoutIngestion(items(10))
	inOwnWorld(t, all, all[:5], func(t *testing.T, w *world) {
		r := w.must(reconcile.Rehearse)
		if diff := cmp.Diff(&reconcile.Repaired{Unproven: 5}, r.Repair); diff != "" {
			t.Errorf("a rehearsal (-want +got):\n%s", diff)
		}
		began := time.Now()
		time.AfterFunc(10*time.Second, func() {
			// The stream publishes one of them, and comes to the end.
			w.topic.Append(1, all[5].record())
			w.live.commit(atEnd(6, time.Now().UnixMilli()))
		})
		r = w.must(reconcile.Repair)
		if diff := cmp.Diff(&reconcile.Repaired{Events: 4}, r.Repair); diff != "" || time.Since(began) < 10*time.Second {
			t.Errorf("after %s (-want +got):\n%s", time.Since(began), diff)
		}
		if want(t, "repaired", r, counts{API: 10, Held: 6, Missing: 4}); !slices.Equal(w.repaired(),
			[]string{"e6", "e7", "e8", "e9"}) || !slices.Equal(w.said, []string{"awaiting the end"}) {
			t.Errorf("published %v, said %v", w.repair.published, w.said)
		}
	})
}

// TestRepairWithoutIngestionClockAhead: the record time of such events is unknown, so the
// whole topic is read before they are published.
func TestRepairWithoutIngestionClockAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ahead := item{id: "ahead", at: second(40_000)}
		w := newWorld(t, []item{ahead}, nil)
		w.cfg.From, w.cfg.To = second(39_000), second(41_000)
		w.live.trail[0].PositionTime = second(50_000)
		r := ahead.record()
		r.Timestamp = time.UnixMilli(second(1))
		w.topic.Append(0, r)
		time.AfterFunc(10*time.Second, func() { w.live.commit(atEnd(6, time.Now().UnixMilli())) })
		if r := w.must(reconcile.Repair); r.Missing != 0 || r.Held != 1 || len(w.repair.published) > 0 {
			t.Errorf("%+v, published %v", r, w.repair.published)
		}
	})
}

// TestRepairWithoutIngestionRefused: the stream does not show that it has passed them.
func TestRepairWithoutIngestionRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*world)
		why    reconcile.Reason
		says   string
	}{
		"nobody runs it": {func(w *world) { w.live.running = false }, reconcile.NotRunning, "no process runs stream events"},
		"it is paused": {func(w *world) {
			c := atEnd(6, time.Now().UnixMilli())
			c.Kind, c.PausedUntil = bridge.KindPause, time.Now().Add(time.Hour).UnixMilli()
			w.live.commit(c)
		}, reconcile.StreamPaused, "the stream is paused"},
		"it does not come to the end": {func(*world) {}, reconcile.NotAtEnd,
			"it has not reached the end of the export within 6m0s"},
		"it was at the end just before": {func(w *world) {
			time.AfterFunc(time.Second, func() { w.live.commit(atEnd(6, time.Now().UnixMilli())) })
		}, reconcile.NotAtEnd, "has not reached the end"},
		"its position is by a clock of its own": {func(w *world) {
			time.AfterFunc(2*time.Second, func() {
				c := atEnd(6, time.Now().Add(time.Hour).UnixMilli())
				c.PositionByAPI = false
				w.live.commit(c)
			})
		}, reconcile.NotAtEnd, "has not reached the end"},
	} {
		t.Run(name, func(t *testing.T) {
			inOwnWorld(t, withoutIngestion(items(3)), nil, func(t *testing.T, w *world) {
				test.change(w)
				err := w.refused(reconcile.Repair, test.why)
				if !strings.Contains(err.Error(), "missing events lack an ingestion time") ||
					!strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "1970-") {
					t.Errorf("it says %q, want %q", err, test.says)
				}
				if len(w.repair.published) > 0 {
					t.Errorf("published %v", w.repair.published)
				}
			})
		})
	}
}

// TestRepairWithoutIngestionInParts: each part is read later than the previous one, so that
// the stream must reach the end of the export again for each.
func TestRepairWithoutIngestionInParts(t *testing.T) {
	inOwnWorld(t, withoutIngestion(items(40)), nil, func(t *testing.T, w *world) {
		w.cfg.Batch, w.cfg.To = 25, second(40)
		polling, stop := context.WithCancel(t.Context())
		var polls sync.WaitGroup
		polls.Go(func() { // the stream polls every 20 seconds
			for seq := int64(6); polling.Err() == nil; seq++ {
				w.live.commit(atEnd(seq, time.Now().UnixMilli()))
				select {
				case <-time.After(20 * time.Second):
				case <-polling.Done():
				}
			}
		})
		r := w.must(reconcile.Repair)
		stop()
		polls.Wait()
		if r.Repair.Events != 40 || len(w.said) != r.Parts || r.Parts < 2 {
			t.Errorf("%+v in %d parts, said %v", r.Repair, r.Parts, w.said)
		}
		w.repaired()
	})
}
