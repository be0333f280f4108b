package control

import (
	"context"
	"time"

	"exportbridge/bridge"
)

// sameCount reports whether two entries count their events from the same position:
// their branches have the same root.
func (c *Controller) sameCount(ctx context.Context, a, b bridge.Version) bool {
	if a.Epoch == b.Epoch {
		return true
	}
	rootA, okA := c.root(ctx, a)
	rootB, okB := c.root(ctx, b)
	return okA && okB && rootA.Epoch == rootB.Epoch
}

// root returns the first entry of the epoch in which the branch of an entry begins;
// false if it is unknown.
func (c *Controller) root(ctx context.Context, at bridge.Version) (first bridge.Entry, ok bool) {
	for {
		first, err := c.ports.Entries.Entry(ctx, bridge.Version{Epoch: at.Epoch})
		switch {
		case err != nil:
			return first, false
		case first.Parent == nil || first.Parent.Epoch >= at.Epoch:
			return first, true
		}
		at = *first.Parent
	}
}

// rootOf returns the epoch of a checkpoint's root, and its count there.
func (c *Controller) rootOf(ctx context.Context, from base, at *bridge.Checkpoint) (epoch, begin int64, ok bool) {
	if at.Change == nil { // it was never moved
		return at.Epoch, 0, true
	}
	if from.away != nil {
		return 0, 0, false
	}
	first, ok := c.root(ctx, at.Version)
	return first.Epoch, first.Events, ok
}

// span is what a stream has published from one root on: the branches from a root
// pass the same events in the same order. An import begins with a count above 0.
type span struct{ begin, end int64 }

// published are the spans of a stream by the epoch of their root.
type published struct {
	spans map[int64]span
	// all is true if no branch is missing.
	all bool
}

// published follows the stream back over its changes.
func (c *Controller) published(ctx context.Context, from base) published {
	p := published{spans: make(map[int64]span)}
	for at := from.Checkpoint; ; {
		root, begin, ok := c.rootOf(ctx, from, &at)
		if !ok {
			return p
		}
		p.spans[root] = span{begin: begin, end: max(p.spans[root].end, at.Events)}
		if at.Change == nil {
			p.all = true
			return p
		}
		left, err := c.ports.Entries.Entry(ctx, at.Change.From)
		if err != nil {
			return p
		}
		at = left.Checkpoint
	}
}

// after bounds the events behind a count of one root. An event of another root may be
// one of them.
func (p published) after(root, count int64) (least, most Count) {
	own := max(0, p.spans[root].end-max(count, p.spans[root].begin))
	if !p.all {
		return Count(own), Unknown
	}
	delete(p.spans, root)
	for _, s := range p.spans {
		most += Count(max(0, s.end-s.begin))
	}
	return Count(own), Count(own) + most
}

// repeatsAll bounds the events of the whole export.
func (c *Controller) repeatsAll(ctx context.Context, from base) Repeats {
	if from.Zero() {
		return unknown("the stream has no checkpoint")
	}
	p := c.published(ctx, from)
	var least, most int64
	for _, s := range p.spans {
		least, most = max(least, s.end-s.begin), most+s.end-s.begin
	}
	if !p.all {
		most = int64(Unknown)
	}
	return between(Count(least), Count(most))
}

// repeatsFrom bounds the events of a time and later. What the stream published up to
// an entry is not later than the entry's position. What it published since is not
// earlier than EXPORT_OVERLAP before that, as a restart by time assumes too: trusts is
// true if the lower bound depends on it.
func (c *Controller) repeatsFrom(ctx context.Context, from base, t time.Time) (r Repeats, trusts bool) {
	if from.Zero() {
		return unknown("the stream has no checkpoint"), false
	}
	before, later, err := c.around(ctx, from, t, t.Add(c.cfg.Overlap))
	if err != nil {
		return unknown(cut(err.Error(), 120)), false
	}
	least, most := Count(0), c.repeatsAll(ctx, from).Max
	if later != nil {
		least = Count(max(0, from.Events-later.Events))
	}
	if root, _, ok := c.rootOf(ctx, from, &from.Checkpoint); ok && before != nil {
		_, most = c.published(ctx, from).after(root, before.Events)
	}
	return between(least, most), least > 0
}

// around returns the newest entry of the stream's branch whose position is before t,
// and the oldest one whose position is late or after it; nil if there is none.
func (c *Controller) around(ctx context.Context, from base, t, late time.Time) (before, later *bridge.Checkpoint, err error) {
	if from.PositionTime < t.UnixMilli() {
		return &from.Checkpoint, nil, nil
	}
	if from.away == nil {
		before, later, err := c.ports.Entries.Around(ctx, t, late)
		if !isNoEntry(err) {
			return before, later, err
		}
	}
	e, err := c.older(ctx, from, bridge.ErrNoEntry, func(p *bridge.Checkpoint, own bool) (match, more bool) {
		if own && p.PositionTime >= late.UnixMilli() {
			at := *p
			later = &at
		}
		return own && p.PositionTime < t.UnixMilli(), own || p.Version.Compare(from.Version) > 0
	})
	if err != nil { // an upper bound without it
		return nil, later, nil
	}
	return &e.Checkpoint, later, nil
}

// repeatsAfter bounds the events behind an entry, of which the target has not yet
// published count ones of the entry's.
func (c *Controller) repeatsAfter(ctx context.Context, from base, e found, count int64) Repeats {
	again := from.Events - count
	switch {
	case from.Zero():
		return unknown("the stream has no checkpoint")
	case e.sameCount && again >= 0:
		return Repeats{Min: Count(again), Max: Count(again), Pages: max(0, Count(from.Pages-e.Pages))}
	}
	root, _, ok := c.rootOf(ctx, from, &e.Checkpoint)
	if !ok {
		return unknown("the history does not tell how the entry's branch began")
	}
	return between(c.published(ctx, from).after(root, count))
}
