package control

import (
	"context"
	"slices"
	"time"

	"exportbridge/bridge"
)

// commit returns a commit from Redis, or else from the checkpoint topic. It returns false
// if neither has the commit, which was committed at the time before or earlier.
func (p *planner) commit(ctx context.Context, at bridge.Version, before int64) (*bridge.Entry, bool) {
	if e, ok := p.known[at]; ok {
		return e, true
	}
	if p.from.away == nil {
		if e, err := p.ports.Entries.Entry(ctx, at); err == nil {
			p.known[at] = &e
			return &e, true
		}
	}
	if t := time.UnixMilli(before); t.After(p.read) {
		p.read = t
		p.readTopic(ctx)
	}
	e, ok := p.known[at]
	return e, ok
}

// readTopic adds the commits of the checkpoint topic, none if it is unreachable.
func (p *planner) readTopic(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	left := make(map[bridge.Version]bool)
	var begins []*bridge.Entry // first commits of epochs, whose parents only their position identifies
	add := func(e *bridge.Entry) {
		if p.known[e.Version] == nil {
			p.known[e.Version] = e
		}
	}
	_ = p.ports.Log.WalkBefore(ctx, p.read, func(c bridge.Checkpoint) bool {
		begins = slices.DeleteFunc(begins, func(e *bridge.Entry) bool {
			follows := e.Epoch > c.Epoch && e.Continues(&c)
			if follows {
				e.Parent = &c.Version
				add(e)
			}
			return follows
		})
		if c.Change != nil {
			left[c.Change.From] = true
		}
		e := &bridge.Entry{Checkpoint: c, Parent: c.MovedTo()}
		switch {
		case c.Seq == 0 && c.Epoch > 0 && e.Parent == nil:
			begins = append(begins, e)
		case c.Seq == 0 || left[c.Version]:
			add(e)
		}
		if c.Version == (bridge.Version{}) { // the remaining commits have no parent
			for _, e := range begins {
				add(e)
			}
		}
		return true
	})
}

// began returns the time at which the epoch of a checkpoint began, or a later time.
func began(c *bridge.Checkpoint) int64 {
	if c.Change != nil && c.Change.From.Epoch+1 == c.Epoch {
		return c.Change.At
	}
	return c.WrittenAt
}

// root returns the epoch of a checkpoint's root, where the count of the branch begins, and
// the count at the root. If the root is unknown, root returns the oldest known epoch of the
// branch, and false.
func (p *planner) root(ctx context.Context, at *bridge.Checkpoint) (epoch, begin int64, ok bool) {
	if at.Change == nil { // the stream was never moved, as in epoch 0
		return at.Epoch, 0, true
	}
	for epoch, before := at.Epoch, began(at); ; {
		if epoch == 0 {
			return 0, 0, true
		}
		first, ok := p.commit(ctx, bridge.Version{Epoch: epoch}, before)
		switch {
		case !ok:
			return epoch, 0, false
		case first.Parent == nil || first.Parent.Epoch >= epoch:
			return epoch, first.Events, true
		}
		epoch, before = first.Parent.Epoch, began(&first.Checkpoint)
	}
}

// sameCount reports whether the stream and a checkpoint count their events from the same
// position: their branches meet, even if the root before that point is unknown.
func (p *planner) sameCount(ctx context.Context, c *bridge.Checkpoint) bool {
	if c.Epoch == p.from.Epoch {
		return true
	}
	own, _, _ := p.root(ctx, &p.from.Checkpoint) // called first: it reads the topic from the newest commit on
	root, _, _ := p.root(ctx, c)
	return own == root
}

// left returns the commit that the last change before a checkpoint moved the stream away
// from; ok is false if no such commit is known. If only the first commit of that epoch is
// known, left returns that one, since it has the earlier changes. end is true if the stream
// passed no event after the returned commit.
func (p *planner) left(ctx context.Context, at *bridge.Checkpoint) (c *bridge.Checkpoint, end, ok bool) {
	from, moved := at.Change.From, at.Change.Moves()
	if from.Epoch >= at.Epoch {
		return nil, false, false
	}
	if moved {
		if e, ok := p.commit(ctx, from, at.Change.At); ok {
			return &e.Checkpoint, true, true
		}
	}
	// A pause keeps the position: the next epoch begins with the same count.
	if from.Epoch == 0 {
		return &bridge.Checkpoint{}, !moved, true
	}
	e, ok := p.commit(ctx, bridge.Version{Epoch: from.Epoch}, at.Change.At)
	if !ok {
		return nil, false, false
	}
	return &e.Checkpoint, !moved, true
}

// span is the range of counts that a stream has published from one root on. All branches
// from a root pass the same events in the same order. The count of an import begins above
// 0.
type span struct{ begin, end, pages int64 }

// published are the spans of a stream by the epoch of their root.
type published struct {
	spans map[int64]span
	// all is true if no branch is missing.
	all bool
}

// published follows the stream's changes back to its first commit.
func (p *planner) published(ctx context.Context) published {
	found := published{spans: make(map[int64]span), all: true}
	for at := &p.from.Checkpoint; ; {
		root, begin, ok := p.root(ctx, at)
		if !ok {
			found.all = false
			return found
		}
		s := found.spans[root]
		found.spans[root] = span{begin: begin, end: max(s.end, at.Events), pages: max(s.pages, at.Pages)}
		if at.Change == nil {
			return found
		}
		left, end, ok := p.left(ctx, at)
		if found.all = found.all && end; !ok {
			return found
		}
		at = left
	}
}
