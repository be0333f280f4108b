package keyring

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/seal"
)

// TestDueAfter: a deleted key, and nothing after the segment has taken its last record, needs a
// record that closes the segment.
func TestDueAfter(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000_000, 0)
	gone := &kgo.Record{Timestamp: at}
	soon := &kgo.Record{Timestamp: at.Add(time.Minute), Value: []byte("x")}
	late := &kgo.Record{Timestamp: at.Add(rollAfter), Value: []byte("x")}
	var due time.Time
	for _, step := range []struct {
		record *kgo.Record
		want   time.Time
	}{{soon, time.Time{}}, {gone, at.Add(rollAfter)}, {soon, at.Add(rollAfter)}, {late, time.Time{}}} {
		if due = dueAfter(due, step.record); !due.Equal(step.want) {
			t.Errorf("after %v due %v, want %v", step.record.Timestamp, due, step.want)
		}
	}
}

// TestRoll: the record is published once it is due, and not before.
func TestRoll(t *testing.T) {
	t.Parallel()
	m, err := seal.ParseMaster("m1 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Kafka: kafkaclient.DefaultConfig(), Topic: "roll" + time.Now().Format("150405.000000"), Master: m}
	cfg.Kafka.Brokers = kafkatest.Brokers(t)
	kafkatest.CreateTopic(t, cfg.Kafka.Brokers, cfg.Topic, 1, map[string]*string{"cleanup.policy": new("compact")})
	topic, err := cfg.open(t.Context(), cfg.Kafka.CanKeepKeys)
	if err != nil {
		t.Fatal(err)
	}
	defer topic.client.Close()
	for want, due := range []time.Time{time.Now().Add(time.Hour), time.Now().Add(-time.Second)} {
		r := &Ring{cfg: cfg, rollAt: due}
		if err := r.roll(t.Context(), topic.client); err != nil {
			t.Fatal(err)
		}
		if end, err := topic.end(t.Context()); err != nil || end != int64(want) {
			t.Errorf("due %v: %d records, %v; want %d", due, end, err, want)
		}
	}
	read := 0
	err = topic.to(t.Context(), 1, func(_ *kgo.Record, f *seal.Record) {
		if read++; f != nil {
			t.Errorf("the record has a meaning: %+v", f)
		}
	})
	if err != nil || read != 1 {
		t.Errorf("%d records read, %v", read, err)
	}
}
