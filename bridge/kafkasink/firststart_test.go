package kafkasink_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/kafkasink"
)

// TestFirstStartWithoutStore: a new stream whose store is away waits for the store. That
// is no fault of Kafka, which answers, and the error says why it waits.
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
	sink, err := kafkasink.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Patience)
	defer cancel()
	defer sink.Close()
	_, err = sink.Recover(ctx, nil)
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok || fault.Hint != away.Hint || !strings.Contains(fault.Error(), "first start of a stream needs Redis") || !errors.Is(fault, away.Err) {
		t.Errorf("got %v", err)
	}
	if n := blamed.Load(); n > 0 {
		t.Errorf("Kafka was blamed %d times", n)
	}
}
