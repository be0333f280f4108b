package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

const (
	// initTimeout bounds one InitProducerID. The coordinator first aborts what
	// an earlier session left open.
	initTimeout = 20 * time.Second
	// commitTimeout bounds the end of a transaction. On a degraded cluster commits
	// take ten seconds and then succeed; giving up earlier would create doubt.
	commitTimeout = 25 * time.Second
	// transactionRetry outlasts the stalls of a degraded cluster.
	transactionRetry = 20 * time.Second
)

// errProducerChanged: the records of a transaction differ in their producer epoch, so that
// the brokers have aborted a part of the transaction.
var errProducerChanged = errors.New("the producer id changed within a transaction")

// errNotOngoing: the transaction to commit has ended already. Only another session, or
// the transaction timeout, can have ended it.
var errNotOngoing = errors.New("another session has ended the transaction")

// txnProducer holds the stream's transactional id for one session, and begins and ends the
// session's transactions. Its methods are for one goroutine at a time: the Sink's caller,
// or in at-least-once mode the copier's.
type txnProducer struct {
	cfg    *Config
	client *kafkaclient.Client
	// version is the brokers' transaction.version, 0 until it is known.
	version atomic.Int32
	// patient is set if the brokers are below transaction.version 2. EndTxn must not be
	// sent twice there: the client waits longer for the response.
	patient bool
	// began is when the last transaction began, newest the offset of its checkpoint or
	// barrier: offsets only rise.
	began  time.Time
	newest int64
}

// strict reports whether brokers fence each transaction (transaction.version 2). Then a
// late EndTxn cannot end the next transaction.
func (p *txnProducer) strict() bool { return p.version.Load() >= kafkaclient.StrictTransactions }

// opts are the options of the client with the transactional id.
func (p *txnProducer) opts() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.TransactionalID(p.cfg.TransactionalID()),
		kgo.TransactionTimeout(p.cfg.TransactionTimeout),
		kgo.MetadataMaxAge(metadataAge),
		kgo.RetryTimeoutFn(p.retryFor),
	}
	if p.patient {
		opts = append(opts, kgo.RequestTimeoutOverhead(transactionRetry))
	}
	return opts
}

// retryFor bounds the retries of a request after network errors. An EndTxn sent
// twice leaves a copy in flight, which could end the next transaction on
// brokers that do not distinguish them.
func (p *txnProducer) retryFor(key int16) time.Duration {
	switch kmsg.Key(key) {
	case kmsg.EndTxn:
		if !p.strict() {
			return time.Nanosecond // 0 would be for ever
		}
		return transactionRetry
	case kmsg.InitProducerID, kmsg.AddPartitionsToTxn:
		return transactionRetry
	default:
		return kafkaclient.RetryTimeout
	}
}

// take initializes the stream's transactional id. The coordinator first
// aborts what an earlier session left open.
func (p *txnProducer) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	if _, _, err := p.client.ProducerID(ctx); err != nil {
		return fmt.Errorf("take the transactional id %s: %w", p.cfg.TransactionalID(), err)
	}
	return nil
}

// producerID is the producer id and epoch of a transaction's records.
type producerID struct {
	id    int64
	epoch int16
}

// begin starts a transaction for the records that go to t.
func (p *txnProducer) begin(ctx context.Context, t *target) error {
	p.began, t.txn = time.Now(), p
	err := p.client.BeginTransaction()
	if err == nil {
		t.producer.id, t.producer.epoch, err = p.client.ProducerID(ctx)
	}
	if err != nil {
		return p.fault(fmt.Errorf("begin a transaction: %w", err))
	}
	return nil
}

// follows checks that the checkpoint or barrier r is after all earlier ones. Otherwise
// the topic was recreated or truncated.
func (p *txnProducer) follows(r *kgo.Record) error {
	if r.Offset <= p.newest {
		return &bridge.Fault{
			Class: bridge.Transient, Code: "checkpoint_topic_changed",
			Err: fmt.Errorf("partition %d of topic %s is at offset %d, it was at %d: was it deleted and recreated?",
				r.Partition, r.Topic, r.Offset, p.newest),
		}
	}
	p.newest = r.Offset
	return nil
}

// end commits. After any error the outcome is unknown: the client must not be reused.
func (p *txnProducer) end(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- p.client.EndTransaction(ctx, kgo.TryCommit) }() // waited for below
	tick := time.NewTicker(stallAfter)
	defer tick.Stop()
	wrap := func(err error) error {
		return fmt.Errorf("commit a transaction of %s: %w", p.cfg.TransactionalID(), err)
	}
	for {
		select {
		case err := <-ended:
			if errors.Is(err, kerr.InvalidTxnState) {
				err = fmt.Errorf("%w: %w", errNotOngoing, err)
			}
			if err != nil {
				return p.fault(wrap(err))
			}
			return nil
		case <-tick.C:
		}
		cause := p.client.Trouble()
		if cause == nil {
			cause = errors.New("the brokers do not complete it")
		}
		p.cfg.Tell(p.cfg.fault(wrap(cause), ""))
	}
}

// fault returns the fault of an error that ends a session, and distinguishes fencing
// from a transaction timeout.
func (p *txnProducer) fault(err error) *bridge.Fault {
	if isTopicGone(err) {
		return goneTopic(err)
	}
	f := p.cfg.fault(err, p.cfg.CheckpointTopic)
	switch {
	case !isFenced(err):
	case !p.began.IsZero() && time.Since(p.began) >= p.cfg.TransactionTimeout:
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
	return errors.Is(err, errNotOngoing) || errors.Is(err, kerr.ProducerFenced) ||
		errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping)
}
