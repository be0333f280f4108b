package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
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
	"fetch", "recover:init", "recover:read", "topics", "holds", "before", "held", "send", "publish", "load", "advance",
	"acquire", "confirm", "release", "next", "claim", "answer", "known",
}

// fate is what becomes of a call.
type fate uint8

const (
	fateOK   fate = iota
	fateFail      // an error, and nothing happened
	fateLost      // an error, and it happened all the same
	fateLate      // an error, and it happens some time later; of a batch in at-least-once mode, half of it
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
	bridge *engine.Engine
	cancel context.CancelFunc
	done   chan error

	dead bool // guarded by world.mu: no call has an effect any more

	// owned by the scheduler
	stopping  bool
	said      func() // checks what an operator's command has told, set before it ends
	frozen    int    // steps that it still stands still for
	ownership *ownership
	session   int // of the sink, 0 is none
	last      bridge.Version

	defects map[int]bridge.Defect // of items, as they were sent last; between Send and Publish
	sent    []int                 // items since the last Publish; owned by the engine
	seen    bridge.Version        // where the store was when it was last read; guarded by world.mu
	knew    bridge.Version        // where it was when the session began
	read    bridge.Checkpoint     // what its session found in the topic, until the store answers; guarded by world.mu
	knows   bridge.Checkpoint     // the newest one that it found, or took to the store; guarded by world.mu
	held    map[int]int           // what it was told that the topic holds
	path    path                  // of its pages; owned by the scheduler
	// settings are its own, and older is whether it is of an older version, which knows
	// neither requests nor borders. Both are set before it begins.
	settings settingsOf
	older    bool
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
		case p.settings == settingsOther && p.believes():
			return errExplored // by design it would be believed
		case p.w.plan.windows:
			page = p.w.page(at)
			return nil
		case p.w.export.refused[at.Cursor]:
			return &bridge.Fault{Class: bridge.BadCursor, Code: "410", Err: errExplored}
		}
		if page = p.w.pageOne(at); page == nil {
			page = p.w.export.page(at)
			p.loop(page)
			p.w.export.noteFirst(page)
		}
		p.list(page)
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
		e := bridge.Event{Raw: line, Index: len(page.Events), Time: time.Now().UnixMilli()}
		if p.w.plan.windows {
			line, e.Time = splitTime(line)
			e.Raw = line
		}
		e.Defect = p.w.defect(itemOf(line))
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
	// looped are the cursors whose page led back, or was the first one. The stream may
	// take such a page for the first one, and leave the cursor as a refused one.
	looped map[string]bool
	// stale are the cursors that it answers with the first page, and firsts what that
	// was, by the cursor that it led to.
	stale  map[string]firstPage
	firsts map[bridge.CursorDigest]firstPage
	// inclusive has each page but the first begin with the item that ended the one
	// before. Its cursors begin with "i".
	inclusive bool
}

// cursor is the one of the page of an item.
func (x *exported) cursor(item int) string {
	if x.inclusive {
		return fmt.Sprint("i", item)
	}
	return fmt.Sprint("c", item)
}

func (x *exported) page(at bridge.Position) *bridge.Page {
	from := indexOf(at.Cursor)
	to := min(from+x.size, x.items)
	p := &bridge.Page{At: at, RequestedAt: time.Now(), ArrivedAt: time.Now(), Recycle: spoil}
	first := from
	if x.inclusive && at.Cursor != "" {
		first = max(0, from-1)
	}
	x.list(p, first, to)
	switch {
	case x.contract == 'A' && from+x.size >= x.items:
	case x.contract == 'C' && to == from:
		x.empties++
		p.Next = fmt.Sprintf("%s.%d", x.cursor(to), x.empties)
	case x.contract == 'D' && to == from:
		p.Next = x.cursor(to) + ".1"
		if p.Next == at.Cursor {
			p.Next = x.cursor(to) + ".2"
		}
	default:
		p.Next = x.cursor(to)
	}
	if n := len(x.refused) + len(x.stale); n > 0 && p.Next != "" && p.Next != at.Cursor {
		p.Next = fmt.Sprintf("%s.%d.%d", x.cursor(to), x.empties, n)
	}
	return p
}

// list appends the items of a range to a page.
func (x *exported) list(p *bridge.Page, from, to int) {
	for n := from; n < to; n++ {
		p.Body = append(strconv.AppendInt(p.Body, int64(n), 10), '\n')
	}
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
		case c != 'c' && c != 'i':
			n = 10*n + int(c-'0')
		}
	}
	return n
}

// itemOf returns the number of an item, -1 where its memory was released.
func itemOf(raw []byte) int {
	n, err := numberOf(raw)
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
// the export's first. Of a stream that follows windows it is the watermark in seconds.
func reached(c bridge.Checkpoint) int {
	if c.Origin.Follow == bridge.FollowWindows {
		at, _ := markOf(c)
		return int(at-listStart) / 1000
	}
	n := indexOf(c.Cursor) + len(c.Tail)
	if includes := strings.HasPrefix(c.Cursor, "i") && indexOf(c.Cursor) > 0; includes && c.Carried == 0 &&
		(len(c.Tail) > 0 || c.Border.Items == nil) {
		n-- // it is in the tail too, or not known to be published
	}
	return n
}

// targeted is reached of the target of a reset.
func (w *world) targeted(t bridge.Target) int {
	origin := bridge.Origin{Start: t.Start}
	if w.plan.windows {
		origin.Follow = bridge.FollowWindows
	}
	return reached(bridge.Checkpoint{Origin: origin, Cursor: t.Cursor, Tail: t.Tail, Carried: t.Carried, Border: t.Border})
}

// Load implements bridge.Store.
func (p *process) Load(ctx context.Context) (bridge.Checkpoint, error) {
	var found bridge.Checkpoint
	err := p.ask(ctx, &call{op: opLoad, run: func(f fate) error {
		if f != fateOK {
			return errExplored
		}
		found = p.as(p.w.store.value)
		p.w.loaded[owners[p.who]] = reached(found)
		if found.Zero() {
			return bridge.ErrNoCheckpoint
		}
		return nil
	}})
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.seen = found.Version // none, where it was not answered in time
	if err == nil || errors.Is(err, bridge.ErrNoCheckpoint) {
		p.learn(p.read)
		p.learn(found)
	}
	p.read = bridge.Checkpoint{}
	return found, err
}

// learn notes, under world.mu, a checkpoint that the process knows of from now on.
// What it read in Kafka counts when the store has answered too: only then does
// the engine decide between them.
func (p *process) learn(c bridge.Checkpoint) {
	if p.knows.Zero() || c.Version.Compare(p.knows.Version) > 0 {
		p.knows = c
	}
}

// restarts reports whether the process knows of the stream's beginning only.
func (p *process) restarts() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return !p.knows.Zero() && p.knows.Version == (bridge.Version{})
}

// Advance implements bridge.Store.
func (p *process) Advance(ctx context.Context, from, to bridge.Checkpoint) error {
	w := p.w
	from, to = p.as(from), p.as(to)
	c := &call{op: opAdvance, run: func(f fate) error {
		if p.begins(to) {
			return errExplored
		}
		switch f {
		case fateOK:
			err := w.store.advance(p, from, to)
			if err == nil && !w.exactly {
				w.path = maps.Clone(p.path)
			}
			return err
		case fateLost:
			w.store.advance(p, from, to)
		case fateLate:
			w.late = append(w.late, func() { w.store.advance(p, from, to) })
		}
		return errExplored
	}}
	if w.verbose {
		c.note = fmt.Sprintf("%s to %s %s %s", from.Version, to.Version, to.Kind, to.ChangeID())
	}
	err := p.ask(ctx, c)
	if err == nil {
		w.mu.Lock()
		p.learn(to)
		w.mu.Unlock()
	}
	return err
}

// ownership implements bridge.Ownership.
type ownership struct {
	p    *process
	lost chan struct{}
	told bool // lost is closed; owned by the scheduler
}

// Acquire implements bridge.Owner.
func (p *process) Acquire(ctx context.Context) (bridge.Ownership, error) {
	w := p.w
	t := &ownership{p: p, lost: make(chan struct{})}
	err := p.ask(ctx, &call{op: opAcquire, ready: func() bool { return w.owner == p.who || w.owner < 0 },
		run: func(f fate) error {
			if f != fateOK {
				return errExplored
			}
			w.owner = p.who
			p.ownership = t
			return nil
		}})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Lost implements bridge.Ownership.
func (o *ownership) Lost() <-chan struct{} { return o.lost }

// Confirm implements bridge.Ownership.
func (o *ownership) Confirm(ctx context.Context) error {
	return o.p.ask(ctx, &call{op: opConfirm, run: func(f fate) error {
		switch {
		case f != fateOK:
			return errExplored
		case o.p.w.owner != o.p.who || o.p.ownership != o:
			return bridge.ErrNotOwner
		}
		return nil
	}})
}

func (*ownership) Shared(context.Context) bool { return true }

func (*ownership) Rival(context.Context) (string, error) { return "", nil }

// Release implements bridge.Ownership.
func (o *ownership) Release() {
	o.p.ask(context.Background(), &call{op: opRelease, run: func(fate) error {
		if w := o.p.w; w.owner == o.p.who && o.p.ownership == o {
			w.owner = -1
		}
		o.p.ownership = nil
		return nil
	}})
}
