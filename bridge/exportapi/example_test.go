package exportapi_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/exportapi/exportsim"
)

// ledger is a custom Sink. It stores events and their checkpoint in one step, as a database
// does in a transaction.
type ledger struct {
	sent       [][]byte // by the running session, not committed
	rows       [][]byte // committed
	checkpoint bridge.Checkpoint
}

// Recover implements bridge.Sink. A real Sink would also lock out earlier sessions, for
// example by a number that Publish compares.
func (l *ledger) Recover(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	l.sent = nil
	if owned != nil {
		if err := owned(ctx); err != nil {
			return bridge.Checkpoint{}, err
		}
	}
	if l.checkpoint.Zero() {
		return bridge.Checkpoint{}, bridge.ErrNoCheckpoint
	}
	return l.checkpoint, nil
}

// Send implements bridge.Sink. It copies what it keeps of a page.
func (l *ledger) Send(_ context.Context, p *bridge.Page) error {
	defer p.Release()
	for i := range p.Events {
		l.sent = append(l.sent, bytes.Clone(p.Events[i].Raw))
	}
	return nil
}

// Publish implements bridge.Sink. It commits the events and the checkpoint, or neither.
func (l *ledger) Publish(_ context.Context, b bridge.Batch) (bridge.Receipt, error) {
	r := bridge.Receipt{Published: len(l.sent)}
	l.rows, l.checkpoint, l.sent = append(l.rows, l.sent...), b.Checkpoint, nil
	return r, nil
}

// Topics implements bridge.Sink. The rows cannot be deleted.
func (l *ledger) Topics(context.Context) ([]bridge.TopicState, error) { return nil, nil }

// Holds implements bridge.Sink.
func (l *ledger) Holds(context.Context) (bool, error) { return len(l.rows) > 0, nil }

// Close implements bridge.Sink.
func (l *ledger) Close() { l.sent = nil }

// Example publishes each event of an export once to a custom Sink.
func Example() {
	simulator, err := exportsim.New(exportsim.Config{Events: 2500})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer simulator.Close()
	server := httptest.NewServer(simulator)
	defer server.Close()

	export := exportapi.DefaultConfig()
	export.URL, export.APIKey = server.URL, "any"
	source, err := exportapi.New(export)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer source.Close()

	cfg := engine.DefaultConfig()
	cfg.Stream, cfg.Mode, cfg.PageSize = "events", bridge.ExactlyOnce, export.PageSize
	cfg.Origin = bridge.Origin{Resource: "events"}
	cfg.Limits = engine.Limits{Once: true} // otherwise it runs until ctx ends

	sink := new(ledger)
	b, err := engine.New(cfg, engine.Ports{Source: source, Sink: sink})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := b.Run(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(sink.rows), "events,", b.Status().Ended)
	// Output:
	// 2500 events, drained on its last page
}
