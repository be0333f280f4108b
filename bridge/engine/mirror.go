package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/failpoint"
)

const (
	// mirrorTimeout bounds one call of the store, and all calls at the end of an ownership.
	mirrorTimeout = 2 * time.Second
	// mirrorForeign is the time between attempts while the store holds a foreign value.
	mirrorForeign = 30 * time.Second
)

// mirror copies the sink's committed checkpoints to the store, concurrently with the commit
// loop: in exactly-once mode the store is a copy, and an unreachable store must not delay
// the data. Of several commits, the mirror writes only the newest, and the first one of
// each epoch, which the history needs.
//
// In at-least-once mode there is no mirror: the commit loop itself stores each checkpoint
// before it continues.
type mirror struct {
	e   *Engine
	log *slog.Logger
	// ahead gets a checkpoint of the store that another process wrote and that is not older
	// than that of this process: the other process moved the stream.
	ahead   chan *bridge.Checkpoint
	ended   context.Context
	end     context.CancelFunc
	writing sync.WaitGroup

	stored bridge.Checkpoint // the last checkpoint seen in the store; owned by run

	mu        sync.Mutex          // guards all below
	running   bool                // run writes the queue
	queue     []bridge.Checkpoint // checkpoints to write, oldest first
	found     *bridge.Checkpoint  // the checkpoint that a new session found in the store
	idle      chan struct{}       // closed while the queue is empty
	written   bridge.Checkpoint   // the last checkpoint written
	suspended bool                // nothing is written until the next session has read the store
	away      bool                // the last call of the store failed
}

func startMirror(e *Engine, log *slog.Logger) *mirror {
	m := &mirror{e: e, log: log, ahead: make(chan *bridge.Checkpoint, 1), idle: make(chan struct{})}
	close(m.idle)
	m.ended, m.end = context.WithCancel(context.Background())
	return m
}

// stop writes the rest of the queue within mirrorTimeout, and ends the mirror.
func (m *mirror) stop() {
	m.flush(context.Background())
	m.end()
	m.writing.Wait()
	m.e.load.lagPages.Store(0) // the next owner reports its own lag
}

// begin gets the checkpoint that a new session found in the store, the zero Checkpoint if
// there is none. It drops the queue, which the session supersedes.
func (m *mirror) begin(stored bridge.Checkpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
	m.found, m.written, m.suspended = &stored, stored, false
	select {
	case <-m.ahead: // the session has already read this checkpoint
	default:
	}
}

// drop empties the queue. The caller holds mu.
func (m *mirror) drop() {
	if len(m.queue) > 0 {
		m.queue = nil
		close(m.idle)
	}
	m.updateLag()
}

// updateLag reports how many pages the store is behind. A reset changes the count of pages,
// so the counts must be of one epoch. The caller holds mu.
func (m *mirror) updateLag() {
	owed := int64(0)
	if n := len(m.queue); n > 0 {
		newest, since := m.queue[n-1], m.written
		for _, c := range m.queue {
			if since.Epoch != newest.Epoch {
				since = c
			}
		}
		owed = max(1, newest.Pages-since.Pages)
	}
	m.e.load.lagPages.Store(owed)
}

// suspend stops writing and passes the stored checkpoint to the commit loop.
func (m *mirror) suspend(stored *bridge.Checkpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.found != nil {
		return // a session has read the store in the meantime
	}
	m.drop()
	m.suspended = true
	select {
	case m.ahead <- stored:
	default:
	}
}

// offer queues c for writing without waiting.
func (m *mirror) offer(c bridge.Checkpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch n := len(m.queue); {
	case m.suspended:
	case n > 0 && m.queue[n-1].Epoch == c.Epoch && // a later commit replaces commits of these two kinds
		(m.queue[n-1].Kind == bridge.KindData || m.queue[n-1].Kind == bridge.KindHeartbeat):
		m.queue[n-1] = c
	case n > 0:
		m.queue = append(m.queue, c)
	default:
		m.queue, m.idle = append(m.queue, c), make(chan struct{})
	}
	m.updateLag()
	if len(m.queue) > 0 && !m.running { // a goroutine that waits would keep its stack
		m.running = true
		m.writing.Go(func() { m.run(m.ended) })
	}
}

// flush waits until the queue is written, for at most mirrorTimeout. It does not wait if
// the store is unreachable.
func (m *mirror) flush(ctx context.Context) {
	m.mu.Lock()
	idle, away := m.idle, m.away
	m.mu.Unlock()
	if away {
		return // store unreachable: do not wait
	}
	t := time.NewTimer(mirrorTimeout)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	case <-ctx.Done():
	}
}

// first returns the oldest checkpoint of the queue. It returns false if the queue is empty, so
// that run ends.
func (m *mirror) first() (bridge.Checkpoint, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.found != nil {
		m.stored, m.found = *m.found, nil
	}
	if m.running = len(m.queue) > 0; !m.running {
		return bridge.Checkpoint{}, false
	}
	return m.queue[0], true
}

// done removes c from the queue, unless a newer checkpoint has replaced it.
func (m *mirror) done(c bridge.Checkpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = c
	if len(m.queue) > 0 && m.queue[0].Version == c.Version {
		if m.queue = m.queue[1:]; len(m.queue) == 0 {
			close(m.idle)
		}
	}
	m.updateLag()
}

// run writes the queue until it is empty, or ctx ends.
func (m *mirror) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		c, some := m.first()
		if !some {
			return
		}
		wait := m.write(ctx, c)
		m.mu.Lock()
		m.away = wait != 0
		m.mu.Unlock()
		if wait == 0 {
			failures = 0
			m.done(c)
			continue
		}
		failures++
		if wait == mirrorRetry {
			wait = backoff(failures, advanceRetryMax)
		}
		bridge.Sleep(ctx, wait)
	}
}

// mirrorRetry is the result of write that requests a back-off.
const mirrorRetry = time.Nanosecond

// write stores c and returns 0, or the wait before the next attempt.
func (m *mirror) write(ctx context.Context, c bridge.Checkpoint) time.Duration {
	failpoint.Reach(failpoint.Mirroring)
	began := time.Now()
	trying, cancel := context.WithTimeout(ctx, mirrorTimeout)
	defer cancel()
	err := m.e.ports.Store.Advance(trying, m.stored, c)
	o := bridge.Observation{What: bridge.ObserveCheckpoint, Took: time.Since(began), Code: "ok"}
	defer func() { m.e.observe(o) }()
	switch {
	case err == nil:
		m.stored = c
		failpoint.Reach(failpoint.Mirrored)
		return 0
	case errors.Is(err, bridge.ErrConflict):
		o.Code = "conflict"
		return m.settle(trying, c)
	case errors.Is(err, bridge.ErrForeign):
		o.Code = "error"
		m.log.Error("the stream's key in the store holds a foreign value; mirroring suspended, publishing continues",
			"error", err.Error(), "hint", m.e.cfg.hintOf(foreign(err)))
		return mirrorForeign
	}
	o.Code = "error"
	if ctx.Err() == nil {
		m.log.Debug("checkpoint not mirrored yet", "checkpoint", c.Version.String(), "error", err.Error())
	}
	return mirrorRetry
}

// settle resolves a conflict with the store. It returns the result of write.
func (m *mirror) settle(ctx context.Context, c bridge.Checkpoint) time.Duration {
	stored, err := m.e.ports.Store.Load(ctx)
	switch {
	case errors.Is(err, bridge.ErrNoCheckpoint):
		m.stored = bridge.Checkpoint{}
		return mirrorRetry
	case err != nil:
		return mirrorRetry
	case stored.Version.Compare(c.Version) > 0, stored.Epoch == c.Epoch && stored.ChangeID() != c.ChangeID():
		m.suspend(&stored)
		return 0 // the commit loop begins a session, which offers the checkpoint again
	case stored.Version == c.Version:
		return 0 // the next commit is after the stored checkpoint
	}
	// The store fell back to an older checkpoint of the stream, or an earlier owner wrote
	// its last checkpoints late.
	m.log.Warn("the store rolled back to an older checkpoint; rewriting the newer one",
		"stored", stored.Version.String(), "checkpoint", c.Version.String())
	m.stored = stored
	return mirrorRetry
}
