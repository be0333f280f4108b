package attest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/reconcile"
)

const (
	// ownedInterval is how often a standby looks whether it owns the stream.
	ownedInterval = time.Second
	// settledInterval is how often the position of a stream is read until the stream has
	// passed a period.
	settledInterval = 10 * time.Second
	// retryInterval is the time between two attempts after an error.
	retryInterval = time.Minute
)

// Ledger publishes the records. Only one process at a time has a Ledger: a later one fences
// the earlier ones.
type Ledger interface {
	// Marks and Publish are those of kafkasink.Repair.
	Marks() map[string][]byte
	Publish(ctx context.Context, page *bridge.Page, mark string, value []byte) (bridge.Receipt, error)
	Close()
}

// Ports are what an Attestor uses.
type Ports struct {
	// Owned reports whether this process owns the stream.
	Owned func() bool
	Live  reconcile.LiveStream
	// Compare compares a range with the topic. Times are in milliseconds since the epoch.
	Compare func(ctx context.Context, from, to int64, mode reconcile.Mode) (*reconcile.Report, error)
	// Marks are those of a Ledger, without opening one: the newest may be missing. Last is
	// the value of the stream's last record in the topic, nil if there is none.
	Marks func(context.Context) (map[string][]byte, error)
	Last  func(context.Context) ([]byte, error)
	// Open returns the Ledger with all marks. It creates the topic if that is allowed.
	Open func(context.Context) (Ledger, error)
	// Attested is called with each new record. Failed is called with the reason why there
	// is none. Both may be nil.
	Attested func(*Record)
	Failed   func(error)
}

// Attestor attests the periods of a stream, one after another. Its exported fields do not
// change.
type Attestor struct {
	Config
	Ports
	// Stream is the stream's name, Topic the topic of its events, By names the process. The
	// mark with the value of the last record has the name of Topic: each topic has a chain.
	Stream, Topic, By string
	// Delay is the maximum delay of an event after the end of its period. A stream has
	// passed the period when its position is that much after the end.
	Delay time.Duration
	// Confirm is how long after the first comparison a second one decides whether events
	// are missing: the stream may just be publishing them.
	Confirm time.Duration

	// head is the value of the last record, if known is true. Owned by Run.
	head  []byte
	known bool
	// after is the end of the last period that cannot be compared, and why is its error. Owned by Run.
	after int64
	why   error
	shown atomic.Pointer[bridge.Attested]
}

// Status returns the last attested period, of a stream with a position; nil if it is unknown.
func (a *Attestor) Status(position time.Time) *bridge.Attested {
	shown := a.shown.Load()
	if shown == nil || shown.Seq == 0 {
		return shown
	}
	now := *shown
	now.Pending = max(0, int64(position.Add(-a.Delay).Sub(now.To)/a.Period))
	return &now
}

// Run attests periods until ctx ends. Errors are passed to Failed and retried.
func (a *Attestor) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := a.step(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			wait, a.known = retryInterval, false
		}
		a.note(err)
		bridge.Sleep(ctx, wait)
	}
}

// note shows why the next period is not attested, nil if there is no error.
func (a *Attestor) note(err error) {
	if a.Failed != nil {
		a.Failed(err)
	}
	before := a.shown.Load()
	if before == nil && err == nil {
		return
	}
	var now bridge.Attested
	if before != nil {
		now = *before
	}
	now.Error, now.Hint = "", ""
	if err != nil {
		now.Error, now.Hint = err.Error(), "exportbridge check"
		if fault, ok := errors.AsType[*bridge.Fault](err); ok && fault.Hint != "" {
			now.Hint = fault.Hint
		}
	}
	a.shown.Store(&now)
}

// step attests the next period if it is due. It returns how long to wait before the next
// step.
func (a *Attestor) step(ctx context.Context) (time.Duration, error) {
	if !a.Owned() {
		a.known = false // another process continues the chain
		a.shown.Store(nil)
		return ownedInterval, nil
	}
	if !a.known {
		marks, err := a.Marks(ctx)
		if err != nil {
			return 0, err
		}
		if err = a.take(ctx, marks); err != nil {
			return 0, err
		}
	}
	from, to, wait, err := a.next(ctx)
	if wait > 0 || err != nil {
		if err == nil && from == a.after {
			err = a.why // the last record is still the one before the period
		}
		return wait, err
	}
	report, rejected, err := a.compare(ctx, from, to)
	if refused, ok := errors.AsType[*reconcile.RejectedError](err); ok {
		err = bridge.Blockf("attest", bridge.ReasonConfig, fmt.Sprintf("exportbridge verify --stream %s --from %s --to %s",
			a.Stream, bridge.BoundText(from), bridge.BoundText(to)), "%w", err) // verify knows the hint of each reason
		if refused.Reason == reconcile.OtherRules && len(a.head) > 0 {
			a.after, a.why = to, err // the records of the topic stay as they are: the next period may be comparable
		}
	}
	if err != nil || !a.Owned() {
		return 0, err
	}
	return 0, a.commit(ctx, report, rejected)
}

// take takes over the last record, by the marks. Without a mark it is the last record of the
// topic: the topic of the marks was lost.
func (a *Attestor) take(ctx context.Context, marks map[string][]byte) error {
	head, ok := marks[a.Topic]
	if !ok {
		var err error
		if head, err = a.Last(ctx); err != nil {
			return err
		}
	}
	return a.adopt(head)
}

// adopt makes a value that of the last record.
func (a *Attestor) adopt(value []byte) error {
	last, err := decode(value)
	if err != nil {
		return err
	}
	a.head, a.known = value, true
	if last != nil {
		a.shown.Store(&bridge.Attested{
			Seq: last.Seq, From: last.From, To: last.To, Listed: last.Listed, Missing: last.Missing,
			Repaired: last.Repaired,
		})
	}
	return nil
}

// next returns the next period. Until the stream has passed that period, it returns how long
// to wait.
func (a *Attestor) next(ctx context.Context) (from, to int64, wait time.Duration, err error) {
	last, err := decode(a.head)
	if err != nil {
		return 0, 0, 0, err
	}
	if last != nil {
		from = max(a.after, last.To.UnixMilli())
		to = a.floor(from) + a.Period.Milliseconds()
		passed := time.UnixMilli(to).Add(a.Delay)
		if s, ok := a.Live.Status(ctx); ok && s.Position.Before(passed) { // this read does not ask Kafka
			return from, to, settledInterval, nil
		}
	}
	live, read, err := reconcile.Position(ctx, a.Live, time.Now().UnixMilli())
	if err != nil {
		return 0, 0, 0, err
	}
	settled := live.Settled()
	if live.Listing == nil { // else it includes the delay
		settled -= a.Delay.Milliseconds()
	}
	if last == nil { // the last whole period that the stream has read
		to = a.floor(settled)
		from = to - a.Period.Milliseconds()
	}
	if !read || live.Zero() || to > settled || last == nil && from < max(1, live.Origin.Start) {
		return from, to, settledInterval, nil
	}
	return from, to, 0, nil
}

// floor returns the beginning of the period that contains a time, in milliseconds since the
// epoch.
func (a *Attestor) floor(at int64) int64 { return at - at%a.Period.Milliseconds() }

// compare compares a period. If events are missing, it compares again after Confirm, and
// repairs them if that is set. rejected is why it did not.
func (a *Attestor) compare(ctx context.Context, from, to int64) (r *reconcile.Report, rejected string, err error) {
	r, err = a.Compare(ctx, from, to, reconcile.Compare)
	if err != nil || r.Missing == 0 {
		return r, "", err
	}
	if bridge.Sleep(ctx, a.Confirm); ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	if a.Repair {
		r, err = a.Compare(ctx, from, to, reconcile.Repair)
		refused, ok := errors.AsType[*reconcile.RejectedError](err)
		if !ok {
			return r, "", err
		}
		rejected = string(refused.Reason)
	}
	r, err = a.Compare(ctx, from, to, reconcile.Compare)
	return r, rejected, err
}

// commit publishes the record of a comparison, unless another process has published one
// since. The record and the mark that makes it the last one are in one transaction, so that
// each period has one record whatever crashes.
func (a *Attestor) commit(ctx context.Context, report *reconcile.Report, rejected string) error {
	before := a.head
	ledger, err := a.Open(ctx)
	if err != nil {
		return err
	}
	defer ledger.Close()
	if err := a.take(ctx, ledger.Marks()); err != nil || !bytes.Equal(a.head, before) {
		return err // or the other record is the last one now
	}
	made, err := a.recordOf(report, before)
	if err != nil {
		return err
	}
	if made.Missing > 0 {
		made.Unrepaired = rejected
	}
	page, err := made.page()
	if err != nil {
		return err
	}
	value := page.Events[0].Raw
	if _, err = ledger.Publish(ctx, page, a.Topic, value); err != nil {
		return fmt.Errorf("publish record %d: %w", made.Seq, err)
	}
	if a.Attested != nil {
		a.Attested(made)
	}
	return a.adopt(value)
}
