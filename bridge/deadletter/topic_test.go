package deadletter_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
)

func placesOf(all []deadletter.DeadLetter) []string {
	var places []string
	for _, l := range all {
		places = append(places, l.String())
	}
	return places
}

// TestList: the newest letters of the stream first, over all partitions.
func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 6 {
		reason := bridge.DefectTime
		if i%3 == 0 {
			reason = bridge.DefectTooLarge
		}
		w.whole(item(fmt.Sprint("e", i)), reason)
	}
	w.log.Append(0, fakelog.Record(written.Add(-1), item("other"), "eb-stream", "another", "eb-reason", "too-large"),
		fakelog.Record(written, "nobody's"))
	w.position(item("large"), "large", "c+1", 2)
	for name, test := range map[string]struct {
		q    deadletter.Query
		want []string
	}{
		"all":               {deadletter.Query{Limit: 50}, []string{"0:5", "1:2", "0:2", "1:1", "0:1", "1:0", "0:0"}},
		"the newest":        {deadletter.Query{Limit: 2}, []string{"0:5", "1:2"}},
		"the newest of all": {deadletter.Query{Limit: 1}, []string{"0:5"}},
		"of a reason":       {deadletter.Query{Limit: 50, Reason: "too-large"}, []string{"0:5", "1:1", "0:0"}},
		"since a time":      {deadletter.Query{Limit: 50, Since: written.UnixMilli() + 4000}, []string{"0:5", "1:2", "0:2"}},
		"of both": {deadletter.Query{Limit: 50, Since: written.UnixMilli() + 1, Reason: "too-large"},
			[]string{"0:5", "1:1"}},
		"of none": {deadletter.Query{Limit: 50, Since: written.UnixMilli() + 60_000}, nil},
	} {
		all, err := w.topic.List(t.Context(), test.q)
		if got := placesOf(all); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, test.want)
		}
	}
	all := must.Get(w.topic.List(t.Context(), deadletter.Query{Limit: 2}))(t)
	if l := all[0]; l.Whole || l.ID != "large" || l.Size != len(item("large")) || l.Cursor != "c+1" || l.Index != 2 {
		t.Errorf("a letter that holds a position: %+v", l)
	}
	if l := all[1]; !l.Whole || l.Item != nil || l.Size != len(item("e5")) || l.Reason != bridge.DefectTime ||
		l.CursorHash != bridge.CursorHash("c") || l.Index != 5 {
		t.Errorf("a letter that holds its item, in a list without it: %+v", l)
	}
}

// TestHeaders: a list shows the headers of a letter, but none that may name a person.
func TestHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.log.Append(1, fakelog.Record(written, item("a"), "eb-stream", w.topic.Stream, "eb-reason", "bad-timestamp",
		"ce_type", "orderPlaced\xff",
		"ce_id", "an-id", "ce_subject", "somebody", "of-others", "somebody", "__dlq.errors.message",
		strings.Repeat("m", 300)))
	all, err := w.topic.List(t.Context(), deadletter.Query{Limit: 1})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	want := map[string]string{
		"eb-stream": w.topic.Stream, "eb-reason": "bad-timestamp", "ce_type": "orderPlaced\uFFFD",
		"__dlq.errors.message": strings.Repeat("m", 256),
	}
	if diff := cmp.Diff(want, all[0].Headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// TestCutReading: what was not read to its end is an error, not a shorter list.
func TestCutReading(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var places []deadletter.Place
	for i := range 10 {
		places = append(places, w.letter(fmt.Sprint("e", i)))
	}
	w.log.Cut(5)
	for name, look := range map[string]func() (int, error){
		"list": func() (int, error) {
			all, err := w.topic.List(t.Context(), deadletter.Query{Limit: 8})
			return len(all), err
		},
		"the newest one": func() (int, error) {
			w.log.Cut(1)
			all, err := w.topic.List(t.Context(), deadletter.Query{Limit: 1})
			return len(all), err
		},
		"places": func() (int, error) { w.log.Cut(5); _, err := w.topic.Places(t.Context(), ""); return 0, err },
		"load":   func() (int, error) { w.log.Cut(5); all, err := w.topic.Load(t.Context(), places); return len(all), err },
		"check":  func() (int, error) { w.log.Cut(5); return 0, w.topic.Check(t.Context(), places) },
		"retry":  func() (int, error) { w.log.Cut(5); all, err := w.retry(places...); return len(all), err },
	} {
		n, err := look()
		if _, ok := errors.AsType[*kafkaclient.IncompleteError](err); !ok || n > 0 || len(w.publisher.published) > 0 {
			t.Errorf("%s: %d letters, %v", name, n, err)
		}
	}
}

// TestLoad: a letter is shown as it is. One that does not exist, or is not the stream's, is
// reported as missing.
func TestLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := w.letter("a"), w.whole(`17`, bridge.DefectNotObject)
	w.log.Append(1, fakelog.Record(written, item("other"), "eb-stream", "another"))
	records, err := w.topic.Load(t.Context(), []deadletter.Place{second, first, second})
	if err != nil || len(records) != 3 {
		t.Fatal(records, err)
	}
	if string(records[0].Value) != `17` || string(records[1].Value) != item("a") || records[2].Offset != second.Offset {
		t.Errorf("not in the order that was asked for: %v", records)
	}
	if h := headersOf(records[0]); h["eb-reason"] != "not-an-object" || h["eb-index"] != "1" {
		t.Errorf("its headers are %v", h)
	}
	w.log.Delete(0, 1)
	for _, p := range []deadletter.Place{{Partition: 1, Offset: 1}, {Partition: 0, Offset: 7}, {Partition: 9}, first} {
		_, err := w.topic.Load(t.Context(), []deadletter.Place{second, p})
		if want := "topic dlq.export.events has no dead letter of stream events at " + p.String(); !errors.Is(err,
			deadletter.ErrNotFound) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestMissingTopic: a stream without a topic of dead letters has none.
func TestMissingTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic.Missing = true
	all, err := w.topic.List(t.Context(), deadletter.Query{Limit: 1})
	places, err2 := w.topic.Places(t.Context(), "")
	if len(all)+len(places) > 0 || err != nil || err2 != nil || w.log.Reads() > 0 {
		t.Errorf("%v, %v, %v, %v", all, err, places, err2)
	}
	if _, err := w.topic.Load(t.Context(), []deadletter.Place{{}}); !errors.Is(err, deadletter.ErrNotFound) {
		t.Error(err)
	}
}

func TestParsePlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]deadletter.Place{"0:17": {Offset: 17}, "3@5": {Partition: 3, Offset: 5}} {
		if got, err := deadletter.ParsePlace(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "17", "-1:2", "1:-2", "a:1", "99999999999:1"} {
		if _, err := deadletter.ParsePlace(text); err == nil || !strings.Contains(err.Error(), "PARTITION:OFFSET") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestRetryTopicMade: a letter whose event the topic has lost is published again, unless
// retention may have deleted it. A mark of an older version names no topic: its event is
// looked for.
func TestRetryTopicMade(t *testing.T) {
	t.Parallel()
	other := fakelog.Record(written, "{}")
	for name, test := range map[string]struct {
		change func(*world)
		want   deadletter.Outcome
	}{
		"the same topic": {func(*world) {}, deadletter.PublishedBefore},
		"made again":     {func(w *world) { w.events.Remake("second") }, deadletter.Published},
		"truncated":      {func(w *world) { w.events.Delete(0, 1) }, deadletter.Published},
		"truncated before": {func(w *world) { w.events.Append(0, w.publisher.last()); w.events.Delete(0, 1) },
			deadletter.PublishedBefore},
		"expired":       {func(w *world) { w.events.Expire(time.Hour); w.events.Delete(0, 1) }, deadletter.PublishedBefore},
		"an older mark": {func(w *world) { w.publisher.forgetTopics() }, deadletter.PublishedBefore},
		"an older mark, made again": {func(w *world) {
			w.publisher.forgetTopics()
			w.events.Remake("second")
			w.events.Append(0, other)
		}, deadletter.Published},
		"an older mark, without headers": {func(w *world) {
			w.publisher.forgetTopics()
			w.events.Remake("second")
			w.events.Append(0, fakelog.Record(written, item("a")))
		}, deadletter.PublishedBefore},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				place := w.letter("a")
				w.must([]deadletter.Place{place}, deadletter.Published)
				test.change(w)
				time.Sleep(time.Second) //nolint:forbidigo // virtual time: another mark has another one
				w.must([]deadletter.Place{place}, test.want)
				w.must([]deadletter.Place{place}, deadletter.PublishedBefore)
			})
		})
	}
}
