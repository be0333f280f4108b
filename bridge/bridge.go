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

// Ports are the sides of a bridge.
type Ports struct {
	// Source is what is read, Sink what it is written to. Both are required.
	Source Source
	Sink   Sink
	// Store keeps the checkpoint; exactly once it may be nil, since the Sink's
	// is the truth. Then there is no history to go back in.
	Store Store
	// Owner says whether this process runs the stream; nil is always.
	Owner Owner
	// History and Published are asked when the API refuses the cursor for good;
	// where Config.OnInvalidCursor is stop they may be nil. Published is also
	// asked after a reset; nil marks nothing as published again.
	History   History
	Published PublishedEvents
	// Inbox brings commands; nil takes none.
	Inbox Inbox
	// Observer is told what happens; nil is nobody.
	Observer Observer
	// Health is what the adapters report to; nil shows no dependencies.
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

// New returns a bridge that is not running yet.
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

// noStore is a Store that keeps nothing: the Sink alone has the checkpoint.
type noStore struct{}

func (noStore) Load(context.Context) (Checkpoint, error) { return Checkpoint{}, ErrNoCheckpoint }

func (noStore) Advance(context.Context, Checkpoint, Checkpoint) error { return nil }

// ErrShutdown is returned by Run when what was in flight at the end of
// Config.ShutdownTimeout had to be abandoned. Nothing is lost: the checkpoint
// has not moved, so the events come again.
var ErrShutdown = errors.New("shutdown timed out with a batch in flight")

// Run moves the stream until ctx ends or a bounded run is done; both return
// nil. Ending ctx stops in two phases: nothing new is begun, and what is in
// flight has Config.ShutdownTimeout to be committed. A bounded run that
// becomes blocked returns a BlockedError; an unbounded one stays and probes.
// Run is called once; all its goroutines have ended when it returns.
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

// enforceShutdown abandons what is in flight when the time for it is over.
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

// readInbox passes commands on. A command stays in the inbox until answered,
// so it is offered again when the loop was not ready for it.
func (b *Bridge) readInbox(ctx context.Context, commands chan<- Command) {
	for ctx.Err() == nil {
		cmd, err := b.ports.Inbox.Next(ctx)
		if err != nil {
			Sleep(ctx, time.Second)
			continue
		}
		// Not for long: the command may be withdrawn while the loop is busy.
		offer, cancel := context.WithTimeout(ctx, time.Second)
		select {
		case commands <- cmd:
			// The answer is on its way; asking again at once would only
			// bring the same command.
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

// Alive reports whether the commit loop turns: it waits for an input, a timer or
// a server, or has been at work for less than a minute. A stream whose servers
// are away is alive, and so is one that has ended.
func (b *Bridge) Alive() bool { return b.watchdog.alive() }

// sleepUntil waits, or less if ctx ends.
func (b *Bridge) sleepUntil(ctx context.Context, t time.Time) {
	b.watchdog.wait()
	defer b.watchdog.work()
	Sleep(ctx, time.Until(t))
}
