package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
	"exportbridge/bridge/internal/sourcecall"
)

// Ports are the connections of an engine.
type Ports struct {
	// Source and Sink are required.
	Source bridge.Source
	Sink   bridge.Sink
	// Store keeps the checkpoint and its history. It may be nil in exactly-once mode, in
	// which the Sink's checkpoint is authoritative. Without a Store there is no history.
	Store bridge.Store
	// Owner decides which process runs the stream. If it is nil, this process always runs
	// it.
	Owner bridge.Owner
	// History and Published are used when the API permanently rejects the cursor. They may
	// be nil if Config.OnInvalidCursor is stop. Published is also used after a reset, and
	// after a loss of checkpoints. If it is nil, no event is marked as republished, and events
	// after a lost checkpoint are published again.
	History   bridge.History
	Published bridge.PublishedEvents
	// Inbox delivers commands; nil means none.
	Inbox bridge.Inbox
	// Observer receives observations; nil discards them.
	Observer bridge.Observer
	// Health collects the adapters' reports; nil shows no dependencies.
	Health *bridge.Health
}

// Engine moves one stream.
type Engine struct {
	cfg      Config
	rules    position.Rules // the rules of cfg
	ports    Ports
	log      *slog.Logger
	load     load
	view     atomic.Pointer[view] // written by the commit loop
	watchdog watchdog
	applying bool // set by Apply: the engine applies one command
}

// New returns an engine that Run starts.
func New(cfg Config, ports Ports) (*Engine, error) {
	if err := cmp.Or(cfg.complete(), cfg.Validate()); err != nil {
		return nil, err
	}
	if ports.Store == nil && cfg.Mode == bridge.ExactlyOnce {
		ports.Store = noStore{}
	}
	if ports.Source == nil || ports.Sink == nil || ports.Store == nil {
		return nil, errors.New("an engine requires a source, a sink and, in at-least-once mode, a store")
	}
	if cfg.OnInvalidCursor != invalidStop && (ports.Published == nil || ports.History == nil) {
		return nil, fmt.Errorf("the invalid-cursor policy %q requires the ports History and Published", cfg.OnInvalidCursor)
	}
	cfg.FetchTimeout = sourcecall.Timeout(cfg.FetchTimeout)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{cfg: cfg, rules: cfg.rules(), ports: ports, log: cfg.Log.With("stream", cfg.Stream)}
	e.view.Store(&view{status: bridge.Status{Stream: cfg.Stream, Owner: cfg.Owner, Mode: cfg.Mode,
		State: bridge.StateStarting, Since: time.Now()}})
	return e, nil
}

// noStore is a Store that keeps nothing: only the Sink has the checkpoint.
type noStore struct{}

func (noStore) Load(context.Context) (bridge.Checkpoint, error) {
	return bridge.Checkpoint{}, bridge.ErrNoCheckpoint
}

func (noStore) Advance(context.Context, bridge.Checkpoint, bridge.Checkpoint) error { return nil }

// ErrShutdown is returned by Run if Config.ShutdownTimeout ended with a batch in flight,
// which was abandoned. Nothing is lost: the checkpoint has not moved, so the events are
// published again.
var ErrShutdown = errors.New("shutdown timed out with a batch in flight")

// Run moves the stream until ctx ends or a bounded run is done; both return nil. When ctx
// ends, Run starts nothing new and has Config.ShutdownTimeout to commit the batch in
// flight. A blocked bounded run returns a BlockedError; an unbounded one keeps retrying.
// Run is called once. All its goroutines have ended when it returns.
func (e *Engine) Run(ctx context.Context) error {
	hard, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	soft, cancel := context.WithCancel(ctx)
	defer cancel()

	onTime := Overdue(ctx, e.cfg.ShutdownTimeout, func() { abandon(ErrShutdown) })
	var background sync.WaitGroup
	commands := make(chan *bridge.Command)
	if e.ports.Inbox != nil {
		background.Go(func() { e.readInbox(soft, commands) })
	}
	owner := ownerLoop{follower: newFollower(e, commands), asking: retries{max: e.cfg.RetryMax}}
	err := owner.own(soft, hard)
	e.watchdog.wait() // a run that has ended is not a stalled loop
	cancel()
	onTime()
	background.Wait()
	if errors.Is(context.Cause(hard), ErrShutdown) {
		err = fmt.Errorf("stream %s: %w", e.cfg.Stream, ErrShutdown)
	}
	return err
}

// Overdue calls late if done is not called within grace after the end of ctx. done waits for a
// call that has begun. Until ctx ends, no goroutine waits.
func Overdue(ctx context.Context, grace time.Duration, late func()) (done func()) {
	finished := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Add(1)
	unneeded := context.AfterFunc(ctx, func() {
		defer waiting.Done()
		end := time.NewTimer(grace)
		defer end.Stop()
		select {
		case <-end.C:
			late()
		case <-finished:
		}
	})
	return func() {
		close(finished)
		if unneeded() {
			waiting.Done()
		}
		waiting.Wait()
	}
}

// readInbox passes commands to the loop. A command stays in the inbox until it is answered,
// so the inbox offers it again if the loop could not take it.
func (e *Engine) readInbox(ctx context.Context, commands chan<- *bridge.Command) {
	for ctx.Err() == nil {
		cmd, err := e.ports.Inbox.Next(ctx)
		if err != nil {
			if errors.Is(err, bridge.ErrInvalidCommand) {
				e.log.Warn("command refused", "error", err)
			}
			bridge.Sleep(ctx, time.Second)
			continue
		}
		// The offer is short, because the command may be withdrawn while the loop is busy.
		offer, cancel := context.WithTimeout(ctx, time.Second)
		select {
		case commands <- &cmd:
			// Next returns the same command until it is answered.
			bridge.Sleep(ctx, 100*time.Millisecond)
		case <-offer.Done():
		}
		cancel()
	}
}

func (e *Engine) observe(o bridge.Observation) {
	if e.ports.Observer != nil {
		o.Stream = e.cfg.Stream
		e.ports.Observer.Observe(o)
	}
}

func (e *Engine) observeStuck(code string) {
	e.observe(bridge.Observation{What: bridge.ObserveStuck, Code: code})
}

// Alive reports whether the commit loop makes progress: it waits for an input, a timer or a
// server, or has been working for less than a minute. Alive returns false also a minute
// after Config.FetchTimeout should have ended a call of the Source. A stream with
// unreachable servers is alive, and so is one that has ended.
func (e *Engine) Alive() bool { return e.watchdog.alive(e.cfg.FetchTimeout) }

// sleepUntil waits until t or until ctx ends.
func (e *Engine) sleepUntil(ctx context.Context, t time.Time) {
	defer e.watchdog.wait()()
	bridge.Sleep(ctx, time.Until(t))
}
