package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/failpoint"
	"exportbridge/bridge/kafkaclient"
)

const (
	// stallAfter is the time without acknowledgements after which a stall is
	// examined and reported. With lookTimeout it stays below ten seconds.
	stallAfter  = 4 * time.Second
	lookTimeout = 3 * time.Second
	// settingsAge bounds the age of the topics' settings. They may change while
	// a bridge runs for weeks: a shortened retention would delete what the old
	// one allowed. Topics may be recreated too, which an idle stream would not
	// notice otherwise.
	settingsAge = 30 * time.Second
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
	receipt, err := x.kept.records.build(p, page, &x.topics)
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
	receipt.Topics = x.reaches.states(x.topics.DeadLetters)
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
		if err := x.refresh(ctx); err != nil {
			return err
		}
		return x.copier.introduce(ctx, b.Checkpoint)
	}
	if err := x.finish(ctx); err != nil {
		return err
	}
	failpoint.Reach(failpoint.Acked)
	return x.confirm(ctx)
}

// batch returns the delivery of the current batch, and starts one if there is
// none.
func (x *session) batch(ctx context.Context) (*delivery, error) {
	switch {
	case x.open != nil && x.open.hasFailed():
		return nil, x.outcome(x.open)
	case x.open != nil:
		return x.open, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("publish to %s: %w", x.cfg.Topic, err)
	}
	if err := x.refresh(ctx); err != nil {
		return nil, err
	}
	t := target{client: x.client, what: "publish to " + x.cfg.Topic}
	var err error
	if x.cfg.exactly() {
		t, err = x.beginTransaction(ctx, t.what)
	} else {
		err = x.copier.failure()
	}
	if err != nil {
		return nil, err
	}
	t.first, t.reaches = failpoint.Produced, x.reaches
	x.open = newDelivery(t)
	return x.open, nil
}

// finish waits for all records of the current batch, and ends it.
func (x *session) finish(ctx context.Context) error {
	x.open.seal()
	_ = x.open.client.Flush(ended) // send what lingers; await waits
	if err := x.await(ctx, x.open); err != nil {
		return err
	}
	x.open = nil
	return nil
}

// refresh ends the session if the topics have changed, and looks where they end.
// Unresponsive brokers do not end it.
func (x *session) refresh(ctx context.Context) error {
	if time.Since(x.read) < settingsAge {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	x.read = time.Now()
	topics, err := x.writer.Describe(ctx, x.cfg.Topics().Needed()...)
	if err != nil {
		return nil //nolint:nilerr // producing waits for the brokers, and says so
	}
	if err := x.same(topics); err != nil {
		return err
	}
	for i := range topics {
		known := x.state(topics[i].Name)
		if topics[i].Settings != known.Settings {
			return &bridge.Fault{Class: bridge.Transient, Code: "settings", Err: fmt.Errorf("settings of topic %s changed", known.Name)}
		}
		if len(topics[i].Partitions) > len(known.Partitions) {
			known.Partitions = topics[i].Partitions
		}
	}
	// What retention deletes behind known ends counts as lost: a quiet partition grows by
	// the marker of our last transaction, and by the records of other streams.
	bounds, _ := x.writer.Bounds(ctx, x.cfg.Topics().Published()...) // none after an error
	for _, t := range x.reaches {
		t.grow(bounds[t.topic.Name])
	}
	return nil
}

// target is the destination of records.
type target struct {
	client *kafkaclient.Client
	what   string // is done, for errors: "publish to TOPIC"
	// transactional records must all go out with this producer id and epoch.
	transactional bool
	producer      int64
	epoch         int16
	// reaches are how far the topics of events are known to go, and learn more.
	reaches reaches
	// first is reached when the first record is handed over; none if empty.
	first failpoint.Point
}

// delivery tracks the records of one batch until all promises have run. Its
// methods are for the Sink's caller, except settle.
type delivery struct {
	target
	// left counts the records whose promise has not run, and one more until
	// the delivery is sealed.
	left   atomic.Int64
	sealed bool
	done   chan struct{} // closed by the last promise of a sealed delivery
	failed chan struct{} // closed by the first promise with an error

	mu    sync.Mutex // guards err and topic
	err   error
	topic string
}

func newDelivery(to target) *delivery {
	d := &delivery{target: to, done: make(chan struct{}), failed: make(chan struct{})}
	d.left.Store(1)
	return d
}

// hand passes an inflightPage's records to the client. Their context is never
// cancelled, since that would leave a sent record in doubt inside the client.
func (d *delivery) hand(p *inflightPage) {
	n := len(p.records)
	if n == 0 {
		p.finish()
		return
	}
	p.delivery = d
	p.left.Store(int64(n))
	d.left.Add(int64(n))
	records, promise := p.records, p.promise // the last promise may take them away
	for i := range records {
		d.client.Produce(context.Background(), &records[i], promise)
		if d.first != "" {
			failpoint.Reach(d.first)
			d.first = ""
		}
	}
}

// seal marks the end of the records.
func (d *delivery) seal() {
	if !d.sealed {
		d.sealed = true
		d.leave()
	}
}

func (d *delivery) leave() {
	if d.left.Add(-1) == 0 {
		close(d.done)
	}
}

func (d *delivery) hasFailed() bool {
	select {
	case <-d.failed:
		return true
	default:
		return false
	}
}

// settle records the result of a record's promise, on the client's goroutine.
func (d *delivery) settle(r *kgo.Record, err error) {
	if err == nil && d.transactional && (r.ProducerID != d.producer || r.ProducerEpoch != d.epoch) {
		// The client healed itself: it sends what it still has anew, while
		// the brokers have dropped what they had acknowledged.
		err = errProducerChanged
	}
	if t := d.reaches.of(r.Topic); err == nil && t != nil {
		err = t.follows(r)
	}
	if err != nil {
		d.fail(r.Topic, err)
	}
}

func (d *delivery) fail(topic string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err, d.topic = err, topic
		close(d.failed)
	}
}

// await waits for the last promise, the first error or the end of ctx, and
// reports stalls.
func (x *session) await(ctx context.Context, d *delivery) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	left, moved := d.left.Load(), time.Now()
	for {
		select {
		case <-d.done:
			return x.outcome(d)
		case <-d.failed:
			return x.outcome(d)
		case <-x.lost():
			return x.copier.err
		case <-ctx.Done():
			if d.left.Load() == 0 {
				return x.outcome(d)
			}
			return fmt.Errorf("%s: %w", d.what, ctx.Err())
		case <-tick.C:
		}
		if now := d.left.Load(); now != left {
			left, moved = now, time.Now()
		}
		if time.Since(moved) < stallAfter {
			continue
		}
		if stall := x.look(ctx, d); stall != nil {
			x.cfg.Tell(stall)
			if stall.Class == bridge.Permanent {
				return stall // a refused login or certificate does not pass by waiting
			}
		}
	}
}

// outcome turns the first record error into a fault.
func (x *session) outcome(d *delivery) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		return nil
	}
	err := fmt.Errorf("publish to %s: %w", d.topic, d.err)
	f := x.cfg.fault(err, d.topic)
	switch t := x.state(d.topic); {
	case errors.Is(d.err, errProducerChanged):
		f.Code, f.Hint = "producer_changed", ""
	case isTopicGone(d.err):
		return goneTopic(err)
	case d.transactional && isFenced(d.err):
		return x.transactionFault(err)
	case errors.Is(d.err, kerr.MessageTooLarge) && t != nil && !t.Settings.Known:
		// With readable settings the next session knows the new limit. Without,
		// it would try the same again for ever.
		f.Class, f.Reason = bridge.Permanent, bridge.ReasonConfig
		f.Hint = "set KAFKA_MAX_MESSAGE_BYTES to the topic's max.message.bytes, or grant reading it: " + x.cfg.GrantRead(d.topic)
	}
	return f
}

// look returns the cause of a stall, or nil if the batch or ctx has ended meanwhile.
func (x *session) look(ctx context.Context, d *delivery) *bridge.Fault {
	if cause := x.writer.Trouble(); cause != nil {
		return x.cfg.fault(cause, x.cfg.Topic)
	}
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	var stop sync.WaitGroup
	defer stop.Wait()
	defer cancel()
	stop.Go(func() {
		select {
		case <-d.done:
		case <-d.failed:
		case <-looking.Done():
		}
		cancel() // an acknowledgement makes the question pointless
	})
	topics, err := x.writer.Describe(looking, x.cfg.Topics().Needed()...)
	switch {
	case ctx.Err() != nil || errors.Is(looking.Err(), context.Canceled):
		return nil
	case err != nil:
		return x.cfg.explain(err, x.writer)
	}
	var troubles []string
	for i := range topics {
		troubles = append(troubles, topics[i].Troubles()...)
	}
	if len(troubles) == 0 {
		troubles = []string{"the brokers respond but acknowledge no records"}
	}
	return &bridge.Fault{
		Class: bridge.Transient, Code: "stalled", Hint: "check that all brokers are up",
		Err: fmt.Errorf("%s: %s", d.what, strings.Join(troubles, "; ")),
	}
}
