package kafkasink_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

// clients counts the Kafka clients of the process: each has a goroutine that refreshes
// metadata.
func clients() int {
	buf := make([]byte, 64<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "kgo.(*Client).updateMetadataLoop(")
}

// TestStandbyHasNoClient: a process that has lost a stream to another process keeps no
// Kafka client of it.
func TestStandbyHasNoClient(t *testing.T) { //nolint:paralleltest // it counts all clients
	addrs := kafkatest.Brokers(t)
	before := clients()
	group := bridgetest.NewGroup(t)
	cfg := config(t, addrs, exactly)
	start := func(owner bridge.Owner) *engine.Engine {
		own := engine.DefaultConfig()
		own.Stream, own.Mode, own.Origin, own.PageSize = "events", cfg.Mode, bridge.Origin{Resource: "events"}, 10
		own.Owner = "p"
		e := must.Get(engine.New(own, engine.Ports{Source: bridgetest.NewSource(t, bridgetest.Export{}),
			Sink: open(t, cfg), Owner: owner}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
		return e
	}
	runs := func(e *engine.Engine) {
		t.Helper()
		kafkatest.Eventually(t, "run the stream", func() (bool, error) { return e.Status().CaughtUp, nil })
	}
	first := start(group.Open(""))
	runs(first)
	one := clients() - before
	other := group.Open("")
	group.Give(other) // Revoke would let the first acquire the stream again before the second asks for it
	runs(start(other))
	kafkatest.Eventually(t, "release the stream",
		func() (bool, error) { return first.Status().State == bridge.StateStandby, nil })
	kafkatest.Eventually(t, "close the clients of the standby",
		func() (bool, error) { return clients()-before <= one, nil })
}
