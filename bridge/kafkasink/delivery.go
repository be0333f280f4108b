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
)

var errUnacknowledged = errors.New("the brokers respond but acknowledge no records")

// target is the destination of records.
type target struct {
	cfg    *Config
	client *kafkaclient.Client
	what   string // the operation, for errors: "publish to TOPIC"
	// txn is nil without a transaction. All records of its transaction must have the
	// id and epoch of producer.
	txn      *txnProducer
	producer producerID
	// topics are those of the session: acknowledgments move their known ends.
	topics *topics
	// first is reached when the first record is passed to the client; none if empty.
	first failpoint.Point
}

// delivery tracks the records of one batch until all promises have run. Its methods,
// except settle, are for the Sink's caller.
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
	records, promise := p.records, p.promise // p may be used again before the loop ends
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

// settle records the result of a record's promise, on the client's goroutine.
func (d *delivery) settle(r *kgo.Record, err error) {
	if err == nil && d.txn != nil && (producerID{r.ProducerID, r.ProducerEpoch}) != d.producer {
		// The client took a new epoch after an error: it sends its pending records
		// again, but the brokers have aborted the acknowledged ones.
		err = errProducerChanged
	}
	if t := d.topics.reaches.of(r.Topic); err == nil && t != nil {
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

// await waits for the last promise, the first error, the end of ctx, or until c finds
// that the stream is lost, and reports stalls. c is nil in exactly-once mode: then the
// transaction fails.
func (d *delivery) await(ctx context.Context, c *copier) error {
	var lost <-chan struct{}
	if c != nil {
		lost = c.over
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	left, moved := d.left.Load(), time.Now()
	for {
		select {
		case <-d.done:
			return d.outcome()
		case <-d.failed:
			return d.outcome()
		case <-lost:
			return c.err
		case <-ctx.Done():
			if d.left.Load() == 0 {
				return d.outcome()
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
		if stall := d.look(ctx); stall != nil {
			d.cfg.Tell(stall)
			if stall.Class == bridge.Permanent {
				return stall // waiting does not mend a rejected login or certificate
			}
		}
	}
}

// outcome turns the first record error into a fault.
func (d *delivery) outcome() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		return nil
	}
	err := fmt.Errorf("publish to %s: %w", d.topic, d.err)
	f := d.cfg.fault(err, d.topic)
	switch t := d.topics.named(d.topic); {
	case errors.Is(d.err, errProducerChanged):
		f.Code, f.Hint = "producer_changed", ""
	case isTopicGone(d.err):
		return goneTopic(err)
	case d.txn != nil && isFenced(d.err):
		return d.txn.fault(err)
	case errors.Is(d.err, kerr.MessageTooLarge) && t != nil && !t.Settings.Known:
		// With readable settings the next session knows the new limit. Without them
		// each session would fail the same way.
		f.Class, f.Reason = bridge.Permanent, bridge.ReasonConfig
		f.Hint = hiddenLimit(d.cfg.GrantRead(d.topic))
	}
	return f
}

// look returns why the batch stalls, or nil if the batch or ctx has ended meanwhile.
func (d *delivery) look(ctx context.Context) *bridge.Fault {
	if cause := d.client.Trouble(); cause != nil {
		return d.cfg.fault(cause, d.cfg.Topic)
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
		cancel() // the batch has ended: the answer is not needed
	})
	found, err := d.client.Describe(looking, namesOf(d.topics.Needed())...)
	switch {
	case ctx.Err() != nil || errors.Is(looking.Err(), context.Canceled):
		return nil
	case err != nil:
		return d.cfg.explain(err, d.client)
	}
	var troubles []string
	for i := range found {
		troubles = append(troubles, found[i].Troubles()...)
	}
	if len(troubles) == 0 {
		return stalled(d.what, errUnacknowledged)
	}
	return stalled(d.what, errors.New(strings.Join(troubles, "; ")))
}

// stalled returns the Fault of records that no broker acknowledges.
func stalled(what string, cause error) *bridge.Fault {
	return &bridge.Fault{
		Class: bridge.Transient, Code: "stalled", Hint: "check that all brokers are up",
		Err: fmt.Errorf("%s: %w", what, cause),
	}
}
