package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"exportbridge/bridge"
)

// events is the log of the topic of the events, as the server has it.
type events struct {
	made  int   // times that it was made again
	start int64 // offset of the first entry
	log   []int // items, or unseen
	lost  []loss
	// noticed is the process that saw that the end was cut off, and has hidden that from
	// others by the records it had sent: if it dies, or is slower, they cannot know.
	noticed *process
}

// unseen is an entry that no consumer sees: of an aborted transaction, or the
// end of one.
const unseen = -1

// loss is where a log ended: when it was cut off, until an operator accepts that, or
// after a commit.
type loss struct {
	id  string
	low int64
}

var errReplaced = errors.New("the topic was recreated")

func madeID(n int) string    { return fmt.Sprint("made-", n) }
func (e *events) id() string { return madeID(e.made) }
func (e *events) end() int64 { return e.start + int64(len(e.log)) }

func (e *events) states() []bridge.TopicState {
	return []bridge.TopicState{{Name: "events", ID: e.id(), Partitions: 1, End: e.end(), Start: e.start, KeepsAll: true}}
}

// add appends what a transaction, or a batch without one, leaves behind.
func (e *events) add(items []int, exactly bool) {
	if len(items) == 0 {
		return
	}
	if e.log = append(e.log, items...); exactly {
		e.log = append(e.log, unseen)
	}
}

// abort appends what a transaction leaves behind that is not committed.
func (e *events) abort(items []int) { e.add(slices.Repeat([]int{unseen}, len(items)), true) }

// Topics implements bridge.Sink.
func (p *process) Topics(ctx context.Context) ([]bridge.TopicState, error) {
	x := &p.w.topic
	var found []bridge.TopicState
	err := p.ask(ctx, &call{op: opTopics, run: func(f fate) error {
		switch {
		case f != fateOK:
			p.session = 0
			return errExplored
		case p.made != x.events.made:
			p.session = 0
			return errReplaced
		}
		found = p.w.extents(x.events.states())
		p.reach, p.start = x.events.end(), x.events.start
		return nil
	}})
	return found, err
}

// follows is what the server, or the client, does with items for a topic that is
// not the session's any more, or that was cut off meanwhile.
func (x *topicOf) follows(p *process, items []int) error {
	switch {
	case len(items) == 0:
		return nil
	case p.made != x.events.made:
		return errReplaced // they are sent to its id
	case p.reach > x.events.end():
		x.events.noticed = p
		return &bridge.CutOffError{Topic: "events", Offsets: p.reach - x.events.end()}
	}
	return nil
}

// whole checks a commit that goes on from last: the topic held what last says
// when the session looked, unless an operator has accepted what it lacks.
func (w *world) whole(p *process, last, c bridge.Checkpoint, items []int) {
	e := &w.topic.events
	if len(last.Topics) == 0 || c.Epoch != last.Epoch {
		return
	}
	was := last.Topics[0]
	switch {
	case was.ID == "" || last.Events == 0 && was.End == 0:
		return
	case len(c.Topics) > 0 && c.Topics[0].ID != was.ID, len(items) > 0 && was.ID != e.id():
		w.fail(ruleTopic, "%s goes on from %s in a topic that was made again, with %v", c.Version, last.Version, items)
	case len(items) > 0 && was.KeepsAll && was.Start < p.start:
		w.fail(ruleTopic, "%s publishes %v; the topic begins %d offsets later than %s says", c.Version, items,
			p.start-was.Start, last.Version)
	}
	if e.noticed != nil && e.noticed != p {
		e.lost, e.noticed, w.hidden = nil, nil, true
	}
	for _, cut := range e.lost {
		if len(items) > 0 && cut.id == was.ID && was.End > cut.low {
			w.fail(ruleTopic, "%s publishes %v; the topic was cut off at %d, and %s says that it reached %d", c.Version, items,
				cut.low, last.Version, was.End)
		}
	}
}

// accepted notes that an operator's reset takes the topic as it is.
func (w *world) accepted(c bridge.Checkpoint) {
	if c.Kind == bridge.KindReset && len(c.Topics) > 0 && c.Topics[0].End <= w.topic.events.end() {
		w.topic.events.lost, w.topic.events.noticed = nil, nil
	}
}

// unlearn drops the cuts that last, now the newest checkpoint, does not record: the
// checkpoints that did were lost too, so no process can know.
func (w *world) unlearn(last bridge.Checkpoint) {
	e := &w.topic.events
	kept := slices.DeleteFunc(slices.Clone(e.lost), func(cut loss) bool {
		return e.noticed != nil || len(last.Topics) == 0 || last.Topics[0].End <= cut.low
	})
	w.hidden = w.hidden || len(kept) < len(e.lost)
	e.lost = kept
}

// drop notes that items are gone.
func (x *topicOf) drop(items []int) {
	for _, n := range items {
		if n != unseen {
			x.holds[n]--
			x.take(n)
			x.records--
		}
	}
}

// take notes that the topic had an item that was deleted.
func (x *topicOf) take(n int) {
	x.taken[n] = true
}

// loseEvents takes from the topic what came with entry n of the log of
// checkpoints, and after it.
func (x *topicOf) loseEvents(n int) {
	e, before := &x.events, x.ends[max(0, n-1)]
	keep := int64(0) // committed after the topic was made
	switch {
	case before.id == e.id():
		keep = min(max(0, before.low-e.start), int64(len(e.log)))
	case x.ends[n].id != e.id():
		return
	}
	x.drop(e.log[keep:])
	e.log = e.log[:keep:keep]
}

// remake deletes the topic of the events and makes it again.
func (w *world) remake() {
	x := &w.topic
	for n := range x.holds {
		x.take(n)
	}
	x.events = events{made: x.events.made + 1}
	x.holds, x.ever, x.records = make(map[int]int), make(map[int]bool), 0
	w.damaged = true
}

// cut takes the end off the topic, down below what the newest checkpoint says:
// more than a session could not know.
func (w *world) cut() {
	x := &w.topic
	newest := x.newest()
	if !w.exactly {
		newest = w.store.value
	}
	e := &x.events
	if len(newest.Topics) == 0 || newest.Topics[0].ID != e.id() || newest.Topics[0].End > e.end() {
		return
	}
	keep := int(newest.Topics[0].End - e.start)
	for keep--; keep >= 0 && e.log[keep] == unseen; keep-- {
	}
	if keep < 0 {
		return
	}
	x.drop(e.log[keep:])
	e.log = e.log[:keep:keep]
	e.lost = append(e.lost, loss{e.id(), e.end()})
	w.damaged = true
}

// trim takes the first item off the topic, and what is before it.
func (w *world) trim() {
	x := &w.topic
	i := slices.IndexFunc(x.events.log, func(n int) bool { return n != unseen })
	if i < 0 {
		return
	}
	n := x.events.log[i]
	x.drop(x.events.log[:i+1])
	x.events.log, x.events.start = x.events.log[i+1:], x.events.start+int64(i)+1
	x.waived[n] = true
	w.damaged = true
}

// judgeTopic checks that the topic has every item, except those whose loss was reported.
func (w *world) judgeTopic() {
	if w.plan.windows {
		return // judge has looked for each item
	}
	for n := range w.export.items {
		if x := &w.topic; x.holds[n] <= 0 && !x.waived[n] {
			w.fail(ruleLost, "at the end the topic has no item %d", n)
			return
		}
	}
}
