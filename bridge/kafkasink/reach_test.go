package kafkasink

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// TestRecordBelowTheKnownEnd: an acknowledgement where others were says how much
// is gone, and ends the session.
func TestRecordBelowTheKnownEnd(t *testing.T) {
	t.Parallel()
	known := &reach{topic: &kafkaclient.Topic{Name: "events"}, ends: []int64{10, 20}}
	if err := known.follows(&kgo.Record{Topic: "events", Partition: 1, Offset: 20}); err != nil {
		t.Fatal(err)
	}
	err := fmt.Errorf("publish: %w", known.follows(&kgo.Record{Topic: "events", Partition: 1, Offset: 15}))
	cut, ok := errors.AsType[*bridge.CutOffError](err)
	if !ok || cut.Topic != "events" || cut.Offsets != 6 {
		t.Errorf("%v, want 6 offsets of events to be gone", err)
	}
	if !isTopicGone(err) {
		t.Error("the session goes on")
	}
}
