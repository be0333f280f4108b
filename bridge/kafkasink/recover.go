package kafkasink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/failpoint"
	"exportbridge/bridge/kafkaclient"
)

// Recover starts a session: it creates clients, checks that the topics exist and accept
// the stream's records, and takes the stream's transactional id, which fences every
// earlier session. Then it calls owned, commits a barrier, and reads the newest checkpoint
// before it: without a barrier, a committed checkpoint could be hidden behind another
// program's open transaction. In at-least-once mode the checkpoint is that of the copy.
// Unreachable brokers are retried; permanent errors are Permanent faults. If another
// session starts meanwhile, the error is a bridge.ErrFenced.
func (s *Sink) Recover(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	s.endSession()
	for try := 0; ; try++ {
		c, err := s.attempt(ctx, owned)
		if err == nil || errors.Is(err, bridge.ErrNoCheckpoint) {
			s.cfg.Tell(nil)
			return c, err
		}
		if ctx.Err() != nil {
			return bridge.Checkpoint{}, fmt.Errorf("start a Kafka session: %w: %w", ctx.Err(), err)
		}
		if _, ok := errors.AsType[*disownedError](err); ok {
			return bridge.Checkpoint{}, err
		}
		if bridge.FaultOf(err).Code == bridge.CodeStoreNeeded { // not Kafka, but the store is down
			s.cfg.Tell(nil)
			return bridge.Checkpoint{}, err
		}
		s.cfg.Tell(err)
		if kafkaclient.IsPermanent(err) || errors.Is(err, bridge.ErrFenced) {
			return bridge.Checkpoint{}, err
		}
		bridge.Sleep(ctx, kafkaclient.Backoff(try))
	}
}

// disownedError is an error of owned, the callback of Recover.
type disownedError struct{ err error }

func (e *disownedError) Error() string {
	return "confirm ownership of the stream: " + e.err.Error()
}
func (e *disownedError) Unwrap() error { return e.err }

// attempt makes one attempt at a session. Only the clients of a successful one
// are kept.
func (s *Sink) attempt(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	session, err := begin(ctx, &s.cfg, &s.kept)
	if err != nil {
		return bridge.Checkpoint{}, err
	}
	s.kept.warnWeak(&session.txn)
	c, err := session.takeOver(ctx, owned)
	if err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) {
		session.close()
		if _, ok := errors.AsType[*disownedError](err); ok {
			return bridge.Checkpoint{}, err
		}
		return bridge.Checkpoint{}, session.explain(err)
	}
	if !s.cfg.exactly() {
		session.copier = startCopier(session, c, s.kept.copyEvery)
	}
	s.session = session
	return c, err
}

// takeOver fences earlier sessions and reads the newest checkpoint. The order
// is the protocol: once this session has the producer id, no earlier session can commit,
// so everything up to the barrier is final.
func (s *session) takeOver(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	if err := s.txn.take(ctx); err != nil {
		return bridge.Checkpoint{}, err
	}
	failpoint.Reach(failpoint.Init)
	if owned != nil {
		if err := owned(ctx); err != nil {
			return bridge.Checkpoint{}, &disownedError{err}
		}
	}
	b, err := s.commitBarrier(ctx)
	if err != nil {
		return bridge.Checkpoint{}, err
	}
	failpoint.Reach(failpoint.Barrier)
	if err := s.topics.reaches.pin(ctx, s.client); err != nil {
		return bridge.Checkpoint{}, err
	}
	return s.kept.checkpoints.newest(ctx, s, b)
}

// barrier is a committed record unique to the session. The log before it is
// final.
type barrier struct {
	offset int64
	value  string
}

// commitBarrier commits a barrier on the stream's partition.
func (s *session) commitBarrier(ctx context.Context) (*barrier, error) {
	unique := rand.Text()
	offset, err := s.commitOwn(ctx, "a barrier", s.cfg.ownRecord(s.cfg.barrierKey(), []byte(unique)))
	if err != nil {
		return nil, err
	}
	return &barrier{offset: offset, value: unique}, nil
}

// warnWeak warns once about the weaker guarantee of older brokers.
func (k *kept) warnWeak(p *txnProducer) {
	c := p.cfg
	if p.strict() || !c.exactly() || k.weak || c.Log == nil {
		return
	}
	k.weak = true
	c.Log.Warn("transaction.version below 2 (KIP-890)", "transaction.version", int(p.version.Load()),
		"weaker", kafkaclient.WeakTransactions, "hint", c.UpgradeHint())
}
