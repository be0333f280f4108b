package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/reconcile"
)

// counts is a Report's numbers.
type counts struct{ API, Held, Missing, Dead, Extra, Again int64 }

func countsOf(r *reconcile.Report) counts {
	return counts{r.API, r.Held, r.Missing, r.DeadLettered, r.Extra, r.Again}
}

func want(t *testing.T, what string, r *reconcile.Report, want counts) {
	t.Helper()
	if got := countsOf(r); got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := items(10)
		all[7].ingested = all[7].at + 90_000 // late
		outside := item{id: "before", at: second(-5), ingested: second(-4)}
		other := item{id: "other", at: second(3)}.record()
		other.Headers[0].Value = []byte("another stream")
		gone := item{id: "gone", at: second(4), ingested: second(5)}
		w := newWorld(t, append([]item{outside}, all...), append(all[2:], gone, outside, all[3], all[3]))
		w.topic.Append(1, other)
		w.dead.Append(0, fakelog.Record(time.UnixMilli(second(1)), all[1].raw(), "eb-stream", stream, "ce_id", "e1"))
		r := w.must(reconcile.Compare)
		want(t, "one of each", r, counts{API: 10, Held: 8, Missing: 1, Dead: 1, Extra: 1, Again: 2})
		if diff := cmp.Diff([]reconcile.Event{{ID: "e0", Time: time.UnixMilli(second(0)).UTC()}},
			r.MissingEvents); diff != "" {
			t.Errorf("missing (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]reconcile.Event{{ID: "gone", Time: time.UnixMilli(second(4)).UTC()}},
			r.ExtraEvents); diff != "" {
			t.Errorf("extra (-want +got):\n%s", diff)
		}
		late := reconcile.Lateness{Known: 10, Events: 1, P50: 90_000, P99: 90_000, Max: 90_000}
		if diff := cmp.Diff(late, r.Late, cmpopts.IgnoreUnexported(late)); diff != "" {
			t.Errorf("late (-want +got):\n%s", diff)
		}
		if r.Repair != nil || r.Position != second(5000) || !r.AtEnd || r.Topic != "export.events" || r.Parts != 1 ||
			len(w.parts) > 0 {
			t.Errorf("%+v, parts %v", r, w.parts)
		}
	})
}

// TestCompareForms: events without ids are distinguished by their bytes, and each copy
// counts. Records without headers are identified by their values.
func TestCompareForms(t *testing.T) {
	t.Parallel()
	nameless := item{at: second(1), form: "a"}
	again := item{id: "shared", at: second(2), form: "b"}
	form := item{id: "shared", at: second(2), form: "c"}
	for name, test := range map[string]struct {
		exported, published []item
		want                counts
	}{
		"two equal events without ids, one is there": {[]item{nameless, nameless}, []item{nameless},
			counts{API: 2, Held: 1, Missing: 1}},
		"one of them, twice there": {[]item{nameless}, []item{nameless, nameless},
			counts{API: 1, Held: 1, Again: 1}},
		"an event with an id listed twice": {[]item{again, again}, []item{again}, counts{API: 1, Held: 1}},
		"an id of two events, both there":  {[]item{again, form}, []item{form, again}, counts{API: 2, Held: 2}},
		"an id of two events, one there": {[]item{again, form}, []item{again, again},
			counts{API: 2, Held: 1, Missing: 1, Again: 1}},
		"an id of two events, the other there": {[]item{again, form}, []item{form}, counts{API: 2, Held: 1, Missing: 1}},
		"an id of which the bytes changed":     {[]item{again}, []item{form}, counts{API: 1, Held: 1}},
	} {
		for _, unmarked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unmarked %t", name, unmarked), func(t *testing.T) {
				inOwnWorld(t, test.exported, nil, func(t *testing.T, w *world) {
					for _, i := range test.published {
						r := i.record()
						if unmarked {
							r.Headers = nil
						}
						w.topic.Append(0, r)
					}
					w.cfg.Unmarked = unmarked
					want(t, "compared", w.must(reconcile.Compare), test.want)
				})
			})
		}
	}
}

// TestCompareUnmarkedRecords: records that were published without headers count after
// BRIDGE_HEADERS has changed, those of other programs do not.
func TestCompareUnmarkedRecords(t *testing.T) {
	all := items(4)
	inOwnWorld(t, all, all[2:], func(t *testing.T, w *world) {
		for _, i := range all[:2] {
			r := i.record()
			r.Headers = nil
			w.topic.Append(0, r)
		}
		at := time.UnixMilli(second(3))
		w.topic.Append(0, fakelog.Record(at, item{at: second(3), form: "theirs"}.raw()), fakelog.Record(at, "no item"),
			fakelog.Record(at, all[3].raw(), "ce_id", "e3"), fakelog.Record(at, all[3].raw(), "eb-stream", "another"))
		for _, unmarked := range []bool{false, true} {
			w.cfg.Unmarked = unmarked
			if r := w.must(reconcile.Compare); r.Missing != 0 || r.Held != 4 || !unmarked && r.Extra+r.Again != 0 {
				t.Errorf("unmarked %t: compared %+v, want the four events once", unmarked, countsOf(r))
			}
		}
	})
}

// TestCompareDeadLetters: a letter without the item's bytes, and one without the header, are
// identified by the rest of them.
func TestCompareDeadLetters(t *testing.T) {
	all := append(items(4), item{at: second(4), form: "no id"})
	inOwnWorld(t, all, nil, func(t *testing.T, w *world) {
		at := time.UnixMilli(second(3))
		substitute := fmt.Sprintf(`{"id":"e0","size":7,"sha256":%q,"index":2}`, strings.Repeat("0", 64))
		w.dead.Append(0,
			fakelog.Record(at, substitute, "eb-stream", stream, "eb-index", "2"),
			fakelog.Record(at, all[1].raw(), "eb-stream", stream),
			fakelog.Record(at, all[2].raw(), "eb-stream", "another"),
			fakelog.Record(at, all[4].raw(), "eb-stream", stream),
			fakelog.Record(at, all[4].raw(), "eb-stream", stream), // one copy is missing, not two
		)
		want(t, "compared", w.must(reconcile.Compare), counts{API: 5, Missing: 2, Dead: 3})
		w.ports.DeadLetters = nil
		want(t, "without that topic", w.must(reconcile.Compare), counts{API: 5, Missing: 5})
	})
}

// TestCompareInParts: memory is bounded, and the sums are the same.
func TestCompareInParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := items(400)
		held := slices.DeleteFunc(slices.Clone(all), func(i item) bool { return i.at%7000 == 0 })
		w := newWorld(t, all, held)
		missing := int64(len(all) - len(held))
		whole := w.must(reconcile.Compare)
		want(t, "whole", whole, counts{API: 400, Held: 400 - missing, Missing: missing})
		w.cfg.Batch = 30
		r := w.must(reconcile.Compare)
		want(t, "in parts", r, countsOf(whole))
		if diff := cmp.Diff(whole.MissingEvents, r.MissingEvents); diff != "" || len(r.MissingEvents) != 10 {
			t.Errorf("%d are named (-whole +parts):\n%s", len(r.MissingEvents), diff)
		}
		if r.Late.Known != whole.Late.Known || r.Parts < 400/30 || len(w.parts) != r.Parts {
			t.Errorf("%+v after %d parts", r, len(w.parts))
		}
		begin, events := w.cfg.From, int64(0)
		for _, p := range w.parts {
			if p.From != begin || p.Events > int64(w.cfg.Batch) {
				t.Errorf("part %+v, want it to begin at %d", p, begin)
			}
			begin, events = p.To, events+p.Events
		}
		if begin != w.cfg.To || events != 400 {
			t.Errorf("the parts end at %d with %d events", begin, events)
		}
	})
}

// TestCompareOpenTransaction: events that an open transaction hides are not missing. If it
// stays open, the comparison fails.
func TestCompareOpenTransaction(t *testing.T) {
	all := items(6)
	inOwnWorld(t, all, all[:4], func(t *testing.T, w *world) {
		commit := w.topic.Begin(1)
		w.topic.Append(1, all[4].record(), all[5].record())
		began := time.Now()
		time.AfterFunc(time.Minute, commit)
		want(t, "committed in the end", w.must(reconcile.Compare), counts{API: 6, Held: 6})
		if took := time.Since(began); took < time.Minute || len(w.said) == 0 ||
			!strings.Contains(w.said[0], "open transaction on partition 1 of topic export.events") {
			t.Errorf("after %s it has said %v", took, w.said)
		}

		w.topic.Begin(2)
		w.topic.Append(2, all[0].record())
		began = time.Now()
		_, err := w.run(reconcile.Compare)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "partition 2") || took < 15*time.Minute || took > time.Hour {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// TestCompareCut: a topic that is not read to its end is an error, not events
// that are missing. So are dead letters, and an export.
func TestCompareCut(t *testing.T) {
	t.Parallel()
	for _, cut := range []string{"the topic", "the dead letters"} {
		t.Run(cut, func(t *testing.T) {
			all := items(9)
			inOwnWorld(t, all, all[:7], func(t *testing.T, w *world) {
				w.dead.Append(0, all[7].record(), all[8].record())
				if w.topic.Cut(5); cut != "the topic" {
					w.topic.Cut(-1)
					w.dead.Cut(1)
				}
				r, err := w.run(reconcile.Repair)
				if _, ok := errors.AsType[*kafkaclient.IncompleteError](err); !ok || r != nil || len(w.repair.published) > 0 ||
					w.repair.open {
					t.Errorf("%+v, %v, repaired %v", r, err, w.repair.published)
				}
			})
		})
	}
	t.Run("the export", func(t *testing.T) {
		all := items(20)
		inOwnWorld(t, all, all, func(t *testing.T, w *world) {
			w.source.FailRequest(2, &bridge.Fault{Class: bridge.Transient, Err: bridgetest.ErrDown})
			w.source.FailRequest(4, &bridge.Fault{Class: bridge.Transient, RetryAfter: time.Hour, Err: bridgetest.ErrDown})
			began := time.Now()
			want(t, "after two outages", w.must(reconcile.Compare), counts{API: 20, Held: 20})
			if took := time.Since(began); took < time.Hour || took > time.Hour+time.Minute {
				t.Errorf("it took %s, want what Retry-After says", took)
			}
			w.source.Refuse(func(bridge.Position) error {
				return &bridge.Fault{Class: bridge.Permanent,
					Err: bridgetest.ErrDown}
			})
			asked := w.source.Requests()
			if _, err := w.run(reconcile.Compare); !errors.Is(err, bridgetest.ErrDown) || w.source.Requests() != asked+1 {
				t.Errorf("%v after %d requests", err, w.source.Requests()-asked)
			}
		})
	})
}

// TestCompareClockAhead: a record may be stamped when its event was published,
// long before the event's own time.
func TestCompareClockAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ahead := item{id: "ahead", at: second(40_000), ingested: second(1)}
		w := newWorld(t, []item{ahead}, nil)
		w.cfg.From, w.cfg.To = second(39_000), second(41_000)
		r := ahead.record()
		r.Timestamp = time.UnixMilli(ahead.ingested)
		w.topic.Append(0, r)
		want(t, "compared", w.must(reconcile.Compare), counts{API: 1, Held: 1})
	})
}

// TestWindowCircles: a circle of empty pages ends a range, as the end of the
// results, one with items is an error.
func TestWindowCircles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		items string
		fails bool
	}{
		"empty pages": {"", false},
		"with items":  {item{id: "1", at: second(1)}.raw() + "," + item{id: "2", at: second(2)}.raw(), true},
		"one item":    {item{id: "1", at: second(1)}.raw(), false}, // the last one, which each cursor includes
	} {
		t.Run(name, func(t *testing.T) {
			inOwnWorld(t, nil, nil, func(t *testing.T, w *world) {
				w.source.Serve(func(asked bridge.Position) bridgetest.Answer {
					next := "a"
					if asked.Cursor == "a" {
						next = "b"
					}
					if asked.Start != w.cfg.From || asked.End != w.cfg.To {
						t.Errorf("asked for %+v, want the bounds with each cursor", asked)
					}
					return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[%s],"nextCursor":%q}`, test.items, next)}
				})
				if !test.fails {
					missing := int64(strings.Count(test.items, "eventId"))
					want(t, "compared", w.must(reconcile.Compare), counts{API: missing, Missing: missing})
					return
				}
				if err := w.refused(reconcile.Compare, reconcile.CursorCycle); !strings.Contains(err.Error(), "cursor cycle") {
					t.Error(err)
				}
			})
		})
	}
}

// TestWindowForEver: a range that never ends, of an API that has marked its end elsewhere, is an error.
func TestWindowForEver(t *testing.T) {
	inOwnWorld(t, nil, nil, func(t *testing.T, w *world) {
		w.live.trail[0].MarksEnd = true
		w.source.Serve(func(at bridge.Position) bridgetest.Answer {
			n := 0
			if fmt.Sscanf(at.Cursor, "e%d", &n); n > 20_000 {
				t.Fatal("the range has no end")
			}
			return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[],"nextCursor":"e%d"}`, n+1)}
		})
		if err := w.refused(reconcile.Compare, reconcile.Endless); !strings.Contains(err.Error(), "10000 pages in a row") {
			t.Error(err)
		}
	})
}

// TestCutOff: an API that lists at most a page of a range, and names no next one, is asked for shorter
// ranges, down to a millisecond.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		apart int64 // ms between two items
		more  bool  // a member says that nothing follows
		api   int64
	}{"in seconds": {1000, false, 50}, "in one millisecond": {0, false, 0}, "that says so": {1000, true, 4}} {
		t.Run(name, func(t *testing.T) {
			all := items(50)
			for i := range all {
				all[i].at = second(0) + int64(i)*test.apart
			}
			inOwnWorld(t, nil, nil, func(t *testing.T, w *world) {
				w.cfg.PageSize, w.cfg.EndExplicit = 4, test.more
				w.source.Serve(func(at bridge.Position) bridgetest.Answer {
					var listed []string
					for _, i := range all {
						if i.at >= at.Start && i.at < at.End && len(listed) < 4 {
							listed = append(listed, i.raw())
						}
					}
					return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[%s]}`, strings.Join(listed, ","))}
				})
				if test.api == 0 {
					w.refused(reconcile.Compare, reconcile.CutOff)
					return
				}
				want(t, "compared", w.must(reconcile.Compare), counts{API: test.api, Missing: test.api})
			})
		})
	}
}

// TestInclusivePages: pages that begin with the item that ended the one before, with a
// fresh cursor at the end too, list each event once.
func TestInclusivePages(t *testing.T) {
	all := items(10)
	inOwnWorld(t, nil, all, func(t *testing.T, w *world) {
		asked := 0
		w.source.Serve(func(at bridge.Position) bridgetest.Answer {
			from := 0
			fmt.Sscanf(at.Cursor, "c%d", &from)
			to := min(from+4, len(all))
			var listed []string
			for _, i := range all[from:to] {
				listed = append(listed, i.raw())
			}
			asked++
			return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[%s],"nextCursor":"c%d.%d"}`, strings.Join(listed, ","), to-1,
				asked)}
		})
		want(t, "compared", w.must(reconcile.Compare), counts{API: 10, Held: 10})
	})
}

// misdated is an export whose event e0 has another time than the one by which it is listed.
type misdated struct {
	source
	at int64
}

func (s misdated) Decode(p *bridge.Page) error {
	err := s.source.Decode(p)
	for i := range p.Events {
		if string(p.Events[i].ID) == "e0" {
			p.Events[i].Time = s.at
		}
	}
	return err
}

// TestCompareOutside: events that the API lists in a range without their time are counted.
func TestCompareOutside(t *testing.T) {
	all := items(10)
	inOwnWorld(t, all, all, func(t *testing.T, w *world) {
		w.ports.Source = misdated{source{w.source}, second(-500)}
		r := w.must(reconcile.Compare)
		want(t, "one outside", r, counts{API: 10, Held: 10})
		if r.Outside != 1 {
			t.Errorf("%d events outside the range, want 1", r.Outside)
		}
	})
}

// TestCompareEarlierRecords: records with a timestamp long before the range are found, and
// their events are not published again.
func TestCompareEarlierRecords(t *testing.T) {
	t.Parallel()
	late, happened := item{id: "e0", at: second(1), ingested: second(2)}, second(-7200)
	ahead, open := item{id: "ahead", at: second(9000)}, item{id: "open", at: second(9000)}
	for name, tc := range map[string]struct {
		item  item
		stamp int64
		of    func(source) reconcile.Source
	}{
		"selected by arrival":         {late, happened, func(s source) reconcile.Source { return misdated{s, happened} }},
		"a clock two hours ahead":     {ahead, second(1800), func(s source) reconcile.Source { return s }},
		"neither time is in the item": {open, second(1800), func(s source) reconcile.Source { return timeless{s} }},
	} {
		t.Run(name, func(t *testing.T) {
			inOwnWorld(t, []item{tc.item}, nil, func(t *testing.T, w *world) {
				w.live.trail = []bridge.Checkpoint{atEnd(5, second(50_000))}
				w.cfg.From, w.cfg.To = tc.item.at-1000, tc.item.at+1000
				w.ports.Source = tc.of(source{w.source})
				r := fakelog.Record(time.UnixMilli(tc.stamp), tc.item.raw(), "eb-stream", stream, "ce_id", tc.item.id)
				w.topic.Append(0, r)
				want(t, "compared", w.must(reconcile.Compare), counts{API: 1, Held: 1})
				w.must(reconcile.Repair)
				if len(w.repair.published) > 0 {
					t.Errorf("published again: %v", w.repair.published)
				}
			})
		})
	}
}

// timeless is an export whose events have no time.
type timeless struct{ source }

func (s timeless) Decode(p *bridge.Page) error {
	err := s.source.Decode(p)
	for i := range p.Events {
		p.Events[i].Time = bridge.NoTime
	}
	return err
}

func (s timeless) DecodeItem(item []byte) (*bridge.Page, error) {
	p, err := s.source.DecodeItem(item)
	if err == nil {
		p.Events[0].Time = bridge.NoTime
	}
	return p, err
}

// TestCompareWithoutTimes: missing events are found, and what cannot be known
// is counted.
func TestCompareWithoutTimes(t *testing.T) {
	all := items(10)
	inOwnWorld(t, all, append(all[1:], item{id: "of another range", at: second(20)}), func(t *testing.T, w *world) {
		published := second(50) // the records carry the time of publishing
		w.topic = fakelog.New("export.events", 3)
		for n, i := range append(all[1:], item{id: "of another range", at: second(20)}) {
			w.topic.Append(int32(n%3), fakelog.Record(time.UnixMilli(published), i.raw(), "eb-stream", stream, "ce_id", i.id))
		}
		w.ports.Source, w.ports.Topic = timeless{source{w.source}}, w.topic
		r := w.must(reconcile.Compare)
		want(t, "without times", r, counts{API: 10, Held: 9, Missing: 1})
		if r.Undated != 10 || r.Late.Known != 0 {
			t.Errorf("%d events without a time, %d of known lateness; want 10, 0", r.Undated, r.Late.Known)
		}
	})
}
