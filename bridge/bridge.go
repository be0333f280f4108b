package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Ports are what a bridge is connected to.
type Ports struct {
	// Source and Sink are required.
	Source Source
	Sink   Sink
	// Store keeps the checkpoint and its history. It may be nil exactly once,
	// since the Sink's checkpoint is authoritative; then there is no history to
	// rewind in.
	Store Store
	// Owner decides which process runs the stream; nil means this one, always.
	Owner Owner
	// History and Published are used when the API permanently rejects the
	// cursor; they may be nil if Config.OnInvalidCursor is stop. Published is
	// also used after a reset; nil marks nothing as republished.
	History   History
	Published PublishedEvents
	// Inbox delivers commands; nil means none.
	Inbox Inbox
	// Observer receives observations; nil discards them.
	Observer Observer
	// Health collects the adapters' reports; nil shows no dependencies.
	Health *Health
}

// Bridge moves one stream.
type Bridge struct {
	cfg      Config
	ports    Ports
	log      *slog.Logger
	load     load
	view     atomic.Pointer[view] // written by the commit loop
	watchdog watchdog
}

// New returns a bridge that Run starts.
func New(cfg Config, ports Ports) (*Bridge, error) {
	if err := cmp.Or(cfg.complete(), cfg.Validate()); err != nil {
		return nil, err
	}
	if ports.Store == nil && cfg.Mode == ExactlyOnce {
		ports.Store = noStore{}
	}
	if ports.Source == nil || ports.Sink == nil || ports.Store == nil {
		return nil, errors.New("a bridge requires a source and a sink, and at least once a store")
	}
	if cfg.OnInvalidCursor != invalidStop && (ports.Published == nil || ports.History == nil) {
		return nil, fmt.Errorf("the invalid-cursor policy %q requires the ports History and Published", cfg.OnInvalidCursor)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	b := &Bridge{cfg: cfg, ports: ports, log: cfg.Log.With("stream", cfg.Stream)}
	b.view.Store(&view{status: Status{Stream: cfg.Stream, Owner: cfg.Owner, Mode: cfg.Mode, State: StateStarting, Since: time.Now()}})
	return b, nil
}

// noStore is a Store without memory: only the Sink has the checkpoint.
type noStore struct{}

func (noStore) Load(context.Context) (Checkpoint, error) { return Checkpoint{}, ErrNoCheckpoint }

func (noStore) Advance(context.Context, Checkpoint, Checkpoint) error { return nil }

// ErrShutdown is returned by Run when Config.ShutdownTimeout ended with a batch
// in flight, which was abandoned. Nothing is lost: the checkpoint has not
// moved, so the events are published again.
var ErrShutdown = errors.New("shutdown timed out with a batch in flight")

// Run moves the stream until ctx ends or a bounded run is done; both return
// nil. When ctx ends, Run starts nothing new and has Config.ShutdownTimeout to
// commit what is in flight. A blocked bounded run returns a BlockedError; an
// unbounded one keeps probing. Run is called once; all its goroutines have
// ended when it returns.
func (b *Bridge) Run(ctx context.Context) error {
	hard, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	soft, cancel := context.WithCancel(ctx)
	defer cancel()

	var background sync.WaitGroup
	finished := make(chan struct{})
	background.Go(func() { b.enforceShutdown(ctx, abandon, finished) })
	commands := make(chan Command)
	if b.ports.Inbox != nil {
		background.Go(func() { b.readInbox(soft, commands) })
	}
	owner := ownerLoop{f: newFollower(b, commands), asking: retries{max: b.cfg.RetryMax}}
	err := owner.own(soft, hard)
	b.watchdog.wait() // what has ended does not hang: other streams of the process go on
	cancel()
	close(finished)
	background.Wait()
	if errors.Is(context.Cause(hard), ErrShutdown) {
		err = fmt.Errorf("stream %s: %w", b.cfg.Stream, ErrShutdown)
	}
	return err
}

// enforceShutdown abandons what is in flight after Config.ShutdownTimeout.
func (b *Bridge) enforceShutdown(ctx context.Context, abandon context.CancelCauseFunc, finished <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-finished:
		return
	}
	t := time.NewTimer(b.cfg.ShutdownTimeout)
	defer t.Stop()
	select {
	case <-t.C:
		abandon(ErrShutdown)
	case <-finished:
	}
}

// readInbox passes commands to the loop. A command stays in the inbox until it
// is answered, so one that the loop could not take is offered again.
func (b *Bridge) readInbox(ctx context.Context, commands chan<- Command) {
	for ctx.Err() == nil {
		cmd, err := b.ports.Inbox.Next(ctx)
		if err != nil {
			Sleep(ctx, time.Second)
			continue
		}
		// Offered briefly: the command may be withdrawn while the loop is busy.
		offer, cancel := context.WithTimeout(ctx, time.Second)
		select {
		case commands <- cmd:
			// The answer is on its way; until then Next returns the same
			// command.
			Sleep(ctx, 100*time.Millisecond)
		case <-offer.Done():
		}
		cancel()
	}
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (b *Bridge) observe(o Observation) {
	if b.ports.Observer != nil {
		o.Stream = b.cfg.Stream
		b.ports.Observer.Observe(o)
	}
}

// Alive reports whether the commit loop makes progress: it waits for an input,
// a timer or a server, or has been working for less than a minute. A stream
// with unreachable servers is alive, and so is one that has ended.
func (b *Bridge) Alive() bool { return b.watchdog.alive() }

// sleepUntil waits until t or until ctx ends.
func (b *Bridge) sleepUntil(ctx context.Context, t time.Time) {
	b.watchdog.wait()
	defer b.watchdog.work()
	Sleep(ctx, time.Until(t))
}
