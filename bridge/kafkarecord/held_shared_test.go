package kafkarecord

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// TestHeldIsByBytes: an event is held under any headers; the same id with other bytes
// is an update, which no reader has seen.
func TestHeldIsByBytes(t *testing.T) {
	t.Parallel()
	h := newPublishedIndex(false, "")
	record := func(value string, headers ...kgo.RecordHeader) {
		h.add(&kgo.Record{Value: []byte(value), Headers: headers})
	}
	record("one", kgo.RecordHeader{Key: HeaderID, Value: []byte("x")})
	record("two", kgo.RecordHeader{Key: HeaderID, Value: []byte("x")})
	record("two", kgo.RecordHeader{Key: HeaderID, Value: []byte("x")})
	record("bare")
	for value, want := range map[string]bool{"one": true, "two": true, "bare": true, "three": false} {
		for _, shared := range []bool{true, false} {
			e := bridge.Event{ID: []byte("x"), Raw: []byte(value), Shared: shared}
			if got := h.Match(&e); got != want {
				t.Errorf("%s, shared %v: held %v, want %v", value, shared, got, want)
			}
		}
	}
}

// TestHeldByKeyShared: a changed item is held by its id and time. An item that shares them with others
// is held if a record or a dead letter has its bytes, or one whose bytes show no item.
func TestHeldByKeyShared(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		records, letters []string
		rules            string
		want             string // of the items a, b and c
	}{
		"none":             {},
		"one":              {records: []string{"a"}, want: "a"},
		"one twice":        {records: []string{"a", "a"}, want: "a"},
		"two":              {records: []string{"a", "b", "b"}, want: "ab"},
		"all":              {records: []string{"c", "b", "a"}, want: "abc"},
		"a letter":         {letters: []string{"b"}, want: "b"},
		"letter and event": {records: []string{"a"}, letters: []string{"b"}, want: "ab"},
		"changed":          {records: []string{"x"}},
		"other rules":      {records: []string{"x"}, rules: "before", want: "abc"},
		"a substitute":     {letters: []string{string((&Substitute{ID: "id", SHA256: strings.Repeat("0", 64)}).Encode())}, want: "abc"},
	} {
		h := newPublishedIndex(true, "")
		e := bridge.Event{ID: []byte("id"), Time: 1000}
		record := func(value string) *kgo.Record {
			r := &kgo.Record{Value: []byte(value), Headers: []kgo.RecordHeader{
				{Key: HeaderID, Value: e.ID}, {Key: HeaderTime, Value: []byte("1970-01-01T00:00:01.000Z")},
				{Key: HeaderSpecVersion, Value: []byte("1.0")}, {Key: HeaderIndex, Value: []byte("0")},
			}}
			if tc.rules != "" {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderRedacted, Value: []byte(tc.rules)})
			}
			return r
		}
		for _, value := range tc.records {
			h.add(record(value))
		}
		for _, value := range tc.letters {
			h.addLetter(record(value))
		}
		got := ""
		for _, value := range []string{"a", "b", "c"} {
			if e.Raw, e.Shared = []byte(value), true; h.Match(&e) {
				got += value
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q are held, want %q", name, got, tc.want)
		}
		e.Raw, e.Shared = []byte("changed"), false
		if any := len(tc.records)+len(tc.letters) > 0; h.Match(&e) != any {
			t.Errorf("%s: a changed item alone is held: %t", name, !any)
		}
	}
}
