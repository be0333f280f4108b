package kafkasink_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// TestEnlistStrict: below transaction.version 2 a request that arrives late could add
// partitions to the next transaction, so that only the client adds them: those of the
// events, and once these are acknowledged that of the checkpoint.
func TestEnlistStrict(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t, append(versions["transaction.version 0"], kfake.NumBrokers(3))...)
	cfg := config(t, c.ListenAddrs(), exactly)
	s := recovered(t, cfg)
	var added, together atomic.Int64
	c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Count: -1, Observe: true, When: func(req kmsg.Request) bool {
			added.Add(1)
			if len(req.(*kmsg.AddPartitionsToTxnRequest).Topics) > 1 {
				together.Add(1)
			}
			return true
		},
	})
	for seq := range mostBatches {
		mustCommit(t, s, batch(cfg, seq))
	}
	if added.Load() == 0 || together.Load() > 0 {
		t.Errorf("%d requests, %d for both topics; want those of the client", added.Load(), together.Load())
	}
}

// TestWindowIsExactlyOnce: a window's position is in Kafka alone, so whatever the stream's
// delivery is, that of a window is a transaction.
func TestWindowIsExactlyOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
		cfg := kafkastream.DefaultConfig()
		cfg.Stream, cfg.Mode, cfg.CreateTopics, cfg.InstanceID = "events", mode, true, "pod-0"
		own := cfg.OfWindow(kafkasink.Window{Name: "events.abc.w1.0-9", Topic: "t", Origin: "backfill"})
		if own.Mode != bridge.ExactlyOnce || own.CreateTopics || own.InstanceID != "" || own.Known != nil {
			t.Errorf("of a stream %s: mode %s, creates topics %t, instance %q", mode, own.Mode, own.CreateTopics, own.InstanceID)
		}
	}
}

// idle publishes nothing, with a look at the topics.
func idle(t *testing.T, cfg kafkastream.Config, s *kafkasink.Sink) (bridge.Receipt, error) {
	t.Helper()
	s.AgeSettings()
	c := checkpoint(cfg, 1)
	return s.Publish(t.Context(), bridge.Batch{Checkpoint: c, From: c})
}

// TestIdleStreamSeesItsTopics: no record tells an idle stream that partitions were added,
// or that its topic is another one.
func TestIdleStreamSeesItsTopics(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t)
	client := connect(t, cfg)
	grown := int(cfg.Partitions) + 2
	admin := kadm.NewClient(client)
	if _, err := admin.UpdatePartitions(t.Context(), grown, cfg.Topic); err != nil {
		t.Fatal(err)
	}
	for { // a broker knows them a moment after it has taken the request
		topics, err := admin.ListTopics(t.Context(), cfg.Topic)
		if err != nil {
			t.Fatal(err)
		}
		if len(topics[cfg.Topic].Partitions) == grown {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	receipt, err := idle(t, cfg, s)
	if err != nil || receipt.Topics[0].Partitions != grown {
		t.Errorf("%v, topics %+v; want %d partitions", err, receipt.Topics, grown)
	}
	deleteTopic(t, cfg, cfg.Topic)
	kafkatest.CreateTopic(t, cfg.Brokers, cfg.Topic, int32(grown), nil)
	_, err = idle(t, cfg, s)
	if f := kafkatest.AsFault(t, err, bridge.Transient, ""); f.Code != "topic_changed" {
		t.Errorf("%v with code %s; want that the topic is another one", err, f.Code)
	}
}
