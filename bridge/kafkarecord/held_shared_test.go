package kafkarecord

import (
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
