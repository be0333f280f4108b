package control

import (
	"context"
	"time"

	"exportbridge/bridge"
)

// after bounds the events behind a count of one root. An event of another root may be
// one of them.
func (p published) after(root, count, pages int64) Repeats {
	own := p.spans[root]
	least := max(0, own.end-max(count, own.begin))
	if !p.all {
		return between(Count(least), Unknown)
	}
	most := least
	for epoch, s := range p.spans {
		if epoch != root {
			most += max(0, s.end-s.begin)
		}
	}
	r := between(Count(least), Count(most))
	if least == most {
		r.Pages = Count(max(0, own.pages-pages))
	}
	return r
}

// repeatsAll bounds the events of the whole export.
func (c *Controller) repeatsAll(ctx context.Context, from base) Repeats {
	if from.Zero() {
		return unknown("the stream has no checkpoint")
	}
	p := from.branches.published(ctx, from.Checkpoint)
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
	behind := func(p *bridge.Checkpoint) Repeats {
		return c.repeatsAfter(ctx, from, found{bridge.Entry{Checkpoint: *p}, true}, p.Events)
	}
	least, most := Count(0), c.repeatsAll(ctx, from).Max
	if later != nil {
		least = behind(later).Min
	}
	if before != nil {
		most = behind(before).Max
	}
	return between(least, most), least > 0
}

// around returns the newest entry of the stream's branch whose position is before t,
// and the oldest one whose position is late or after it; nil if there is none.
func (c *Controller) around(ctx context.Context, from base, t, late time.Time) (before, later *bridge.Checkpoint, err error) {
	if from.PositionKnown() && from.PositionTime < t.UnixMilli() {
		return &from.Checkpoint, nil, nil
	}
	if from.away == nil {
		before, later, err = c.ports.Entries.Around(ctx, t, late)
		if before != nil || err != nil && !isNoEntry(err) {
			return before, later, err
		}
	}
	// Redis lacks what is older: without the topic, an upper bound is too.
	e, err := c.older(ctx, from, bridge.ErrNoEntry, func(p *bridge.Checkpoint, own bool) (match, more bool) {
		if own = own && p.PositionKnown(); own && p.PositionTime >= late.UnixMilli() {
			at := *p
			later = &at
		}
		return own && p.PositionTime < t.UnixMilli(), true
	})
	if err != nil {
		return nil, later, nil
	}
	return &e.Checkpoint, later, nil
}

// repeatsAfter bounds the events behind an entry, of which the target has not yet
// published count ones of the entry's.
func (c *Controller) repeatsAfter(ctx context.Context, from base, e found, count int64) Repeats {
	if from.Zero() {
		return unknown("the stream has no checkpoint")
	}
	own := Count(max(0, from.Events-count))
	if e.sameCount && from.RewindEnd == nil { // all that was published it has passed
		r := between(own, own)
		if r.Pages != 0 {
			r.Pages = max(0, Count(from.Pages-e.Pages))
		}
		return r
	}
	root, _, ok := from.branches.root(ctx, &e.Checkpoint)
	switch {
	case ok:
		return from.branches.published(ctx, from.Checkpoint).after(root, count, e.Pages)
	case e.sameCount:
		return between(own, Unknown)
	}
	return unknown("the history does not tell how the entry's branch began")
}
