package kafkarecord

import (
	"crypto/sha256"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// TestHeldUnderOtherRules: records without rules are known by their bytes. So are those of
// today's rules whose item had an id. All others are known by their ids, withheld items by
// their sums.
func TestHeldUnderOtherRules(t *testing.T) {
	t.Parallel()
	sums := bridge.NewSums(keyedSum, []byte("raw"), nil, false)
	e := bridge.Event{Raw: []byte("changed"), Sums: &sums}
	id := string(e.AppendRecordID(nil))
	for name, tc := range map[string]struct {
		value, id, rules string
		want             bool
	}{
		"today's rules":                 {"changed", "x", "today", true},
		"today's rules, its id":         {"other", id, "today", true},
		"no rules":                      {"raw", "x", "", true},
		"no rules, other bytes":         {"other", id, "", false},
		"other rules, its id":           {"other", id, "before/k1", true},
		"other rules, another id":       {"changed", "x", "before/k1", false},
		"other rules that change ids":   {"changed", id, "before" + bridge.IDsChanged, true},
		"other rules, the bytes before": {"raw", "x", "before/k1", false},
	} {
		h := newPublishedIndex(false, "today")
		headers := []kgo.RecordHeader{{Key: HeaderID, Value: []byte(tc.id)}}
		if tc.rules != "" {
			headers = append(headers, kgo.RecordHeader{Key: HeaderRedacted, Value: []byte(tc.rules)})
		}
		h.add(&kgo.Record{Value: []byte(tc.value), Headers: headers})
		if got := h.Match(&e); got != tc.want {
			t.Errorf("%s: held %v, want %v", name, got, tc.want)
		}
		if want := tc.rules == "before"+bridge.IDsChanged; h.otherIDs != want {
			t.Errorf("%s: ids differ: %v, want %v", name, h.otherIDs, want)
		}
	}
}

// TestHeldSharedUnderOtherRules: of events that share an id, as many are held as there are records of
// the id under other rules. Another one is news, and a held one stays held.
func TestHeldSharedUnderOtherRules(t *testing.T) {
	t.Parallel()
	item := func(received string) *bridge.Event {
		sums := bridge.NewSums(keyedSum, []byte(received), []byte("x"), false)
		return &bridge.Event{ID: []byte("x"), Raw: []byte("today " + received), Sums: &sums}
	}
	for name, tc := range map[string]struct{ records, letters, want int }{
		"none": {0, 0, 0}, "one": {1, 0, 1}, "a letter": {0, 1, 1}, "a record and a letter": {1, 1, 2}, "two": {2, 0, 2},
	} {
		h := newPublishedIndex(false, "today")
		r := func(n int) *kgo.Record {
			return &kgo.Record{Value: []byte{byte(n)}, Headers: []kgo.RecordHeader{
				{Key: HeaderID, Value: []byte("x")}, {Key: HeaderRedacted, Value: []byte("before")},
			}}
		}
		for n := range tc.records {
			h.add(r(n))
		}
		for n := range tc.letters {
			h.addLetter(r(n))
		}
		for again := range 2 {
			held := 0
			for _, received := range []string{"created", "paid", "sent"} {
				if h.Match(item(received)) {
					held++
				}
			}
			if held != tc.want {
				t.Errorf("%s, listed %d times: %d of 3 events are held, want %d", name, again+1, held, tc.want)
			}
		}
	}
}

// TestHeldAgainUnderOtherRules: an item that is listed again with other private data has the same bytes under today's
// rules, so it stays held. Items without bytes, to which a rule cannot be applied, are told apart by their sums.
func TestHeldAgainUnderOtherRules(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		raw  []byte
		want int
	}{{[]byte("today"), 3}, {nil, 1}} {
		h := newPublishedIndex(false, "today")
		h.add(&kgo.Record{Headers: []kgo.RecordHeader{
			{Key: HeaderID, Value: []byte("x")}, {Key: HeaderRedacted, Value: []byte("before")},
		}})
		for again := range 2 {
			held := 0
			for _, received := range []string{"seen at 1", "seen at 2", "seen at 3"} {
				sums := bridge.NewSums(keyedSum, []byte(received), []byte("x"), false)
				if h.Match(&bridge.Event{ID: []byte("x"), Raw: tc.raw, Sums: &sums}) {
					held++
				}
			}
			if held != tc.want {
				t.Errorf("bytes %q, listed %d times: %d of 3 items are held, want %d", tc.raw, again+1, held, tc.want)
			}
		}
	}
}

// TestHeldWithEqualBytes: items without ids that differ in private data alone have records of
// their own. Once there is an id (EXPORT_ITEM_ID), bytes are all that names such a record.
func TestHeldWithEqualBytes(t *testing.T) {
	t.Parallel()
	item := func(received string) *bridge.Event {
		sums := bridge.NewSums(keyedSum, []byte(received), nil, false)
		return &bridge.Event{Raw: []byte("changed"), Sums: &sums}
	}
	a, b := item("a"), item("b")
	for _, letters := range []bool{false, true} {
		h := newPublishedIndex(false, "today")
		r := &kgo.Record{Value: a.Raw, Headers: []kgo.RecordHeader{
			{Key: HeaderID, Value: a.AppendRecordID(nil)}, {Key: HeaderRedacted, Value: []byte("today")},
		}}
		if letters {
			h.addLetter(r)
		} else {
			h.add(r)
		}
		named := *a
		named.ID = []byte("1")
		if !h.Match(&named) || h.Match(b) || !h.Match(a) || h.Match(a) {
			t.Errorf("letters %v: a record is held once, by its item alone", letters)
		}
	}
}

func keyedSum(text []byte) [32]byte { return sha256.Sum256([]byte("keyed " + string(text))) }

// TestHeldEncrypted: a record with encrypted values is known by its bytes, so that another event
// with its id is news. If the subject is forgotten since, its id is all that it is known by.
func TestHeldEncrypted(t *testing.T) {
	t.Parallel()
	const rules = "today" + bridge.ValuesEncrypted
	for name, tc := range map[string]struct {
		value, id      string
		replaced, want bool
	}{
		"its bytes":                     {"now", "x", false, true},
		"its id with other bytes":       {"before", "id", false, false},
		"its id, forgotten since":       {"before", "id", true, true},
		"another id, forgotten since":   {"before", "x", true, false},
		"its bytes, forgotten long ago": {"now", "x", true, true},
	} {
		sums := bridge.NewSums(keyedSum, []byte("raw"), []byte("id"), false)
		sums.Replaced = tc.replaced
		e := bridge.Event{ID: []byte("id"), Raw: []byte("now"), Sums: &sums}
		h := newPublishedIndex(false, rules)
		h.add(&kgo.Record{Value: []byte(tc.value), Headers: []kgo.RecordHeader{
			{Key: HeaderID, Value: []byte(tc.id)}, {Key: HeaderRedacted, Value: []byte(rules)},
		}})
		if got := h.Match(&e); got != tc.want {
			t.Errorf("%s: held %v, want %v", name, got, tc.want)
		}
	}
}

// TestHeldWithoutTime: a letter of an older version has the time 0 if its withheld item has no time. It is known by its
// key.
func TestHeldWithoutTime(t *testing.T) {
	t.Parallel()
	sums := bridge.NewSums(keyedSum, []byte("raw"), []byte("id"), false)
	e := bridge.Event{ID: []byte("id"), Sums: &sums, Defect: bridge.DefectPrivate, Time: bridge.NoTime}
	for at, want := range map[string]bool{"": true, "1970-01-01T00:00:00.000Z": true, "1970-01-01T00:00:01.000Z": false} {
		h := newPublishedIndex(true, "rules")
		h.addLetter(&kgo.Record{Headers: []kgo.RecordHeader{{Key: HeaderID, Value: []byte("id")},
			{Key: HeaderTime, Value: []byte(at)}, {Key: HeaderSpecVersion, Value: []byte("1.0")}}})
		if got := h.Match(&e); got != want {
			t.Errorf("ce_time %q: held %v, want %v", at, got, want)
		}
	}
}
