package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"exportbridge/bridge"
)

// stream is the state of the stream in this process. Its methods make checkpoints durable.
// Owned by the commit loop. The comments say how long each part lasts.
type stream struct {
	e   *Engine
	log *slog.Logger

	session   session                                  // until the next recovery
	progress                                           // until the stream is moved, or the ownership ends
	run       run                                      // as long as Run
	sizer     sizer                                    // as long as Run
	incidents incidents                                // as long as Run
	mirror    *mirror                                  // until the ownership ends
	away      func(retry time.Time, why *bridge.Fault) // called while the store is unreachable
}

// advanceRetryMax is the longest wait between two tries to reach the store.
const advanceRetryMax = 5 * time.Second

// nextCheckpoint returns the checkpoint of the next commit in this epoch.
func (s *stream) nextCheckpoint(kind bridge.Kind) bridge.Checkpoint {
	c := s.session.stamp(s.at.Checkpoint, kind, s.committed.Version.Next())
	c.MarksEnd = s.at.KnowsEnd(&s.e.rules)
	return c
}

// worthCommit reports whether a batch and the position after it need a commit: the batch
// has events, a window or an overlap ended, the API marked its end for the first time, or
// the cursor moved past empty pages long after the last commit.
func (s *stream) worthCommit(b batch) bool {
	at, was, since := &s.at, &s.committed, time.Since(s.run.committed)
	switch {
	case b.events > 0:
		return true
	case s.e.cfg.window() && at.Drained && !was.Drained:
		return true
	case at.MarksEnd && !was.KnowsEnd(&s.e.rules):
		return true
	case at.Overlap != nil && !at.Overlaps() && (was.Overlap == nil || was.Overlaps()):
		return true
	case at.Continues(&s.e.rules):
		return at.Cursor != was.Cursor && since >= emptyCommit
	}
	return at.Cursor != was.Cursor && since >= heartbeatInterval // each poll may return another cursor
}

// publish makes the sink commit a batch. pages is the number of its pages.
func (s *stream) publish(ctx context.Context, batch bridge.Batch, pages int) (bridge.Receipt, error) {
	if err := batch.Checkpoint.Validate(); err != nil { // no session could resume from an invalid checkpoint
		s.session.open = false // the sink has events of the batch: it would publish them with the next checkpoint
		return bridge.Receipt{}, &sessionError{foreign(fmt.Errorf("commit checkpoint %s: %w: %w", batch.Checkpoint.Version,
			bridge.ErrForeign, err))}
	}
	began := time.Now()
	s.e.watchdog.wait()
	receipt, err := s.e.ports.Sink.Publish(ctx, batch)
	s.e.watchdog.work()
	took := time.Since(began)
	if err != nil {
		s.session.open = false
		err = &sessionError{fmt.Errorf("publish %d pages up to checkpoint %s: %w", pages, batch.Checkpoint.Version, err)}
	}
	if err == nil && s.session.topics != nil && receipt.Topics != nil {
		s.session.topics = s.session.carryOver(s.session.topics, receipt.Topics, s.committed.Version)
	}
	s.sizer.committed(pages, took, err)
	s.e.observePublish(took, err)
	return receipt, err
}

// observePublish reports the outcome of a batch.
func (e *Engine) observePublish(took time.Duration, err error) {
	o := bridge.Observation{What: bridge.ObservePublish, Took: took, Code: "ok"}
	if err != nil {
		o.Code = bridge.FaultOf(err).Code
	}
	e.observe(o)
	if e.cfg.exactlyOnce() {
		outcome := "committed"
		if errors.Is(err, bridge.ErrFenced) {
			outcome = "fenced"
		} else if err != nil {
			outcome = "unknown" // the next session determines it
		}
		e.observe(bridge.Observation{What: bridge.ObserveTransaction, Took: took, Code: outcome})
	}
}

// advance moves the stored checkpoint. It retries while the store is unreachable: after a
// lost response the outcome is unknown, and only repeating the same step settles it.
func (s *stream) advance(ctx context.Context, from, to bridge.Checkpoint) error {
	for n := 1; ; n++ {
		began := time.Now()
		s.e.watchdog.wait()
		err := s.e.ports.Store.Advance(ctx, from, to)
		s.e.watchdog.work()
		o := bridge.Observation{What: bridge.ObserveCheckpoint, Took: time.Since(began), Code: "ok"}
		switch {
		case err == nil:
			s.e.observe(o)
			return nil
		case errors.Is(err, bridge.ErrConflict):
			o.Code = "conflict"
			s.e.observe(o)
			stored, loadErr := s.e.ports.Store.Load(ctx)
			if loadErr != nil || n > triesBeforeBlock || !s.run.rolledBack(stored, s.committed.Checkpoint, to) {
				return &sessionError{fmt.Errorf("advance checkpoint to %s: %w", to.Version, err)}
			}
			from = stored
			continue
		case errors.Is(err, bridge.ErrForeign):
			return &sessionError{foreign(err)}
		}
		o.Code = "error"
		s.e.observe(o)
		if ctx.Err() != nil {
			return &sessionError{fmt.Errorf("advance checkpoint to %s: %w", to.Version, ctx.Err())}
		}
		fault := *bridge.FaultOf(err)
		fault.Err = fmt.Errorf("advance checkpoint to %s: %w", to.Version, err)
		if fault.Class == bridge.Permanent { // waiting does not help, so the stream is blocked
			return &sessionError{&fault}
		}
		due := time.Now().Add(backoff(n, advanceRetryMax))
		s.away(due, &fault)
		s.e.sleepUntil(ctx, due)
	}
}

// foreign returns the fault of a foreign value in the store. It keeps the store's own hint,
// which names the key.
func foreign(err error) *bridge.Fault {
	if known, ok := errors.AsType[*bridge.Fault](err); ok && known.Reason == bridge.ReasonCheckpoint && known.Hint != "" {
		f := *known
		f.Err = err
		return &f
	}
	return &bridge.Fault{Class: bridge.Permanent, Code: "foreign", Reason: bridge.ReasonCheckpoint, Err: err,
		HintCode: bridge.HintForeign}
}

// storeCheckpoint moves the store from one checkpoint to the one just published. In
// at-least-once mode this is the commit. In exactly-once mode the mirror writes a copy
// later.
func (s *stream) storeCheckpoint(ctx context.Context, from, next bridge.Checkpoint) error {
	if s.e.cfg.exactlyOnce() {
		s.mirror.offer(next)
		return nil
	}
	return s.advance(ctx, from, next)
}

// commitCheckpoint makes a checkpoint without events durable in the sink and in the store.
// from is the checkpoint in the store.
func (s *stream) commitCheckpoint(ctx context.Context, from, next bridge.Checkpoint) error {
	if _, err := s.publish(ctx, bridge.Batch{Checkpoint: next, From: s.committed.Checkpoint}, 0); err != nil {
		return err
	}
	return s.storeCheckpoint(ctx, from, next)
}

// adopt makes a durable checkpoint the committed position, with the memory of at.
func (s *stream) adopt(c bridge.Checkpoint) {
	s.at.Checkpoint = c
	s.stale, s.rival = false, bridge.Checkpoint{}
	if c.RewindEnd == nil {
		s.forgetMarks()
	}
	s.committed = s.at
	s.run.seenIDs[c.ChangeID()] = struct{}{}
	if s.run.committed = time.Now(); c.Kind != bridge.KindHeartbeat {
		s.run.busy = s.run.committed
	}
}

// rejoin adopts a checkpoint that may come from another process.
func (s *stream) rejoin(c bridge.Checkpoint) {
	// the process that began the epoch may have accepted another topic
	if c.Epoch != s.committed.Epoch || c.ChangeID() != s.committed.ChangeID() {
		s.forgetMarks()
	}
	s.at, s.known.Published = s.committed.Rejoin(c), nil
	s.adopt(c)
	s.run.busy = s.run.committed
}

// record commits a checkpoint without events and adopts it.
func (s *stream) record(ctx context.Context, next bridge.Checkpoint) error {
	if err := s.commitCheckpoint(ctx, s.committed.Checkpoint, next); err != nil {
		return err
	}
	s.adopt(next)
	return nil
}
