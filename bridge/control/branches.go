package control

import (
	"context"
	"slices"
	"time"

	"exportbridge/bridge"
)

// branches are the branches of a stream's history, by the commits at which its epochs
// begin and those that its changes left. It is for one plan: it reads each commit once.
type branches struct {
	c     *Controller
	store bool // whether Redis answers
	known map[bridge.Version]*bridge.Entry
	// read is the time up to which the checkpoint topic was read; zero if it was not.
	read time.Time
}

// commit returns one of these commits, committed at before or earlier, from Redis or else
// from the checkpoint topic; false if neither has it.
func (b *branches) commit(ctx context.Context, at bridge.Version, before int64) (*bridge.Entry, bool) {
	if e, ok := b.known[at]; ok {
		return e, true
	}
	if b.store {
		if e, err := b.c.ports.Entries.Entry(ctx, at); err == nil {
			b.known[at] = &e
			return &e, true
		}
	}
	if t := time.UnixMilli(before); t.After(b.read) {
		b.read = t
		b.readTopic(ctx)
	}
	e, ok := b.known[at]
	return e, ok
}

// readTopic adds the commits that the checkpoint topic has. Without an answer there are
// none.
func (b *branches) readTopic(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	left := make(map[bridge.Version]bool)
	var begins []*bridge.Entry // whose parent is found by its position
	add := func(e *bridge.Entry) {
		if b.known[e.Version] == nil {
			b.known[e.Version] = e
		}
	}
	_ = b.c.ports.Log.WalkBefore(ctx, b.read, func(p bridge.Checkpoint) bool {
		begins = slices.DeleteFunc(begins, func(e *bridge.Entry) bool {
			follows := e.Epoch > p.Epoch && e.Continues(&p)
			if follows {
				e.Parent = &p.Version
				add(e)
			}
			return follows
		})
		if p.Change != nil {
			left[p.Change.From] = true
		}
		e := &bridge.Entry{Checkpoint: p, Parent: p.MovedTo()}
		switch {
		case p.Seq == 0 && p.Epoch > 0 && e.Parent == nil:
			begins = append(begins, e)
		case p.Seq == 0 || left[p.Version]:
			add(e)
		}
		if p.Version == (bridge.Version{}) { // these continue no commit
			for _, e := range begins {
				add(e)
			}
		}
		return true
	})
}

// began is when the epoch of a checkpoint began, or later.
func began(p *bridge.Checkpoint) int64 {
	if p.Change != nil && p.Change.From.Epoch+1 == p.Epoch {
		return p.Change.At
	}
	return p.WrittenAt
}

// root returns the epoch of a checkpoint's root, where the count of its branch begins, and
// the count there. If it is unknown it returns the oldest known epoch of the branch, and
// false.
func (b *branches) root(ctx context.Context, at *bridge.Checkpoint) (epoch, begin int64, ok bool) {
	if at.Change == nil { // it was never moved, as in epoch 0
		return at.Epoch, 0, true
	}
	for epoch, before := at.Epoch, began(at); ; {
		if epoch == 0 {
			return 0, 0, true
		}
		first, ok := b.commit(ctx, bridge.Version{Epoch: epoch}, before)
		switch {
		case !ok:
			return epoch, 0, false
		case first.Parent == nil || first.Parent.Epoch >= epoch:
			return epoch, first.Events, true
		}
		epoch, before = first.Parent.Epoch, began(&first.Checkpoint)
	}
}

// sameCount reports whether two checkpoints count their events from the same position:
// their branches meet, whether or not the root behind that is known.
func (b *branches) sameCount(ctx context.Context, p, q *bridge.Checkpoint) bool {
	if p.Epoch == q.Epoch {
		return true
	}
	rootP, _, _ := b.root(ctx, p)
	rootQ, _, _ := b.root(ctx, q)
	return rootP == rootQ
}

// left returns the commit that the last change before a checkpoint left; false if it is
// unknown. Without it another one of its epoch tells the changes before: end is true if no
// event was passed after that.
func (b *branches) left(ctx context.Context, at *bridge.Checkpoint) (p *bridge.Checkpoint, end, ok bool) {
	from, moved := at.Change.From, at.Change.Moves()
	if from.Epoch >= at.Epoch {
		return nil, false, false
	}
	if moved {
		if e, ok := b.commit(ctx, from, at.Change.At); ok {
			return &e.Checkpoint, true, true
		}
	}
	// A pause keeps the position: it passed as much as the epoch after it had at first.
	if from.Epoch == 0 {
		return &bridge.Checkpoint{}, !moved, true
	}
	e, ok := b.commit(ctx, bridge.Version{Epoch: from.Epoch}, at.Change.At)
	if !ok {
		return nil, false, false
	}
	return &e.Checkpoint, !moved, true
}

// span is what a stream has published from one root on: the branches from a root
// pass the same events in the same order. An import begins with a count above 0.
type span struct{ begin, end, pages int64 }

// published are the spans of a stream by the epoch of their root.
type published struct {
	spans map[int64]span
	// all is true if no branch is missing.
	all bool
}

// published follows the stream back over its changes.
func (b *branches) published(ctx context.Context, from bridge.Checkpoint) published {
	p := published{spans: make(map[int64]span), all: true}
	for at := &from; ; {
		root, begin, ok := b.root(ctx, at)
		if !ok {
			p.all = false
			return p
		}
		s := p.spans[root]
		p.spans[root] = span{begin: begin, end: max(s.end, at.Events), pages: max(s.pages, at.Pages)}
		if at.Change == nil {
			return p
		}
		left, end, ok := b.left(ctx, at)
		if p.all = p.all && end; !ok {
			return p
		}
		at = left
	}
}
