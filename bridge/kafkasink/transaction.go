package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/failpoint"
	"exportbridge/bridge/kafkaclient"
)

// commitTimeout bounds the end of a transaction. On a degraded cluster commits
// take ten seconds and then succeed; giving up earlier would create doubt.
const commitTimeout = 25 * time.Second

// endGrace is how long the end of a transaction goes on in a process that has to end.
// Then the next session's barrier decides, as after a crash.
const endGrace = time.Second

// errProducerChanged: part of a transaction's records went out under another
// producer epoch than the rest, so that the brokers have aborted some of them.
var errProducerChanged = errors.New("the producer id changed within a transaction")

// errNotOngoing: the transaction to commit is over. Only another session, or the
// transaction timeout, ends it before.
var errNotOngoing = errors.New("another session has ended the transaction")

// transactions are those of one session. Its methods are for one goroutine at a
// time: the Sink's caller, or at least once the copier's.
type transactions struct {
	cfg *Config
	// writer produces checkpoints and has the stream's transactional id.
	writer *kafkaclient.Client
	// version is the brokers' transaction.version, 0 until it is known.
	version atomic.Int32
	// patient: brokers below transaction.version 2, where EndTxn must not be
	// sent twice, so that its answer is waited for.
	patient bool
	// began is when the last transaction began, newest where its checkpoint or
	// barrier is: offsets only grow.
	began  time.Time
	newest int64
}

// strict reports whether brokers fence each transaction (transaction.version
// 2): then a late EndTxn cannot end the next one.
func (x *transactions) strict() bool { return x.version.Load() >= kafkaclient.StrictTransactions }

// transact commits the sent records and the checkpoint. Before the transaction
// has ended nothing is visible, and a crash leaves only a transaction that the
// next session aborts. After it both are durable. In between the next session's
// barrier decides.
func (x *session) transact(ctx context.Context, b *bridge.Batch) error {
	rec, err := x.checkpointRecord(x.cfg.dataKey(), &b.Checkpoint)
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
	if err := x.endTransaction(ending); err != nil {
		return err
	}
	failpoint.Reach(failpoint.Ended)
	return nil
}

// complete sends our own records after those of the batch, and waits until all
// are acknowledged. Only the end of the transaction is left.
func (x *session) complete(ctx context.Context, own ...kgo.Record) error {
	if x.open != nil && !x.strict() {
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
	x.enlist(ctx)
	if err := x.finish(ctx); err != nil {
		return err
	}
	if x.strict() {
		failpoint.Reach(failpoint.Acked)
	}
	if err := x.confirm(ctx); err != nil {
		return err
	}
	return x.follows(&p.records[len(own)-1])
}

// beginTransaction starts a transaction and returns the target of its records.
func (x *transactions) beginTransaction(ctx context.Context, what string) (target, error) {
	x.began = time.Now()
	if err := x.writer.BeginTransaction(); err != nil {
		return target{}, x.transactionFault(fmt.Errorf("begin a transaction: %w", err))
	}
	id, epoch, err := x.writer.ProducerID(ctx)
	if err != nil {
		return target{}, x.transactionFault(fmt.Errorf("begin a transaction: %w", err))
	}
	return target{client: x.writer, what: what, transactional: true, producer: id, epoch: epoch}, nil
}

// follows checks that our record is after all earlier ones. If not, the topic
// was recreated or truncated.
func (x *transactions) follows(r *kgo.Record) error {
	if r.Offset <= x.newest {
		return &bridge.Fault{
			Class: bridge.Transient, Code: "checkpoint_topic_changed",
			Err: fmt.Errorf("partition %d of topic %s is at offset %d, it was at %d: was it deleted and recreated?",
				r.Partition, r.Topic, r.Offset, x.newest),
		}
	}
	x.newest = r.Offset
	return nil
}

// endTransaction commits. After any error the outcome is unknown: the client
// must not be reused.
func (x *transactions) endTransaction(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- x.writer.EndTransaction(ctx, kgo.TryCommit) }() // waited for below
	tick := time.NewTicker(stallAfter)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if errors.Is(err, kerr.InvalidTxnState) {
				err = fmt.Errorf("%w: %w", errNotOngoing, err)
			}
			if err != nil {
				return x.transactionFault(fmt.Errorf("commit a transaction of %s: %w", x.cfg.TransactionalID(), err))
			}
			return nil
		case <-tick.C:
		}
		cause := x.writer.Trouble()
		if cause == nil {
			cause = errors.New("the brokers do not complete it")
		}
		x.cfg.Tell(x.cfg.fault(fmt.Errorf("commit a transaction of %s: %w", x.cfg.TransactionalID(), cause), ""))
	}
}

// transactionFault returns the fault of an error that ends a session, and
// distinguishes fencing from a transaction timeout.
func (x *transactions) transactionFault(err error) *bridge.Fault {
	if isTopicGone(err) {
		return goneTopic(err)
	}
	f := x.cfg.fault(err, x.cfg.CheckpointTopic)
	switch {
	case !isFenced(err):
	case !x.began.IsZero() && time.Since(x.began) >= x.cfg.TransactionTimeout:
		f.Class, f.Code = bridge.Transient, "transaction_timeout"
		f.Hint = "raise KAFKA_TRANSACTION_TIMEOUT if this happens often"
	default:
		f.Class, f.Code = bridge.Transient, "fenced"
		f.Hint = "another process or command has started a session of this stream"
		f.Err = fmt.Errorf("%w: %w", bridge.ErrFenced, f.Err)
	}
	return f
}

// isFenced reports whether brokers reject the producer as fenced, which they
// also do after a transaction timeout.
func isFenced(err error) bool {
	return errors.Is(err, errNotOngoing) || errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping)
}
