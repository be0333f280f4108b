package kafkasink

import (
	"context"
	"errors"
	"fmt"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/failpoint"
)

// Send passes a page's events to the client, which sends them in the background. In
// exactly-once mode the first page of a batch starts a transaction, and only that
// waits for brokers. A page with an unpublishable event is rejected as a whole, with
// an error that is a bridge.ErrRejected; any other error ends the session.
func (s *Sink) Send(ctx context.Context, page *bridge.Page) error {
	if s.session == nil {
		page.Release()
		return noSession()
	}
	err := s.session.send(ctx, page)
	if err != nil && !errors.Is(err, bridge.ErrRejected) {
		s.endSession()
	}
	return err
}

func (s *session) send(ctx context.Context, page *bridge.Page) error {
	p := s.kept.pages.take()
	p.page = page
	if err := s.dispatch(ctx, p, page); err != nil {
		p.finish()
		return err
	}
	return nil
}

// dispatch builds the page's records in p and passes them to the client, which
// then owns p. After an error nothing was passed.
func (s *session) dispatch(ctx context.Context, p *inflightPage, page *bridge.Page) error {
	receipt, err := s.kept.records.build(p, page, &s.topics.Described)
	if err != nil {
		return fmt.Errorf("%w: %w", bridge.ErrRejected, err)
	}
	d, err := s.batch(ctx)
	if err != nil {
		return err
	}
	addReceipt(&s.receipt, receipt)
	d.hand(p)
	return nil
}

// Publish waits until all in-sync replicas have the records sent since the last
// Publish. In exactly-once mode it adds the checkpoint and commits the transaction.
// It waits for unreachable brokers until ctx ends, except while it ends the
// transaction, which has its own timeout. Any error ends the session. The topic then
// has all of the batch or nothing in exactly-once mode, as the next Recover shows, and
// possibly a part of it in at-least-once mode. A bridge.ErrFenced reports that another
// session of the stream has started.
func (s *Sink) Publish(ctx context.Context, b bridge.Batch) (bridge.Receipt, error) {
	if s.session == nil {
		return bridge.Receipt{}, noSession()
	}
	receipt, err := s.session.publish(ctx, &b)
	if err != nil {
		s.endSession()
		return bridge.Receipt{}, err
	}
	return receipt, nil
}

// noSession is the fault of a call without a successful Recover.
func noSession() error {
	return &bridge.Fault{Class: bridge.Transient, Code: "session",
		Err: errors.New("no Kafka session: the last error ended it")}
}

func (s *session) publish(ctx context.Context, b *bridge.Batch) (bridge.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return bridge.Receipt{}, fmt.Errorf("publish to %s: %w", s.cfg.Topic, err)
	}
	publish := s.append
	if s.cfg.exactly() {
		publish = s.transact
	}
	if err := publish(ctx, b); err != nil {
		return bridge.Receipt{}, err
	}
	s.cfg.Tell(s.copier.overdue())
	receipt := s.receipt
	receipt.Topics = s.topics.states()
	s.receipt = bridge.Receipt{}
	return receipt, nil
}

// append waits for the acknowledgements of events sent without a transaction, unless
// another session has the stream.
func (s *session) append(ctx context.Context, b *bridge.Batch) error {
	s.copier.offer(b.From)
	if err := s.copier.failure(); err != nil {
		return err
	}
	if s.open == nil {
		if err := s.topics.refresh(ctx); err != nil {
			return err
		}
		return s.copier.introduce(ctx, b.Checkpoint)
	}
	if err := s.finish(ctx); err != nil {
		return err
	}
	failpoint.Reach(failpoint.Acked)
	return s.explain(s.topics.confirm(ctx))
}

// batch returns the delivery of the current batch, and starts one if there is
// none.
func (s *session) batch(ctx context.Context) (*delivery, error) {
	if s.open != nil {
		return s.open, s.open.outcome()
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("publish to %s: %w", s.cfg.Topic, err)
	}
	if err := s.topics.refresh(ctx); err != nil {
		return nil, err
	}
	t := s.target(s.client, "publish to "+s.cfg.Topic)
	t.first = failpoint.Produced
	if s.cfg.exactly() {
		if err := s.txn.begin(ctx, &t); err != nil {
			return nil, err
		}
	} else if err := s.copier.failure(); err != nil {
		return nil, err
	}
	s.open = newDelivery(t)
	return s.open, nil
}

// finish waits for all records of the current batch, and ends it.
func (s *session) finish(ctx context.Context) error {
	s.open.seal()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_ = s.open.client.Flush(ended) // send what lingers; await waits
	if err := s.open.await(ctx, s.copier); err != nil {
		return err
	}
	s.open = nil
	return nil
}
