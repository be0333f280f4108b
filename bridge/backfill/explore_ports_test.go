package backfill_test

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// process is a process that begins or resumes a job. It is all ports of that, and counts
// their calls.
type process struct {
	x     *explored
	fail  failing
	calls map[string]int
	dead  bool // it was killed
	late  bool // it came after the job was cancelled
	owner *bridgetest.Owner
}

var (
	errKilled = &bridge.Fault{Class: bridge.Permanent, Err: fmt.Errorf("%w: killed", bridgetest.ErrDown)}
	errDown   = &bridge.Fault{Class: bridge.Transient, Err: bridgetest.ErrDown}
)

// do runs a call of a port, which the plan may have fail.
func (p *process) do(name string, call func() error) error {
	x := p.x
	x.mu.Lock()
	p.calls[name]++
	name = fmt.Sprintf("%s %d", name, p.calls[name])
	x.trace = append(x.trace, name)
	dead, fails, happens := p.dead, p.fail.call == name, x.plan.at == name && x.round == 0
	x.mu.Unlock()
	if happens {
		x.happen(x.plan.what)
	}
	if dead {
		return errKilled
	}
	if !fails {
		return call()
	}
	switch p.fail.how {
	case failed:
		return errDown
	case persisted:
		_ = call() // it is the answer that fails
		return errDown
	case killed:
		p.kill()
		return errKilled
	case killedAfter:
		_ = call()
		p.kill()
		return errKilled
	case paused: // until another process has come to its end
		x.group.Expire()
		x.another()
	case twin: // another process goes on beside it
		x.group.Expire()
		x.beside.Go(x.another)
	}
	return call()
}

func (p *process) kill() {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	p.dead = true
}

// get is do with a result.
func get[T any](p *process, name string, call func() (T, error)) (T, error) {
	var v T
	err := p.do(name, func() (err error) { v, err = call(); return err })
	return v, err
}

// Records implements backfill.Log, as do Change, Begin, Watch and Members.
func (p *process) Records(ctx context.Context, age time.Duration) (plans, checkpoints map[string]*kgo.Record, err error) {
	err = p.do("Records", func() (err error) { plans, checkpoints, err = p.x.log.Records(ctx, age); return err })
	return plans, checkpoints, err
}

func (p *process) Change(ctx context.Context, id string, change func(*kgo.Record) ([]byte, []string, error)) error {
	var refused error // by the caller's function
	err := p.do("Change", func() error {
		err := p.x.log.Change(ctx, id, func(have *kgo.Record) (plan []byte, gone []string, err error) {
			plan, gone, refused = change(have)
			return plan, gone, refused
		})
		p.x.look()
		return err
	})
	if refused != nil {
		return refused
	}
	return err
}

func (p *process) Begin(ctx context.Context, id string, check func(map[string]*kgo.Record) ([]byte, error)) error {
	var refused error // by the caller's function
	err := p.do("Begin", func() error {
		return p.x.log.Begin(ctx, id, func(plans map[string]*kgo.Record) (plan []byte, err error) {
			plan, refused = check(plans)
			return plan, refused
		})
	})
	return cmp.Or(refused, err)
}

func (p *process) Watch(ctx context.Context, id string, visit func(*kgo.Record)) error {
	if err := p.do("Watch", func() error { return nil }); err != nil {
		return errKilled
	}
	return p.x.log.Watch(ctx, id, visit)
}

func (p *process) Members(ctx context.Context, id string) ([]bridge.Member, error) {
	return get(p, "Members", func() ([]bridge.Member, error) { return p.x.log.Members(ctx, id) })
}

func (p *process) Lanes(context.Context, string, int) ([]bridge.Member, error) { return nil, nil }

func (p *process) Hosts(context.Context) ([]bridge.Member, error) { return nil, nil }

// Walk implements bridge.CheckpointLog.
func (p *process) Walk(ctx context.Context, visit func(bridge.Checkpoint) bool) error {
	return p.do("Walk", func() error { return checkpoints{p.x.live}.Walk(ctx, visit) })
}

// Acquire implements backfill.Owner.
func (p *process) Acquire(ctx context.Context) (bridge.Ownership, error) {
	return get(p, "Acquire", func() (bridge.Ownership, error) {
		o, err := p.owner.Acquire(ctx)
		return ownership{o, p}, err
	})
}

func (p *process) Close(context.Context) error {
	p.owner.Close()
	return nil
}

type ownership struct {
	bridge.Ownership
	p *process
}

// Lost is not heard by a process that is paused or has a twin.
func (o ownership) Lost() <-chan struct{} {
	if o.p.fail.how == paused || o.p.fail.how == twin {
		return nil
	}
	return o.Ownership.Lost()
}

// open makes what a window runs on.
func (p *process) open(j *backfill.Job, n int) (*backfill.Setup, error) {
	if p.late {
		p.x.t.Error("a job that was cancelled is resumed")
	}
	window := fmt.Sprintf("w%d ", n)
	cfg := engine.DefaultConfig()
	cfg.PageSize = j.PageSize
	return &backfill.Setup{
		Config: cfg, Source: pages{p, window}, Sink: sink{p.x.topic.Open(j.WindowName(n)), p, window, new([]sent)}, Close: func() {},
	}, p.do(window+"Open", func() error { return nil })
}

// pages is a bridge.Source of the events of one tenant or the other, an event a second,
// two on a page. A cursor is the number of the page's first event.
type pages struct {
	p      *process
	window string
}

func (s pages) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	return get(s.p, s.window+"Fetch", func() (*bridge.Page, error) {
		if bridge.Sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return nil, ctx.Err()
		}
		first, last := int((at.Start-second(0))/1000), int((at.End-second(0))/1000)
		if n, err := strconv.Atoi(at.Cursor); err == nil {
			first = n
		}
		s.p.x.mu.Lock()
		tenant := s.p.x.tenant.Organization
		s.p.x.mu.Unlock()
		var items []string
		for n := first; n < min(first+2, last); n++ {
			items = append(items, fmt.Sprintf(`{"eventId":"%s%d","timestamp":%d}`, tenant, n, second(n)))
		}
		next := ""
		if first+2 < last {
			next = strconv.Itoa(first + 2)
		}
		page := bridgetest.NewPage(at,
			fmt.Appendf(nil, `{"metadata":{"organization":{"slug":%q},"application":{"slug":"web"}},"items":[%s],"nextCursor":%q}`,
				tenant, strings.Join(items, ","), next))
		page.Next = next
		return page, nil
	})
}

func (s pages) Decode(page *bridge.Page) error { return bridgetest.DecodePage(page) }

// sent is an event in a batch.
type sent struct {
	id string
	of bridge.SourceIdentity
}

type sink struct {
	*bridgetest.Sink
	p      *process
	window string
	batch  *[]sent
}

func (s sink) Recover(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	*s.batch = nil
	return get(s.p, s.window+"Recover", func() (bridge.Checkpoint, error) { return s.Sink.Recover(ctx, owned) })
}

func (s sink) Topics(ctx context.Context) ([]bridge.TopicState, error) {
	return get(s.p, s.window+"Topics", func() ([]bridge.TopicState, error) { return s.Sink.Topics(ctx) })
}

func (s sink) Holds(ctx context.Context) (bool, error) {
	return get(s.p, s.window+"Holds", func() (bool, error) { return s.Sink.Holds(ctx) })
}

func (s sink) Send(ctx context.Context, page *bridge.Page) error {
	for i := range page.Events {
		*s.batch = append(*s.batch, sent{string(page.Events[i].ID), page.Source})
	}
	return s.Sink.Send(ctx, page)
}

func (s sink) Publish(ctx context.Context, b bridge.Batch) (bridge.Receipt, error) {
	batch := *s.batch
	*s.batch = nil
	return get(s.p, s.window+"Publish", func() (bridge.Receipt, error) {
		receipt, err := s.Sink.Publish(ctx, b)
		if err == nil {
			s.p.x.publish(batch)
		}
		return receipt, err
	})
}
