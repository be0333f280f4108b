package kafkasink_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
)

// TestFirstStartWithoutStore: a new stream whose store is down waits for the store. Kafka is
// not reported as down, and the error says why the stream waits.
func TestFirstStartWithoutStore(t *testing.T) {
	t.Parallel()
	away := &bridge.Fault{Hint: "check Redis", Err: errors.New("redis: connection refused")}
	var blamed atomic.Int64
	cfg := config(t, kafkatest.Brokers(t))
	cfg.Mode = bridge.ExactlyOnce
	cfg.Known = func(context.Context) (bridge.Checkpoint, error) { return bridge.Checkpoint{}, away }
	cfg.Report = func(err error) {
		if err != nil {
			blamed.Add(1)
		}
	}
	sink, err := cfg.Sink()
	if err != nil {
		t.Fatal(err)
	}
	ctx := kafkatest.Context(t)
	defer sink.Close()
	_, err = sink.Recover(ctx, nil)
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok || fault.Hint != away.Hint || !strings.Contains(fault.Error(), "first start of a stream needs Redis") ||
		!errors.Is(fault, away.Err) {
		t.Errorf("got %v", err)
	}
	if n := blamed.Load(); n > 0 {
		t.Errorf("Kafka was blamed %d times", n)
	}
}

// TestMissingTopicWithoutStore: a stream that may not create topics does not wait for the
// store: a missing topic is its error.
func TestMissingTopicWithoutStore(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t))
	cfg.Mode, cfg.CreateTopics = bridge.ExactlyOnce, false
	cfg.Known = func(context.Context) (bridge.Checkpoint, error) {
		return bridge.Checkpoint{}, errors.New("connection refused")
	}
	kafkatest.AsFault(t, tryRecover(t, open(t, cfg)), bridge.Permanent, bridge.ReasonTopic)
}

// TestWindowCreatesNoTopic: a window whose checkpoint topic was lost must not begin in an
// empty one, even if the stream may create topics.
func TestWindowCreatesNoTopic(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t))
	window := cfg.OfWindow(kafkasink.Window{Name: "events.abc.w1.0-9", Topic: cfg.Topic, Origin: "backfill"})
	kafkatest.AsFault(t, tryRecover(t, open(t, window)), bridge.Permanent, bridge.ReasonTopic)
	wired := cfg.Wired()
	own := wired.OfWindow(kafkasink.Window{Name: "events.abc.w1.0-9", Topic: cfg.Topic, Origin: "backfill"})
	sink := must.Get(kafkasink.New(own))(t)
	defer sink.Close()
	kafkatest.AsFault(t, tryRecover(t, sink), bridge.Permanent, bridge.ReasonTopic)
	if exists, err := cfg.Exists(t.Context(), kafkasink.JobsTopic(cfg.CheckpointTopic)); exists || err != nil {
		t.Errorf("the job topic exists: %t, %v", exists, err)
	}
}
