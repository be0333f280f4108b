package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"exportbridge/bridge"
)

// op is a method of a port, as the explorer sees it. A Recover is two: what
// happens between them is where two sessions meet.
type op uint8

const (
	opFetch op = iota
	opInit
	opRead
	opHolds
	opSend
	opPublish
	opLoad
	opAdvance
	opAcquire
	opConfirm
	opRelease
	opNext
	opClaim
	opAnswer
)

var opNames = [...]string{
	"fetch", "recover:init", "recover:read", "holds", "send", "publish", "load", "advance", "acquire", "confirm", "release", "next", "claim", "answer",
}

// fate is what becomes of a call.
type fate uint8

const (
	fateOK   fate = iota
	fateFail      // an error, and nothing happened
	fateLost      // an error, and it happened all the same
	fateLate      // an error, and it happens some time later; of a batch delivered at least once, half of it
)

var (
	errExplored = errors.New("injected failure")
	errDead     = errors.New("the process is dead")
)

// call is a call of a port that waits for the scheduler, which runs it.
type call struct {
	proc  *process
	op    op
	ready func() bool      // nil is always
	run   func(fate) error // the effect; its result goes to the caller
	note  string
	reply chan error
	hangs time.Time // not before
	gone  bool      // the caller's context ended first; guarded by world.mu
}

// owners are the names of the instances and of the operator's command.
var owners = [...]string{"A", "B", "C"}

// process is one run of the bridge: a Source, a Sink, a Store, an Inbox and an
// Owner that leave every call to the scheduler.
type process struct {
	w      *world
	who    int // 0 or 1: the instance; 2: an operator's command
	bridge *bridge.Bridge
	cancel context.CancelFunc
	done   chan error

	dead bool // guarded by world.mu: no call has an effect any more

	// owned by the scheduler
	stopping bool
	frozen   int // steps that it still stands still for
	tenure   *tenure
	session  int // of the sink, 0 is none
	last     bridge.Place

	sent []int // items since the last Publish; owned by the engine
}

// ask leaves c to the scheduler and waits until it was run or ctx ends.
func (p *process) ask(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.proc, c.reply = p, make(chan error, 1)
	w := p.w
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		return errDead
	}
	w.arrived = append(w.arrived, c)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case err := <-c.reply:
		return err
	case <-ctx.Done():
		w.mu.Lock()
		c.gone = true
		w.mu.Unlock()
		return ctx.Err()
	}
}

// Fetch implements bridge.Source.
func (p *process) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	var page *bridge.Page
	err := p.ask(ctx, &call{op: opFetch, note: at.Cursor, run: func(f fate) error {
		if f != fateOK {
			return errExplored
		}
		page = p.w.export.page(at)
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// Decode implements bridge.Source.
func (p *process) Decode(page *bridge.Page) error {
	for line := range bytesLines(page.Body) {
		e := bridge.Event{Raw: line, Index: len(page.Events), Time: 1000 + int64(itemOf(line))}
		if p.w.plan.ids {
			e.ID = line
		}
		page.Events = append(page.Events, e)
	}
	page.Items = len(page.Events)
	return nil
}

// exported is the export: items 0, 1, 2 ... in pages, under one of the ways
// in which an API says that there is nothing more.
type exported struct {
	contract byte // 'A' no next cursor, 'B' the same one again, 'C' a new one with an empty page
	items    int
	size     int
	empties  int
}

func (x *exported) page(at bridge.Position) *bridge.Page {
	from := indexOf(at.Cursor)
	to := min(from+x.size, x.items)
	p := &bridge.Page{At: at, RequestedAt: time.Now(), ArrivedAt: time.Now(), Recycle: spoil}
	for n := from; n < to; n++ {
		p.Body = append(strconv.AppendInt(p.Body, int64(n), 10), '\n')
	}
	switch {
	case x.contract == 'A' && from+x.size >= x.items:
	case x.contract == 'C' && to == from:
		x.empties++
		p.Next = fmt.Sprintf("c%d.%d", to, x.empties)
	default:
		p.Next = fmt.Sprintf("c%d", to)
	}
	return p
}

// spoil makes the memory of a released page show in what is made of it.
func spoil(p *bridge.Page) {
	for i := range p.Body {
		p.Body[i] = '!'
	}
}

// indexOf returns the item that a cursor leads to.
func indexOf(cursor string) int {
	n := 0
	for _, c := range cursor {
		switch {
		case c == '.':
			return n
		case c != 'c':
			n = 10*n + int(c-'0')
		}
	}
	return n
}

// itemOf returns the number of an item, -1 where its memory was released.
func itemOf(raw []byte) int {
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return -1
	}
	return n
}

func bytesLines(body []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		begin := 0
		for i, b := range body {
			if b == '\n' {
				if !yield(body[begin:i:i]) {
					return
				}
				begin = i + 1
			}
		}
	}
}

// reached returns how many items are published at a checkpoint, counted from
// the export's first.
func reached(c bridge.Checkpoint) int { return indexOf(c.Cursor) + len(c.Tail) }

// Recover implements bridge.Sink. The newest session that was begun counts,
// exactly once; at least once it only keeps others from writing copies.
func (p *process) Recover(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	w := p.w
	p.sent = nil
	err := p.ask(ctx, &call{op: opInit, run: func(f fate) error {
		p.session = 0
		if f == fateOK || f == fateLost {
			w.sessions++
			w.topic.session = w.sessions
		}
		if f != fateOK {
			return errExplored
		}
		p.session, p.last = w.sessions, bridge.Place{Seq: -1}
		return nil
	}})
	if err != nil {
		return bridge.Checkpoint{}, err
	}
	if owned != nil {
		if err := owned(ctx); err != nil {
			return bridge.Checkpoint{}, err
		}
	}
	var found bridge.Checkpoint
	err = p.ask(ctx, &call{op: opRead, run: func(f fate) error {
		switch {
		case f != fateOK:
			p.session = 0
			return errExplored
		case p.session != w.topic.session && w.exactly:
			p.session = 0
			return bridge.ErrFenced
		}
		found = w.topic.newest()
		if found.Zero() {
			return bridge.ErrNoCheckpoint
		}
		return nil
	}})
	return found, err
}

// Holds implements bridge.Sink.
func (p *process) Holds(ctx context.Context) (bool, error) {
	var holds bool
	err := p.ask(ctx, &call{op: opHolds, run: func(f fate) error {
		if f != fateOK {
			return errExplored
		}
		holds = p.w.topic.records > 0
		return nil
	}})
	return holds, err
}

// Send implements bridge.Sink. At least once, what was sent is in the topic
// from its Publish on: before that it is like a Publish that failed.
func (p *process) Send(ctx context.Context, page *bridge.Page) error {
	defer page.Release()
	for i := range page.Events {
		p.sent = append(p.sent, itemOf(page.Events[i].Raw))
	}
	return p.ask(ctx, &call{op: opSend, note: page.At.Cursor, run: func(f fate) error {
		if f != fateOK {
			p.session = 0
			return errExplored
		}
		return nil
	}})
}

// Publish implements bridge.Sink.
func (p *process) Publish(ctx context.Context, b bridge.Batch) (bridge.Receipt, error) {
	w := p.w
	items := p.sent
	p.sent = nil
	c := &call{op: opPublish, run: func(f fate) error { return w.topic.publish(p, b, items, f) }}
	if w.verbose {
		c.note = fmt.Sprintf("%s %s %v at %q %d", b.Checkpoint.Place, b.Checkpoint.Kind, items, b.Checkpoint.Cursor, len(b.Checkpoint.Tail))
	}
	if err := p.ask(ctx, c); err != nil {
		return bridge.Receipt{}, err
	}
	return bridge.Receipt{Published: len(items)}, nil
}

// Load implements bridge.Store.
func (p *process) Load(ctx context.Context) (bridge.Checkpoint, error) {
	var found bridge.Checkpoint
	err := p.ask(ctx, &call{op: opLoad, run: func(f fate) error {
		if f != fateOK {
			return errExplored
		}
		found = p.w.store.value
		p.w.loaded[owners[p.who]] = reached(found)
		if found.Zero() {
			return bridge.ErrNoCheckpoint
		}
		return nil
	}})
	return found, err
}

// Advance implements bridge.Store.
func (p *process) Advance(ctx context.Context, from, to bridge.Checkpoint) error {
	w := p.w
	c := &call{op: opAdvance, run: func(f fate) error {
		switch f {
		case fateOK:
			return w.store.advance(w, from, to)
		case fateLost:
			w.store.advance(w, from, to)
		case fateLate:
			w.late = append(w.late, func() { w.store.advance(w, from, to) })
		}
		return errExplored
	}}
	if w.verbose {
		c.note = fmt.Sprintf("%s to %s %s %s", from.Place, to.Place, to.Kind, to.ChangeID())
	}
	return p.ask(ctx, c)
}

// tenure implements bridge.Ownership.
type tenure struct {
	p    *process
	lost chan struct{}
	told bool // lost is closed; owned by the scheduler
}

// Acquire implements bridge.Owner.
func (p *process) Acquire(ctx context.Context) (bridge.Ownership, error) {
	w := p.w
	t := &tenure{p: p, lost: make(chan struct{})}
	err := p.ask(ctx, &call{op: opAcquire, ready: func() bool { return w.owner == p.who || w.owner < 0 }, run: func(f fate) error {
		if f != fateOK {
			return errExplored
		}
		w.owner = p.who
		p.tenure = t
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Lost implements bridge.Ownership.
func (t *tenure) Lost() <-chan struct{} { return t.lost }

// Confirm implements bridge.Ownership.
func (t *tenure) Confirm(ctx context.Context) error {
	return t.p.ask(ctx, &call{op: opConfirm, run: func(f fate) error {
		switch {
		case f != fateOK:
			return errExplored
		case t.p.w.owner != t.p.who || t.p.tenure != t:
			return bridge.ErrNotOwner
		}
		return nil
	}})
}

func (*tenure) Shared(context.Context) bool { return true }

// Release implements bridge.Ownership.
func (t *tenure) Release() {
	t.p.ask(context.Background(), &call{op: opRelease, run: func(fate) error {
		if w := t.p.w; w.owner == t.p.who && t.p.tenure == t {
			w.owner = -1
		}
		t.p.tenure = nil
		return nil
	}})
}

// Next implements bridge.Inbox.
func (p *process) Next(ctx context.Context) (bridge.Command, error) {
	w := p.w
	var cmd bridge.Command
	err := p.ask(ctx, &call{op: opNext, ready: func() bool { return w.inbox.pending != nil }, run: func(f fate) error {
		if f != fateOK {
			return errExplored
		}
		cmd = w.inbox.pending.cmd
		return nil
	}})
	return cmd, err
}

// Claim implements bridge.Inbox.
func (p *process) Claim(ctx context.Context, cmd bridge.Command, _ string) (bool, error) {
	w := p.w
	var mine bool
	err := p.ask(ctx, &call{op: opClaim, note: cmd.ID, run: func(f fate) error {
		switch f {
		case fateOK:
			mine = w.inbox.claim(cmd)
			return nil
		case fateLost:
			w.inbox.claim(cmd)
		case fateLate:
			w.late = append(w.late, func() { w.inbox.claim(cmd) })
		}
		return errExplored
	}})
	return mine, err
}

// Answer implements bridge.Inbox.
func (p *process) Answer(ctx context.Context, cmd bridge.Command, a bridge.Answer) error {
	w := p.w
	c := &call{op: opAnswer, note: cmd.ID, run: func(f fate) error {
		// The engine says it whatever becomes of the call: so it must be true.
		w.answerIsTrue(cmd, a)
		switch f {
		case fateOK:
			w.inbox.answer(cmd, a)
			return nil
		case fateLost:
			w.inbox.answer(cmd, a)
		case fateLate:
			w.late = append(w.late, func() { w.inbox.answer(cmd, a) })
		}
		return errExplored
	}}
	if w.verbose {
		c.note = fmt.Sprintf("%s applied %v %s", cmd.ID, a.Applied, a.Detail)
	}
	return p.ask(ctx, c)
}

// asked is a command with what became of it.
type asked struct {
	cmd       bridge.Command
	claimed   bool
	withdrawn bool
	answer    *bridge.Answer
	applied   int // checkpoints that the topic, or the store, has taken for it
	forgotten bool
}

// postbox is the store's side of the inbox: one command at a time.
type postbox struct {
	pending *asked
	all     []*asked
}

func (x *postbox) of(id string) *asked {
	i := slices.IndexFunc(x.all, func(a *asked) bool { return a.cmd.ID == id })
	if i < 0 {
		return nil
	}
	return x.all[i]
}

func (x *postbox) claim(cmd bridge.Command) bool {
	a := x.pending
	if a == nil || a.cmd.ID != cmd.ID || !a.claimed && time.Now().UnixMilli() > cmd.Deadline {
		return false
	}
	a.claimed = true
	return true
}

func (x *postbox) answer(cmd bridge.Command, with bridge.Answer) {
	if a := x.pending; a != nil && a.cmd.ID == cmd.ID {
		if x.pending = nil; a.answer == nil { // who asked reads the first one
			a.answer = &with
		}
	}
}

// expire answers for the owner what nobody claimed in time.
func (x *postbox) expire() {
	if a := x.pending; a != nil && !a.claimed && time.Now().UnixMilli() > a.cmd.Deadline {
		if x.pending = nil; a.answer == nil {
			a.answer = &bridge.Answer{Detail: "expired"}
		}
	}
}
