package kafkasink

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/failpoint"
)

// endGrace is how long the end of a transaction may still take once ctx has ended. After
// that the next session's barrier decides, as after a crash.
const endGrace = time.Second

// transact commits the sent records and the checkpoint. Before the end of the
// transaction is requested nothing is visible, and a crash leaves a transaction that the
// next session aborts. Once the transaction has ended both are durable. In between, the
// next session's barrier decides.
func (s *session) transact(ctx context.Context, b *bridge.Batch) error {
	rec, err := s.cfg.checkpointRecord(s.cfg.dataKey(), &b.Checkpoint, s.topics.Checkpoints)
	if err != nil {
		return err
	}
	if err := s.complete(ctx, rec); err != nil {
		return err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(endGrace, cancel) })()
	failpoint.Reach(failpoint.Ending)
	if err := s.txn.end(ending); err != nil {
		return err
	}
	failpoint.Reach(failpoint.Ended)
	return nil
}

// complete sends the records of the checkpoint topic after those of the batch, and waits
// until all are acknowledged. Only the end of the transaction is left then.
func (s *session) complete(ctx context.Context, own ...kgo.Record) error {
	if s.open != nil && !s.txn.strict() {
		// These brokers may apply a late end of an earlier transaction to this one. If
		// it had the checkpoint before it had all events, events would be lost.
		t := s.open.target
		if err := s.finish(ctx); err != nil {
			return err
		}
		failpoint.Reach(failpoint.Acked)
		s.open = newDelivery(t)
	}
	d, err := s.batch(ctx)
	if err != nil {
		return err
	}
	p := ownRecords(own...)
	d.hand(p)
	failpoint.Reach(failpoint.Checkpoint)
	s.txn.enlist(ctx, s.open.producer, s.topics.takeUsed(s.cfg))
	if err := s.finish(ctx); err != nil {
		return err
	}
	if s.txn.strict() {
		failpoint.Reach(failpoint.Acked)
	}
	if err := s.explain(s.topics.confirm(ctx)); err != nil {
		return err
	}
	return s.txn.follows(&p.records[len(own)-1])
}

// commitOwn commits records of the checkpoint topic, the last of them on the
// stream's partition, and returns that record's offset.
func (s *session) commitOwn(ctx context.Context, what string, own ...kgo.Record) (int64, error) {
	t := s.target(s.txn.client, fmt.Sprintf("commit %s to %s", what, s.cfg.CheckpointTopic))
	if err := s.txn.begin(ctx, &t); err != nil {
		return 0, err
	}
	if s.client == s.txn.client {
		if err := s.topics.reaches.pin(ctx, s.client); err != nil {
			return 0, err
		}
	}
	p := ownRecords(own...)
	last := &p.records[len(own)-1]
	s.open = newDelivery(t)
	s.open.hand(p)
	if err := s.finish(ctx); err != nil {
		return 0, err
	}
	if err := s.txn.follows(last); err != nil {
		return 0, err
	}
	limited, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return last.Offset, s.txn.end(limited)
}
