package deadletter_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
)

// TestRetry: letters are published with a mark each, in the requested order, and a rehearsal
// only reports that. Nothing is published twice.
func TestRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		places := []deadletter.Place{
			w.letter("a"),
			w.add(item("b"), "eb-reason", "bad-timestamp", "eb-index", "7", "ce_source", "/a%2Fb/web%20shop/events"),
		}
		w.publisher.rehearsal = true
		w.must(places, deadletter.WouldPublish, deadletter.WouldPublish)
		if len(w.publisher.marks) > 0 {
			t.Errorf("a rehearsal leaves %v", w.publisher.marks)
		}
		w.publisher.rehearsal = false
		all := w.must(places, deadletter.Published, deadletter.Published)
		want := deadletter.Retried{Letter: "0:0", Reason: bridge.DefectTime, ID: "a", From: "bytes",
			Result: deadletter.Published}
		if all[0] != want {
			t.Errorf("%+v, want %+v", all[0], want)
		}
		if !slices.Equal(w.publisher.published, []string{item("a"), item("b")}) ||
			w.publisher.sources[1] != (bridge.SourceIdentity{Organization: "a/b", Application: "web shop"}) {
			t.Errorf("published %v of %v", w.publisher.published, w.publisher.sources)
		}
		if w.publisher.indexes[1] != 7 {
			t.Errorf("an error would name item %d, want 7", w.publisher.indexes[1])
		}
		// The form of a mark is kept for ever.
		mark := fmt.Sprintf(`{"v":1,"topic":"dlq.export.events","written":%d,"id":"a",`+
			`"item":"afe677844772d1ddf499f5c03eab22b1","form":"a75f1f254b533f7a8f7483f0d8472f4e","into":"first","at":%d,"by":"a test"}`,
			written.UnixMilli(), time.Now().UnixMilli())
		if got := string(w.publisher.marks["0/0/7014d2d0"]); got != mark {
			t.Errorf("its mark is\n%s, want\n%s", got, mark)
		}
		again := w.must(append(places, places...), deadletter.PublishedBefore, deadletter.PublishedBefore,
			deadletter.PublishedBefore, deadletter.PublishedBefore)
		if !strings.HasPrefix(again[0].Detail, "at 2000-01-01 ") {
			t.Errorf("%+v", again[0])
		}
	})
}

// TestRetryOtherTopic: a topic of another name, and a recreated one, have other letters at the
// same places. Marks of older versions have the name of the place alone.
func TestRetryOtherTopic(t *testing.T) {
	t.Parallel()
	old := newWorld(t)
	place := old.letter("a")
	old.must([]deadletter.Place{place}, deadletter.Published)
	marks := old.publisher.marks
	older := make(map[string][]byte)
	for _, value := range marks {
		older["0/0"] = value
	}
	retried := func(w *world) bool {
		t.Helper()
		records := must.Get(w.topic.Load(t.Context(), []deadletter.Place{place}))(t)
		l := deadletter.Read(records[0])
		at := deadletter.RetriedAt(marks, &l)
		if was := deadletter.RetriedAt(older, &l); was != at {
			t.Errorf("retried at %s, by a mark of an older version at %s", at, was)
		}
		return !at.IsZero()
	}
	again, anew, other := newWorld(t), newWorld(t), newWorld(t)
	anew.letters = 2 // written later
	other.log = fakelog.New("another", 2)
	other.topic.Log = other.log
	for _, w := range []*world{again, anew, other} {
		w.letter("b")
	}
	if !retried(old) || !retried(again) || retried(anew) || retried(other) {
		t.Errorf("retried: %t, %t, %t, %t", retried(old), retried(again), retried(anew), retried(other))
	}
}

// TestRetryPlaceAgain: a letter at a place of another topic, or of one that was deleted and created again, does not
// take the mark of an earlier letter away.
func TestRetryPlaceAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		before := *w
		a := w.letter("a")
		w.must([]deadletter.Place{a}, deadletter.Published)
		for i, topic := range []string{"dlq.other", "dlq.export.events"} {
			w.log = fakelog.New(topic, 2)
			w.topic, w.letters = &deadletter.Topic{Log: w.log, Stream: stream}, 2*i // written later, again from partition 0 on
			b := w.letter("b" + topic)
			if a != b {
				t.Fatalf("places %s and %s", a, b)
			}
			time.Sleep(time.Second) //nolint:forbidigo // virtual time: another mark has another one
			w.must([]deadletter.Place{b}, deadletter.Published)
		}
		w.must([]deadletter.Place{w.letter("c"), w.letter("a")}, deadletter.Published, deadletter.Duplicate)
		w.log, w.topic = before.log, before.topic
		w.must([]deadletter.Place{a}, deadletter.PublishedBefore)
	})
}

// TestRetryDuplicates: an event that a rewind has left in several letters is
// published once, also over several retries. Events without ids that are equal
// may be two.
func TestRetryDuplicates(t *testing.T) {
	t.Parallel()
	const nameless = `{"timestamp":"soon","n":1}`
	formA, formB := `{"eventId":"s","timestamp":1,"form":"a"}`, `{"eventId":"s","timestamp":1,"form":"b"}`
	at := func(w *world, value, index string) deadletter.Place {
		return w.add(value, "eb-reason", "bad-timestamp", "eb-cursor-hash", bridge.CursorHash("c"), "eb-index", index)
	}
	w := newWorld(t)
	first, again := w.letter("a"), w.letter("a")
	if all := w.must([]deadletter.Place{first, again}, deadletter.Published,
		deadletter.Duplicate); all[1].Detail != "of dead letter 0:0" {
		t.Errorf("%+v", all[1])
	}
	later := w.must([]deadletter.Place{again, w.letter("a")}, deadletter.Duplicate, deadletter.Duplicate)
	if !strings.HasPrefix(later[0].Detail, "of dead letter 0:0, at 2") {
		t.Errorf("%+v", later[0])
	}
	w.must([]deadletter.Place{at(w, nameless, "1"), at(w, nameless, "2"), at(w, nameless, "1")}, deadletter.Published,
		deadletter.Published, deadletter.Duplicate)
	w.must([]deadletter.Place{w.whole(formA, bridge.DefectSharedID), w.whole(formB, bridge.DefectSharedID),
		w.whole(formA, bridge.DefectSharedID)},
		deadletter.Published, deadletter.Published, deadletter.Duplicate)

	// Marks of older versions name the event by its id alone.
	w = newWorld(t)
	w.events.Append(0, fakelog.Record(written, item("a"), "ce_id", "a"))
	w.publisher.marks["1/7"] = []byte(`{"v":1,"topic":"dlq.export.events","written":1,"id":"a","at":1}`)
	w.must([]deadletter.Place{w.letter("a"), w.letter("b")}, deadletter.Duplicate, deadletter.Published)
}

// TestRetryFromCursor: the page of a letter that holds only the item's position is fetched
// again.
func TestRetryFromCursor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.source.Append(item("a"), item("b"), item("c"), item("d"))
		page := must.Get(w.source.Fetch(t.Context(), bridge.Position{}))(t)
		cursor := page.Next
		page.Release()
		w.origin = bridge.Origin{Start: 500}
		w.source.FailRequest(2, &bridge.Fault{Class: bridge.Transient, Err: bridgetest.ErrDown})
		all := w.must([]deadletter.Place{
			w.position(item("b"), "b", "", 1), w.position(item("d"), "d", cursor, 0),
			w.position(`{"other":"bytes"}`, "c", "", 2), w.position(item("gone"), "gone", cursor, 0),
		}, deadletter.Published, deadletter.Published, deadletter.Published, deadletter.Refused)
		if all[0].From != "cursor" || all[2].Detail != "its bytes in the API have changed" ||
			all[3].Detail != "it is no longer on the page at its cursor (it was item 0)" {
			t.Errorf("%+v", all)
		}
		if !slices.Equal(w.publisher.published, []string{item("b"), item("d"), item("c")}) {
			t.Errorf("published %v", w.publisher.published)
		}
		if asked := w.source.Asked()[1]; asked != (bridge.Position{Start: 500}) {
			t.Errorf("the first page is asked for at %+v", asked)
		}
		w.source.Refuse(func(bridge.Position) error {
			return &bridge.Fault{Class: bridge.BadCursor, Err: errors.New("the cursor has expired")}
		})
		lost := w.add(fmt.Sprintf(`{"id":"x","size":1,"sha256":%q,"index":0}`, strings.Repeat("0", 64)), "eb-cursor-hash",
			"hash", "eb-index", "0")
		all = w.must([]deadletter.Place{w.position(item("e"), "e", cursor, 0), lost}, deadletter.Refused, deadletter.Refused)
		if !strings.Contains(all[0].Detail, "the API rejects its cursor: the cursor has expired") ||
			all[1].Detail != "its cursor was too long to be kept" {
			t.Errorf("%+v", all)
		}
		w.source.Refuse(func(bridge.Position) error {
			return &bridge.Fault{Class: bridge.Permanent,
				Err: bridgetest.ErrDown}
		})
		if all, err := w.retry(w.position(item("f"), "f", cursor, 0)); !errors.Is(err, bridgetest.ErrDown) ||
			!strings.Contains(err.Error(), "letter ") || len(all) > 0 {
			t.Errorf("an API that is away: %+v, %v", all, err)
		}
	})
}

// TestRetryWindow: the bounds of a window go with its cursors.
func TestRetryWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.source.Append(item("a"))
	w.origin = bridge.Origin{Start: 500, End: 2000}
	w.must([]deadletter.Place{w.position(item("a"), "a", "", 0)}, deadletter.Published)
	if asked := w.source.Asked()[0]; asked != (bridge.Position{Start: 500, End: 2000, Window: true}) {
		t.Errorf("asked at %+v", asked)
	}
	// A letter names the bounds of its own page.
	w.must([]deadletter.Place{w.position(item("a"), "a", "", 0, "eb-start", "700", "eb-end", "0")}, deadletter.Duplicate)
	if asked := w.source.Asked()[1]; asked != (bridge.Position{Start: 700}) {
		t.Errorf("asked at %+v", asked)
	}
}

// TestRetryByTime: an item that is not on the page of its letter is listed by its time, if the
// API takes bounds.
func TestRetryByTime(t *testing.T) {
	t.Parallel()
	for _, bounded := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.source.Append(item("a"), item("c"))
			w.origin = bridge.Origin{Start: 5000} // the stream was reset
			when := []string{"ce_time", time.UnixMilli(1000).UTC().Format(time.RFC3339Nano)}
			places := []deadletter.Place{w.position(item("a"), "a", "", 0, when...), w.position(item("b"), "b", "", 0, when...),
				w.position(`{"other":"bytes"}`, "c", "", 0, when...)}
			var got []deadletter.Retried
			r := w.retrying(func(one deadletter.Retried) error { got = append(got, one); return nil })
			r.Bounded = bounded
			must.Do(t, r.Run(t.Context(), places))
			if (got[0].Result == deadletter.Published) != bounded || got[1].Result != deadletter.Refused ||
				!strings.HasPrefix(got[1].Detail, "it is no longer on the page") ||
				(got[2].Detail == "its bytes in the API have changed") != bounded {
				t.Errorf("bounded %t: %+v", bounded, got)
			}
		})
	}
}

// TestRetrySharedID: a letter without its item that shares its id with another event stands for its own bytes only: the
// other event was published.
func TestRetrySharedID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := strings.Replace(item("a"), "{}", `{"n":2}`, 1)
	letter := w.add(fmt.Sprintf(`{"id":"a","size":%d,"sha256":"%x","index":1}`, len(other), sha256.Sum256([]byte(other))),
		"eb-reason", string(bridge.DefectSharedID), "eb-index", "1")
	w.source.Append(item("a"))
	w.must([]deadletter.Place{letter}, deadletter.Refused)
	w.source.Append(other)
	w.must([]deadletter.Place{letter}, deadletter.Published)
	if !slices.Equal(w.publisher.published, []string{other}) {
		t.Errorf("published %v", w.publisher.published)
	}
}

// TestRetryAmbiguous: a letter without its item has other reasons too, and events on its page share its id. If the bytes of its
// item have changed, nothing tells which of them it is. Copies of one event are that event.
func TestRetryAmbiguous(t *testing.T) {
	t.Parallel()
	for want, events := range map[deadletter.Outcome][]string{
		deadletter.Refused:   {item("a"), strings.Replace(item("a"), "{}", `{"n":2}`, 1)},
		deadletter.Published: {item("a"), item("a")},
	} {
		w := newWorld(t)
		letter := w.position(`{"other":"bytes"}`, "a", "", 0)
		w.source.Append(events...)
		w.must([]deadletter.Place{letter}, want)
	}
}

// TestRetryRefused: a letter that still cannot be published is reported with the reason, gets
// no mark, and does not stop the others.
func TestRetryRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publisher.tooLarge = "large"
	places := []deadletter.Place{w.whole(item("large"), bridge.DefectTooLarge),
		w.whole(`not JSON`, bridge.DefectNotObject), w.letter("b")}
	all := w.must(places, deadletter.Refused, deadletter.Refused, deadletter.Published)
	if all[0].Detail != "large is too large" || !strings.HasPrefix(all[1].Detail, "its bytes are not an item: ") ||
		len(w.publisher.marks) != 1 {
		t.Errorf("%+v, marks %v", all, w.publisher.marks)
	}
	w.publisher.tooLarge = ""
	w.must(places, deadletter.Published, deadletter.Refused, deadletter.PublishedBefore)
}

// TestRetryVanished: a letter that retention takes meanwhile ends the retry; what
// is published until then has its mark.
func TestRetryVanished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var places []deadletter.Place
	for i := range 140 { // more than are in memory at a time
		places = append(places, w.letter(fmt.Sprint("e", i)))
	}
	must.Do(t, w.topic.Check(t.Context(), places))
	n := 0
	r := w.retrying(func(deadletter.Retried) error {
		if n++; n == 10 {
			w.log.Delete(1, 60)
		}
		return nil
	})
	err := r.Run(t.Context(), places)
	if !errors.Is(err, deadletter.ErrNotFound) || n == 0 || n == len(places) || len(w.publisher.marks) != n ||
		len(w.publisher.published) != n {
		t.Errorf("%v after %d letters with %d marks", err, n, len(w.publisher.marks))
	}
	left := slices.DeleteFunc(places, func(p deadletter.Place) bool { return p.Partition == 1 && p.Offset < 60 })
	if _, err := w.retry(left...); err != nil {
		t.Error(err)
	}
	slices.Sort(w.publisher.published)
	if len(slices.Compact(w.publisher.published)) != len(w.publisher.marks) {
		t.Errorf("%d events with %d marks", len(w.publisher.published), len(w.publisher.marks))
	}
}

// TestRetryFails: whether or not the outcome of a failure was persisted, the next
// retry publishes nothing twice and leaves nothing out.
func TestRetryFails(t *testing.T) {
	t.Parallel()
	for _, how := range []bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted} {
		w := newWorld(t)
		places := []deadletter.Place{w.letter("a"), w.letter("b"), w.letter("c")}
		w.publisher.fails = map[int]bridgetest.Failure{2: how}
		all, err := w.retry(places...)
		if !errors.Is(err, bridgetest.ErrDown) || !strings.Contains(err.Error(), "letter 1:0: ") || len(all) != 1 {
			t.Errorf("%s: %+v, %v", how, all, err)
		}
		if _, err := w.retry(places...); err != nil {
			t.Error(err)
		}
		if !slices.Equal(w.publisher.published, []string{item("a"), item("b"), item("c")}) {
			t.Errorf("%s: published %v", how, w.publisher.published)
		}
	}
	w := newWorld(t)
	stop := errors.New("nobody reads")
	r := w.retrying(func(deadletter.Retried) error { return stop })
	if err := r.Run(t.Context(), []deadletter.Place{w.letter("a"), w.letter("b")}); !errors.Is(err, stop) ||
		len(w.publisher.published) != 1 {
		t.Errorf("%v, published %v", err, w.publisher.published)
	}
}

// TestRead: what looks like a substitute and is none is an item.
func TestRead(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0", 64)
	substitute := fmt.Sprintf(`{"id":"x","size":1,"sha256":%q,"cursor":"c","index":7}`, sum)
	for name, test := range map[string]struct {
		value, index, hash string
		whole              bool
	}{
		"a substitute":   {substitute, "7", bridge.CursorHash("c"), false},
		"another index":  {substitute, "8", bridge.CursorHash("c"), true},
		"another cursor": {substitute, "7", bridge.CursorHash("d"), true},
		"another member": {strings.Replace(substitute, `"size"`, `"x":1,"size"`, 1), "7", bridge.CursorHash("c"), true},
		"more behind it": {substitute + "{}", "7", bridge.CursorHash("c"), true},
		"no JSON":        {"x", "7", bridge.CursorHash("c"), true},
		"a short hash":   {strings.Replace(substitute, sum, "00", 1), "7", bridge.CursorHash("c"), true},
		"an empty item":  {"", "0", "", true},
	} {
		r := fakelog.Record(written, test.value, "eb-stream", stream, "eb-index", test.index, "eb-cursor-hash", test.hash,
			"ce_source", "not ours", "ce_id", strings.Repeat("i", 300))
		l := deadletter.Read(r)
		if l.Whole != test.whole || test.whole && string(l.Item) != test.value || l.Stream != stream ||
			l.Source != (bridge.SourceIdentity{}) {
			t.Errorf("%s: %+v", name, l)
		}
		if test.whole && (len(l.ID) != 256 || l.Size != len(test.value)) {
			t.Errorf("%s: an id of %d bytes, size %d", name, len(l.ID), l.Size)
		}
	}
}

// TestRetryOtherSource: a page of another tenant than the stream's ends the retry. The
// same position has another item there.
func TestRetryOtherSource(t *testing.T) {
	t.Parallel()
	mine := bridge.SourceIdentity{Organization: "a"}
	for page, refused := range map[bridge.SourceIdentity]bool{{Organization: "b"}: true, mine: false, {}: false} {
		w := newWorld(t)
		w.source, w.live = bridgetest.NewSource(t, bridgetest.Export{PageSize: 3, Identity: page}), mine
		w.source.Append(item("a"))
		_, err := w.retry(w.position(item("a"), "a", "", 0))
		if fault, ok := errors.AsType[*bridge.Fault](err); refused != (ok && fault.Reason == bridge.ReasonSource) ||
			refused == (len(w.publisher.published) > 0) {
			t.Errorf("page of %s: %v, published %v", page, err, w.publisher.published)
		}
	}
}

// TestRetryOtherRequest: settings that request another list fetch no page. The bytes of a
// whole letter are published: they are the stream's.
func TestRetryOtherRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.source.Append(item("a"))
	w.elsewhere = []string{"path"}
	if _, err := w.retry(w.position(item("a"), "a", "", 0)); err == nil ||
		!strings.Contains(err.Error(), "path changed") || w.source.Requests() > 0 {
		t.Errorf("%v after %d requests", err, w.source.Requests())
	}
	w.must([]deadletter.Place{w.letter("b")}, deadletter.Published)
}

// TestRetrySourceHangs: a source that hangs ends the retry by the engine's deadline.
func TestRetrySourceHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		place := w.position(item("c"), "c", "", 2)
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		r := w.retrying(nil)
		r.Source, r.FetchTimeout = &bridgetest.Hanging{Source: w.source, InFetch: bridgetest.Hang}, 5*time.Minute
		err := r.Run(ctx, []deadletter.Place{place})
		if fault, ok := errors.AsType[*bridge.Fault](err); !ok || fault.HintCode != bridge.HintOverdue {
			t.Errorf("hangs: %v", err)
		}
	})
}

// TestRetryAsksOnce: Kept is called once, not for each letter: each call is a connection.
func TestRetryAsksOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	events := &countedEvents{Log: w.events}
	places := []deadletter.Place{w.letter("a"), w.letter("b"), w.letter("c")}
	r := w.retrying(func(deadletter.Retried) error { return nil })
	r.Events = events
	if err := r.Run(t.Context(), places); err != nil || events.kept != 1 || len(w.publisher.published) != 3 {
		t.Errorf("asked %d times for %d letters: %v", events.kept, len(w.publisher.published), err)
	}
}

// countedEvents counts the calls of Kept.
type countedEvents struct {
	*fakelog.Log
	kept int
}

func (e *countedEvents) Kept(ctx context.Context) ([]kafkaclient.Kept, error) {
	e.kept++
	return e.Log.Kept(ctx)
}

// TestRetryCheck: the bytes of a letter are checked before they are published.
func TestRetryCheck(t *testing.T) {
	w := newWorld(t)
	places, checked := []deadletter.Place{w.letter("a"), w.letter("b")}, ""
	r := w.retrying(func(deadletter.Retried) error { return nil })
	r.Check = func(p *bridge.Page) { checked += string(p.Events[0].ID) }
	w.publisher.open()
	if err := r.Run(t.Context(), places); err != nil || checked != "ab" {
		t.Errorf("checked %q, want ab: %v", checked, err)
	}
}
