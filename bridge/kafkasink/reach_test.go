package kafkasink

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaclient"
)

// TestRecordBelowTheKnownEnd: an acknowledgement where others were says how much
// is gone, and ends the session.
func TestRecordBelowTheKnownEnd(t *testing.T) {
	t.Parallel()
	known := &reach{topic: &kafkaclient.Topic{Name: "events"}, ends: []int64{10, 20}}
	must.Do(t, known.follows(&kgo.Record{Topic: "events", Partition: 1, Offset: 20}))
	err := fmt.Errorf("publish: %w", known.follows(&kgo.Record{Topic: "events", Partition: 1, Offset: 15}))
	cut, ok := errors.AsType[*bridge.CutOffError](err)
	if !ok || cut.Topic != "events" || cut.Offsets != 6 {
		t.Errorf("%v, want 6 offsets of events to be gone", err)
	}
	if !isTopicGone(err) {
		t.Error("the session goes on")
	}
}

// TestPartitionWithoutKey: records without a key stay in a partition until a batch is full.
// What chooses it takes 5 KB, which a stream whose records have keys does not hold.
func TestPartitionWithoutKey(t *testing.T) {
	t.Parallel()
	p := &eventPartitioner{reach: &reach{}}
	if p.Partition(&kgo.Record{Key: []byte("key")}, 3); p.sticky != nil {
		t.Error("a record with a key needs what chooses a partition without one")
	}
	first := p.Partition(&kgo.Record{}, 3)
	for range 10 {
		if next := p.Partition(&kgo.Record{}, 3); next != first {
			t.Errorf("partition %d after %d within a batch", next, first)
		}
	}
	p.OnNewBatch()
	if next := p.Partition(&kgo.Record{}, 3); next == first {
		t.Errorf("partition %d again after a batch", next)
	}
}
