package kafkasink_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// deleteAll deletes everything that a compacted topic holds, as a spell of
// cleanup.policy=compact,delete may: no partition begins at 0 then.
func deleteAll(t *testing.T, cfg kafkastream.Config, topic string) {
	t.Helper()
	admin := kadm.NewClient(connect(t, cfg))
	var all []*kgo.Record
	for p := range int32(16) {
		all = append(all, &kgo.Record{Topic: topic, Partition: p, Key: []byte("x"), Value: []byte("x")})
	}
	produce(t, cfg, all...)
	kafkatest.SetConfig(t, admin, topic, "cleanup.policy", "compact,delete")
	kafkatest.Eventually(t, "delete the records", func() (bool, error) {
		ends, err := admin.ListEndOffsets(t.Context(), topic)
		if err != nil {
			return false, err
		}
		deleted, err := admin.DeleteRecords(t.Context(), ends.Offsets())
		return err == nil && deleted.Error() == nil, err
	})
	kafkatest.SetConfig(t, admin, topic, "cleanup.policy", "compact")
}

// A log of checkpoints may begin anywhere: without a checkpoint, and with one.
func TestLogBeginsLater(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	recovered(t, cfg).Close()
	deleteAll(t, cfg, cfg.CheckpointTopic)
	if got := trailOf(t, open(t, cfg), 10); len(got) > 0 {
		t.Errorf("the trail of a log that holds nothing: %v", got)
	}
	s := recovered(t, cfg)
	mustCommit(t, s, batch(cfg, 1))
	must.Do(t, tryRecover(t, s))
	if got := trailOf(t, open(t, cfg), 10); len(got) != 1 {
		t.Errorf("the trail is %v, want the one checkpoint", got)
	}
}

// Nor do jobs and marks need a log that begins at 0.
func TestJobsLogBeginsLater(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	recovered(t, cfg).Close()
	jobs := jobsOf(cfg)
	job, window := newJob(t, cfg, backfill.Backfill, "aaaaaa")
	put(t, jobs, job)
	deleteAll(t, cfg, window.CheckpointTopic)
	if all, err := jobs.list(t.Context()); len(all) > 0 || err != nil {
		t.Errorf("list of a log that holds nothing: %v, %v", all, err)
	}
	if marks, err := kafkasink.Marks(t.Context(), cfg.Wired(), kafkasink.JobDLQ); len(marks) > 0 || err != nil {
		t.Errorf("marks of a log that holds nothing: %v, %v", marks, err)
	}
	put(t, jobs, job)
	if all, err := jobs.list(t.Context()); len(all) != 1 || err != nil {
		t.Errorf("list: %v, %v; want the job", all, err)
	}
	r := must.Get(kafkasink.OpenRepair(t.Context(), cfg.Wired(), kafkasink.JobDLQ))(t)
	defer r.Close()
	must.Get(r.Publish(t.Context(), page(event("again", "u")), "0/1", []byte("{}")))(t)
}

// produceAs puts n records of a stream into partition 0 of a topic.
func produceAs(t *testing.T, cfg kafkastream.Config, topic, stream string, n int) {
	t.Helper()
	var all []*kgo.Record
	for range n {
		all = append(all, &kgo.Record{Topic: topic, Value: []byte("x"),
			Headers: []kgo.RecordHeader{{Key: "eb-stream", Value: []byte(stream)}}})
	}
	produce(t, cfg, all...)
}

// However many records of others came after the stream's, it has begun before;
// and however many there are, one that has not has not.
func TestHoldsOnSharedTopic(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, exactly)
	mustCommit(t, s, batch(cfg, 1))
	produceAs(t, cfg, cfg.Topic, "others", 5_000)
	fresh := cfg
	fresh.Stream = "fresh"
	for stream, want := range map[*kafkasink.Sink]bool{open(t, cfg): true, open(t, fresh): false} {
		for range 2 { // the second time is about what is new
			if got, err := stream.Holds(t.Context()); got != want || err != nil {
				t.Errorf("holds: %v, %v; want %v", got, err, want)
			}
		}
	}
	late := open(t, fresh)
	if got, err := late.Holds(t.Context()); got || err != nil {
		t.Fatalf("holds: %v, %v", got, err)
	}
	produceAs(t, cfg, cfg.Topic, "fresh", 1)
	produceAs(t, cfg, cfg.Topic, "others", 1_000)
	if got, err := late.Holds(t.Context()); !got || err != nil {
		t.Errorf("holds what came since: %v, %v", got, err)
	}
}

// If the search takes too long, the answer is unknown, and a stream must not begin. The next
// search continues from there.
func TestHoldsTakesTooLong(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	recovered(t, cfg).Close()
	fresh := cfg
	fresh.Stream = "fresh"
	produceAs(t, cfg, cfg.Topic, "fresh", 1)
	produceAs(t, cfg, cfg.Topic, "others", 20_000)
	s := open(t, fresh)
	s.HoldsTime(time.Nanosecond)
	_, err := s.Holds(t.Context())
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok || fault.Class != bridge.Permanent || fault.Reason != bridge.ReasonCheckpointLost ||
		fault.HintCode != bridge.HintCheckpointUnknown {
		t.Errorf("in no time: %v, want a fault of the checkpoint", err)
	}
	s.HoldsTime(2 * time.Second) // enough to connect on a busy machine
	kafkatest.Eventually(t, "find the record in as many looks as it takes", func() (bool, error) {
		got, err := s.Holds(t.Context())
		if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Reason == bridge.ReasonCheckpointLost {
			err = nil
		}
		return got, err
	})
}
