package kafkasink

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/failpoint"
)

// endGrace is how long the end of a transaction goes on in a process that has to end.
// Then the next session's barrier decides, as after a crash.
const endGrace = time.Second

// transact commits the sent records and the checkpoint. Before the transaction
// has ended nothing is visible, and a crash leaves only a transaction that the
// next session aborts. After it both are durable. In between the next session's
// barrier decides.
func (x *session) transact(ctx context.Context, b *bridge.Batch) error {
	rec, err := x.cfg.checkpointRecord(x.cfg.dataKey(), &b.Checkpoint, x.topics.Checkpoints)
	if err != nil {
		return err
	}
	if err := x.complete(ctx, rec); err != nil {
		return err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(endGrace, cancel) })()
	failpoint.Reach(failpoint.Ending)
	if err := x.txn.end(ending); err != nil {
		return err
	}
	failpoint.Reach(failpoint.Ended)
	return nil
}

// complete sends our own records after those of the batch, and waits until all
// are acknowledged. Only the end of the transaction is left.
func (x *session) complete(ctx context.Context, own ...kgo.Record) error {
	if x.open != nil && !x.txn.strict() {
		// Here a late end of an earlier transaction may commit what there is
		// of this one. A checkpoint without its events would lose them.
		t := x.open.target
		if err := x.finish(ctx); err != nil {
			return err
		}
		failpoint.Reach(failpoint.Acked)
		x.open = newDelivery(t)
	}
	d, err := x.batch(ctx)
	if err != nil {
		return err
	}
	p := ownRecords(own...)
	d.hand(p)
	failpoint.Reach(failpoint.Checkpoint)
	x.txn.enlist(ctx, x.open.producer, x.topics.takeUsed(x.cfg))
	if err := x.finish(ctx); err != nil {
		return err
	}
	if x.txn.strict() {
		failpoint.Reach(failpoint.Acked)
	}
	if err := x.explain(x.topics.confirm(ctx)); err != nil {
		return err
	}
	return x.txn.follows(&p.records[len(own)-1])
}

// commitOwn commits records of the checkpoint topic, the last of them on the
// stream's partition, and returns that record's offset.
func (x *session) commitOwn(ctx context.Context, what string, own ...kgo.Record) (int64, error) {
	t := x.target(x.txn.client, fmt.Sprintf("commit %s to %s", what, x.cfg.CheckpointTopic))
	if err := x.txn.begin(ctx, &t); err != nil {
		return 0, err
	}
	if x.client == x.txn.client {
		if err := x.topics.reaches.pin(ctx, x.client); err != nil {
			return 0, err
		}
	}
	p := ownRecords(own...)
	last := &p.records[len(own)-1]
	x.open = newDelivery(t)
	x.open.hand(p)
	if err := x.finish(ctx); err != nil {
		return 0, err
	}
	if err := x.txn.follows(last); err != nil {
		return 0, err
	}
	limited, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return last.Offset, x.txn.end(limited)
}
