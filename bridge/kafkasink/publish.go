package kafkasink

import (
	"context"
	"errors"
	"fmt"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/failpoint"
)

// ended is a context that is over.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// errNoSession: Publish was called without a successful Recover.
var errNoSession = errors.New("no Kafka session: the last error ended it")

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

func (x *session) send(ctx context.Context, page *bridge.Page) error {
	p := x.kept.pages.take()
	p.page = page
	if err := x.dispatch(ctx, p, page); err != nil {
		p.finish()
		return err
	}
	return nil
}

// dispatch builds the page's records in p and passes them to the client, which
// then owns p. After an error nothing was passed.
func (x *session) dispatch(ctx context.Context, p *inflightPage, page *bridge.Page) error {
	receipt, err := x.kept.records.build(p, page, &x.topics.Described)
	if err != nil {
		return fmt.Errorf("%w: %w", bridge.ErrRejected, err)
	}
	d, err := x.batch(ctx)
	if err != nil {
		return err
	}
	x.receipt.add(receipt)
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

func noSession() error {
	return &bridge.Fault{Class: bridge.Transient, Code: "session", Err: errNoSession}
}

func (x *session) publish(ctx context.Context, b *bridge.Batch) (bridge.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return bridge.Receipt{}, fmt.Errorf("publish to %s: %w", x.cfg.Topic, err)
	}
	publish := x.append
	if x.cfg.exactly() {
		publish = x.transact
	}
	if err := publish(ctx, b); err != nil {
		return bridge.Receipt{}, err
	}
	x.cfg.Tell(nil)
	receipt := x.receipt.Receipt
	receipt.Topics = x.topics.states()
	x.receipt = tally{}
	return receipt, nil
}

// append waits for events sent without a transaction, unless the stream was
// lost.
func (x *session) append(ctx context.Context, b *bridge.Batch) error {
	x.copier.offer(b.From)
	if err := x.copier.failure(); err != nil {
		return err
	}
	if x.open == nil {
		if err := x.topics.refresh(ctx); err != nil {
			return err
		}
		return x.copier.introduce(ctx, b.Checkpoint)
	}
	if err := x.finish(ctx); err != nil {
		return err
	}
	failpoint.Reach(failpoint.Acked)
	return x.explain(x.topics.confirm(ctx))
}

// batch returns the delivery of the current batch, and starts one if there is
// none.
func (x *session) batch(ctx context.Context) (*delivery, error) {
	switch {
	case x.open != nil && x.open.hasFailed():
		return nil, x.open.outcome()
	case x.open != nil:
		return x.open, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("publish to %s: %w", x.cfg.Topic, err)
	}
	if err := x.topics.refresh(ctx); err != nil {
		return nil, err
	}
	t := x.target(x.client, "publish to "+x.cfg.Topic)
	t.first = failpoint.Produced
	if x.cfg.exactly() {
		if err := x.txn.begin(ctx, &t); err != nil {
			return nil, err
		}
	} else if err := x.copier.failure(); err != nil {
		return nil, err
	}
	x.open = newDelivery(t)
	return x.open, nil
}

// finish waits for all records of the current batch, and ends it.
func (x *session) finish(ctx context.Context) error {
	x.open.seal()
	_ = x.open.client.Flush(ended) // send what lingers; await waits
	if err := x.open.await(ctx, x.copier); err != nil {
		return err
	}
	x.open = nil
	return nil
}
