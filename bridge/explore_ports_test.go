package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	opTopics
	opHolds
	opBefore
	opHeld
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
	opKnown
)

var opNames = [...]string{
	"fetch", "recover:init", "recover:read", "topics", "holds", "before", "held", "send", "publish", "load", "advance", "acquire", "confirm", "release", "next", "claim", "answer", "known",
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

	defects map[int]bridge.Defect // of items, as they were sent last; between Send and Publish
	sent    []int                 // items since the last Publish; owned by the engine
	seen    bridge.Place          // where the store was when it was last read; guarded by world.mu
	knew    bridge.Place          // where it was when the session began
	held    map[int]int           // what it was told that the topic holds
	path    path                  // of its pages; owned by the scheduler
	// made is which of the topics of its name the session has, reach how far it
	// knows it to go, start where it found it to begin.
	made         int
	reach, start int64
	// introduced is the newest epoch that the session knows in the topic, -1 for none.
	introduced int64
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
		switch {
		case f != fateOK:
			return errExplored
		case p.w.export.refused[at.Cursor]:
			return &bridge.Fault{Class: bridge.BadCursor, Code: "410", Err: errExplored}
		}
		page = p.w.export.page(at)
		p.loop(page)
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
		e := bridge.Event{Raw: line, Index: len(page.Events), Time: time.Now().UnixMilli(), Defect: p.w.defect(itemOf(line))}
		if p.w.plan.ids {
			e.ID = line
		}
		if p.w.plan.shared { // by it and the one before
			e.ID = strconv.AppendInt(nil, int64(itemOf(line)/2), 10)
		}
		page.Events = append(page.Events, e)
	}
	page.Items = len(page.Events)
	return nil
}

// exported is the export: items 0, 1, 2 ... in pages, under one of the ways
// in which an API says that there is nothing more.
type exported struct {
	// contract is 'A' no next cursor, 'B' the same one again, 'C' a new one with
	// an empty page, 'D' two of them in turn.
	contract byte
	items    int
	size     int
	empties  int
	// refused are the cursors that it does not take any more. From the first
	// one on it has new names for its pages.
	refused map[string]bool
	// loops makes each page that follows another one lead back to it.
	loops bool
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
	case x.contract == 'D' && to == from:
		p.Next = fmt.Sprintf("c%d.1", to)
		if p.Next == at.Cursor {
			p.Next = fmt.Sprintf("c%d.2", to)
		}
	default:
		p.Next = fmt.Sprintf("c%d", to)
	}
	if n := len(x.refused); n > 0 && p.Next != "" && p.Next != at.Cursor {
		p.Next = fmt.Sprintf("c%d.%d.%d", to, x.empties, n)
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
		p.made, p.reach, p.start = w.topic.events.made, 0, 0
		w.mu.Lock()
		p.knew = p.seen
		w.mu.Unlock()
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
		p.path = maps.Clone(w.path)
		found, p.introduced = w.topic.newest(), -1
		if found.Zero() {
			return bridge.ErrNoCheckpoint
		}
		p.introduced = found.Epoch
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
	was := *page
	for i := range page.Events {
		n := itemOf(page.Events[i].Raw)
		p.sent = append(p.sent, n)
		p.defects[n] = page.Events[i].Defect
	}
	var marked []int
	for i := range page.Events {
		if page.Events[i].Again {
			marked = append(marked, itemOf(page.Events[i].Raw))
		}
	}
	return p.ask(ctx, &call{op: opSend, note: page.At.Cursor, run: func(f fate) error {
		p.w.refusable(&was)
		for _, n := range marked {
			if p.made == p.w.topic.events.made && !p.w.topic.ever[n] {
				p.w.fail(ruleMarked, "item %d is marked, and comes for the first time", n)
			}
			p.w.marked++
		}
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
	var topics []bridge.TopicState
	c := &call{op: opPublish, run: func(f fate) error {
		err := w.topic.publish(p, b, items, f)
		topics = w.topic.events.states()
		topics[0].ID, topics[0].End, topics[0].Start = madeID(p.made), p.reach, p.start
		return err
	}}
	if w.verbose {
		c.note = fmt.Sprintf("%s %s %s at %q %d", b.Checkpoint.Place, b.Checkpoint.Kind, listed(items), b.Checkpoint.Cursor, len(b.Checkpoint.Tail))
	}
	if err := p.ask(ctx, c); err != nil {
		return bridge.Receipt{}, err
	}
	return bridge.Receipt{Published: len(items), Topics: topics}, nil
}

// listed writes items, but not all of many.
func listed(items []int) string {
	const many = 20
	if n := len(items); n > many {
		return fmt.Sprintf("[%d items, %d to %d]", n, items[0], items[n-1])
	}
	return fmt.Sprint(items)
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
	p.w.mu.Lock()
	p.seen = found.Place // none, where it was not answered in time
	p.w.mu.Unlock()
	return found, err
}

// Advance implements bridge.Store.
func (p *process) Advance(ctx context.Context, from, to bridge.Checkpoint) error {
	w := p.w
	c := &call{op: opAdvance, run: func(f fate) error {
		switch f {
		case fateOK:
			err := w.store.advance(w, from, to)
			if err == nil && !w.exactly {
				w.path = maps.Clone(p.path)
			}
			return err
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
func (p *process) Claim(ctx context.Context, cmd bridge.Command, by bridge.Claim) (bridge.Claimed, error) {
	w := p.w
	var mine bridge.Claimed
	err := p.ask(ctx, &call{op: opClaim, note: cmd.ID, run: func(f fate) error {
		switch f {
		case fateOK:
			if mine = w.inbox.claim(cmd, by); mine.By == by.Session {
				w.inbox.of(cmd.ID).claimer = p.who
			}
			return nil
		case fateLost:
			w.inbox.claim(cmd, by)
		case fateLate:
			w.late = append(w.late, func() { w.inbox.claim(cmd, by) })
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
	claimed   string // the session
	claimer   int    // and its process
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

func (x *postbox) claim(cmd bridge.Command, by bridge.Claim) bridge.Claimed {
	a := x.pending
	switch {
	case a == nil || a.cmd.ID != cmd.ID:
		return bridge.Claimed{}
	case a.claimed != "" && a.claimed != by.Session && a.claimed != by.Over:
		return bridge.Claimed{By: a.claimed}
	case time.Now().UnixMilli() > a.cmd.Deadline:
		return bridge.Claimed{Late: true}
	}
	a.claimed = by.Session
	return bridge.Claimed{By: by.Session}
}

func (x *postbox) answer(cmd bridge.Command, with bridge.Answer) {
	if a := x.pending; a != nil && a.cmd.ID == cmd.ID {
		if x.pending = nil; a.answer == nil { // who asked reads the first one
			a.answer = &with
		}
	}
}

// expire answers for the owner what nobody claimed in time.
func (w *world) expire() {
	if a := w.inbox.pending; a != nil && a.claimed == "" && time.Now().UnixMilli() > a.cmd.Deadline {
		expired := bridge.Answer{Detail: "expired"}
		w.answerIsTrue(a.cmd, expired)
		w.inbox.answer(a.cmd, expired)
	}
}
