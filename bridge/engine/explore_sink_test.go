package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"exportbridge/bridge"
)

// sent is one batch in a topic in at-least-once mode.
type sent struct {
	place     bridge.Version
	session   string
	items     []int
	passed    bool // the store has taken over its checkpoint
	stored    bool // and still has it
	confirmed bool // the publisher was told so
}

// topicOf is the topic with its checkpoints.
type topicOf struct {
	log     []bridge.Checkpoint // in exactly-once mode, one per commit
	copied  bridge.Checkpoint   // in at-least-once mode, what the last session kept of its checkpoints
	session int                 // the newest one begun
	items   [][]int             // in exactly-once mode, by entry of log: what was committed with it
	gone    []bridge.Checkpoint // of the log, lost
	holds   map[int]int         // how often it has each item
	waived  map[int]bool        // the items that it need not have
	taken   map[int]bool        // the items that it had, and somebody took off it
	records int
	next    int // in exactly-once mode, the item that comes next
	batches []*sent
	events  events
	ends    []loss       // in exactly-once mode, by entry of log: where the events ended after it
	ever    map[int]bool // what it holds, or has held
	// acked holds, by history, the items that were acknowledged in it or lie
	// before its beginning.
	acked map[history]map[int]bool
}

// history is an epoch. Where a store lost a reset there may be two of the same
// number.
type history struct {
	epoch  int64
	change string
}

func historyOf(c bridge.Checkpoint) history { return history{c.Epoch, c.ChangeID()} }

// newest returns what a new session finds: of both deliveries' checkpoints
// the later one.
func (x *topicOf) newest() bridge.Checkpoint {
	last := x.last()
	if last.Zero() || x.copied.Version.Compare(last.Version) > 0 {
		return x.copied
	}
	return last
}

// holdsNone reports whether a new session finds nothing.
func (x *topicOf) holdsNone() bool { return x.copied.Zero() && len(x.log) == 0 }

// last returns the last entry of the log.
func (x *topicOf) last() bridge.Checkpoint {
	if len(x.log) == 0 {
		return bridge.Checkpoint{}
	}
	return x.log[len(x.log)-1]
}

// publish is Sink.Publish as it reaches the server.
func (x *topicOf) publish(p *process, b bridge.Batch, items []int, f fate) error {
	w := p.w
	if p.session == 0 {
		w.fail(ruleContract, "publish %s without a session", b.Checkpoint.Version)
		return errExplored
	}
	if b.Checkpoint.Version.Compare(p.last) <= 0 {
		w.fail(ruleContract, "publish %s in a session that was at %s", b.Checkpoint.Version, p.last)
	}
	p.last = b.Checkpoint.Version
	if len(items) > 0 && b.Checkpoint.Kind != bridge.KindData {
		w.fail(ruleContract, "%s %s is published with %v", b.Checkpoint.Version, b.Checkpoint.Kind, items)
	}
	if w.exactly {
		return x.commit(p, b, items, f)
	}
	w.held(b.From, b.Checkpoint, items)
	for _, n := range between(b.From, b.Checkpoint) { // what it was told of need not be published again
		if b.Checkpoint.Overlap != nil && p.held[n] > 0 {
			x.ackedIn(b.Checkpoint)[n] = true
		}
	}
	if want := p.between(b.From, b.Checkpoint); !w.plan.windows && !slices.Equal(items, want) {
		w.fail(ruleBatch, "from %s to %s (%d to %d) it holds %v", b.From.Version, b.Checkpoint.Version, reached(b.From),
			reached(b.Checkpoint), items)
	}
	return x.produce(p, b, items, f)
}

// between lists the items that a commit must hold.
func between(from, to bridge.Checkpoint) []int {
	if to.Epoch != from.Epoch {
		return nil // a reset moves, and publishes nothing
	}
	var want []int
	for n := reached(from); n < reached(to); n++ {
		want = append(want, n)
	}
	return want
}

// commit is one transaction.
func (x *topicOf) commit(p *process, b bridge.Batch, items []int, f fate) error {
	if p.session != x.session {
		p.session = 0
		return bridge.ErrFenced
	}
	if err := x.follows(p, items); err != nil {
		if p.session = 0; !errors.Is(err, errReplaced) {
			x.events.abort(items)
		}
		return err
	}
	if f == fateFail || f == fateLate {
		x.events.abort(items)
	}
	if f == fateOK || f == fateLost {
		p.w.whole(p, x.last(), b.Checkpoint, items)
		x.events.add(items, true)
		p.reach = max(p.reach, x.events.end())
		p.w.unreadable(x.last(), b.Checkpoint, items, p.defects)
		p.w.committed(p, x.last(), b.Checkpoint, items)
		x.hold(items)
		x.note(items)
		p.w.path = maps.Clone(p.path)
		x.items = append(x.items, slices.Clone(items))
		x.log, x.ends = append(x.log, b.Checkpoint), append(x.ends, loss{x.events.id(), x.events.end()})
		x.records += len(items)
	}
	if f != fateOK {
		p.session = 0
		return errExplored
	}
	return nil
}

// produce is a batch without a transaction. The first checkpoint of an epoch,
// which is published alone, is in the topic before it counts, if the session is
// the newest one: no later session of the other delivery begins that epoch too.
func (x *topicOf) produce(p *process, b bridge.Batch, items []int, f fate) error {
	if len(items) == 0 && b.Checkpoint.Epoch != p.introduced {
		switch {
		case p.session != x.session:
			p.session = 0
			return bridge.ErrFenced
		case f == fateOK || f == fateLost:
			p.introduced = b.Checkpoint.Epoch
			x.keepCopy(b.Checkpoint)
		}
	}
	cut := x.follows(p, items)
	switch {
	case errors.Is(cut, errReplaced):
		p.session = 0
		return cut
	case cut != nil: // it is seen when they are acknowledged
		f = fateLost
	default:
		p.w.whole(p, b.From, b.Checkpoint, items)
		if len(items) > 0 { // of another process, which knows of less: it hides what was lost
			x.events.lost = nil
		}
	}
	switch f {
	case fateFail:
		items = nil
	case fateLate:
		items = items[:len(items)/2]
	}
	s := &sent{place: b.Checkpoint.Version, session: b.Checkpoint.Session, items: items}
	x.hold(items)
	x.events.add(items, false)
	p.reach = max(p.reach, x.events.end())
	x.batches = append(x.batches, s)
	x.note(items)
	x.records += len(items)
	if p.session == x.session && !b.From.Zero() && len(x.batches)%2 == 0 {
		x.keepCopy(b.From) // the copy lags, and only the newest session writes it
	}
	switch {
	case cut != nil:
		p.session = 0
		return cut
	case f != fateOK:
		p.session = 0
		return errExplored
	}
	s.confirmed = true
	for _, n := range items {
		x.ackedIn(b.Checkpoint)[n] = true
	}
	return nil
}

// keepCopy adds a copy; the newest counts.
func (x *topicOf) keepCopy(c bridge.Checkpoint) {
	if x.copied.Zero() || c.Version.Compare(x.copied.Version) > 0 {
		x.copied = c
	}
}

// note notes items that consumers may have seen.
func (x *topicOf) note(items []int) {
	for _, n := range items {
		x.ever[n] = true
	}
}

// ackedIn returns what was acknowledged in the history that c belongs to.
func (x *topicOf) ackedIn(c bridge.Checkpoint) map[int]bool {
	h := historyOf(c)
	if x.acked[h] == nil {
		x.acked[h] = make(map[int]bool)
	}
	return x.acked[h]
}

// Close implements bridge.Sink. A session that nobody uses any more does nothing.
func (p *process) Close() {}

// Recover implements bridge.Sink. The newest session that was begun counts,
// in exactly-once mode; in at-least-once mode it only keeps others from writing copies.
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
		p.session, p.last = w.sessions, bridge.Version{Seq: -1}
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
		found, p.introduced = p.as(w.topic.newest()), -1
		if found.Zero() {
			return bridge.ErrNoCheckpoint
		}
		p.introduced = found.Epoch
		return nil
	}})
	if err == nil {
		w.mu.Lock()
		p.read = found
		w.mu.Unlock()
	}
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
	items, marked := slices.Clone(p.sent), []int(nil)
	for i := range page.Events {
		if page.Events[i].Republished {
			marked = append(marked, itemOf(page.Events[i].Raw))
		}
	}
	return p.ask(ctx, &call{op: opSend, note: page.At.Cursor, run: func(f fate) error {
		p.w.refusable(&was)
		p.w.ours(items)
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
	b.From, b.Checkpoint = p.as(b.From), p.as(b.Checkpoint)
	p.sent = nil
	var topics []bridge.TopicState
	c := &call{op: opPublish, run: func(f fate) error {
		if p.begins(b.Checkpoint) {
			p.session = 0
			return errExplored
		}
		err := w.topic.publish(p, b, items, f)
		topics = w.topic.events.states()
		topics[0].ID, topics[0].End, topics[0].Start = madeID(p.made), p.reach, p.start
		w.extents(topics)
		return err
	}}
	if w.verbose {
		c.note = fmt.Sprintf("%s %s %s at %q %d", b.Checkpoint.Version, b.Checkpoint.Kind, listed(items),
			b.Checkpoint.Cursor, len(b.Checkpoint.Tail))
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

func (w *world) judgeRepeats() {
	copies, unsure := make(map[string]int), make(map[string]int)
	for _, b := range w.topic.batches {
		for _, n := range b.items {
			key := fmt.Sprintf("item %d in epoch %d", n, b.place.Epoch)
			copies[key]++
			if !b.confirmed || !b.stored {
				unsure[key]++
			}
		}
	}
	for key, n := range copies {
		if n-unsure[key] > 1 {
			w.fail(ruleRepeats, "%s is published %d times, only %d times in a batch whose outcome was unknown", key, n,
				unsure[key])
		}
	}
}
