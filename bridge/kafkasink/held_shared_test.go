package kafkasink

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// TestHeldTellsSharedIDsApart: of events that share an id only those are held
// whose bytes are; one that is alone is known by its id.
func TestHeldTellsSharedIDsApart(t *testing.T) {
	t.Parallel()
	h := newPublishedIndex(false)
	record := func(value string) {
		h.add(&kgo.Record{Value: []byte(value), Headers: []kgo.RecordHeader{{Key: HeaderID, Value: []byte("x")}}})
	}
	record("one")
	record("two")
	record("two")
	for _, tc := range []struct {
		value        string
		shared, want bool
	}{
		{"one", true, true}, {"two", true, true}, {"three", true, false}, {"three", false, true},
	} {
		e := bridge.Event{ID: []byte("x"), Raw: []byte(tc.value), Shared: tc.shared}
		if got := h.Match(&e); got != tc.want {
			t.Errorf("%s, shared %v: held %v, want %v", tc.value, tc.shared, got, tc.want)
		}
	}
}
