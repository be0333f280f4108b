package control

import (
	"context"
	"time"

	"exportbridge/bridge"
)

// after bounds the number of events that were published after a count of one root. They may
// include events that were published from other roots.
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

// repeatsAll bounds the number of all published events.
func (p *planner) repeatsAll(ctx context.Context) Repeats {
	if p.from.Zero() {
		return unknown("the stream has no checkpoint")
	}
	all := p.published(ctx)
	var least, most int64
	for _, s := range all.spans {
		least, most = max(least, s.end-s.begin), most+s.end-s.begin
	}
	if !all.all {
		most = int64(Unknown)
	}
	return between(Count(least), Count(most))
}

// repeatsFrom bounds the number of published events at or after a time. Events published up
// to an entry are not later than the position of the entry. Like a restart by time,
// repeatsFrom assumes that events published after an entry are at most EXPORT_OVERLAP
// earlier than this position. trusts is true if the lower bound depends on the assumption.
func (p *planner) repeatsFrom(ctx context.Context, t time.Time) (r Repeats, trusts bool) {
	if p.from.Zero() {
		return unknown("the stream has no checkpoint"), false
	}
	before, later, err := p.around(ctx, t, t.Add(p.cfg.Overlap))
	if err != nil {
		return unknown(cut(err.Error(), 120)), false
	}
	behind := func(c *bridge.Checkpoint) Repeats {
		return p.repeatsAfter(ctx, found{bridge.Entry{Checkpoint: *c}, true}, c.Events)
	}
	least, most := Count(0), p.repeatsAll(ctx).Max
	if later != nil {
		least = behind(later).Min
	}
	if before != nil {
		most = behind(before).Max
	}
	return between(least, most), least > 0
}

// addBackfilled adds the events of backfills to a reset to a time. The stream did not publish
// them, and its counts lack them.
func (p *planner) addBackfilled(ctx context.Context, m *Move, since int64) {
	if p.ports.Backfilled == nil {
		return
	}
	n, err := p.ports.Backfilled(ctx, since)
	if err != nil {
		why := "the events of backfills, which come again too, cannot be counted: " + cut(err.Error(), 120)
		m.note("%s", why)
		m.noUpperBound(why)
		return
	}
	if n > 0 {
		m.Repeats = m.plus(n)
		m.note("up to %d events of backfills come again too", n)
	}
}

// around returns the newest entry of the stream's branch whose position is before t, and
// the oldest entry whose position is late or after it; nil if there is none.
func (p *planner) around(ctx context.Context, t, late time.Time) (before, later *bridge.Checkpoint, err error) {
	if at, known := p.from.KnownPosition(); known && at < t.UnixMilli() {
		return &p.from.Checkpoint, nil, nil
	}
	if p.from.away == nil {
		before, later, err = p.ports.Entries.Around(ctx, t, late)
		if before != nil || err != nil && !isNoEntry(err) {
			return before, later, err
		}
	}
	// Redis lacks older entries. Without the topic, the upper bound is unknown.
	e, err := p.older(ctx, bridge.ErrNoEntry, func(c *bridge.Checkpoint, own bool) (match, more bool) {
		at, known := c.KnownPosition()
		if own = own && known; own && at >= late.UnixMilli() {
			e := *c
			later = &e
		}
		return own && at < t.UnixMilli(), true
	})
	if err != nil {
		return nil, later, nil
	}
	return &e.Checkpoint, later, nil
}

// repeatsAfter bounds the number of events that were published after a position: that at
// which the entry's branch has published count events.
func (p *planner) repeatsAfter(ctx context.Context, e found, count int64) Repeats {
	if p.from.Zero() {
		return unknown("the stream has no checkpoint")
	}
	own := Count(max(0, p.from.Events-count))
	if e.sameCount && p.from.RewindEnd == nil { // the stream has passed all published events
		r := between(own, own)
		if r.Pages != 0 {
			r.Pages = max(0, Count(p.from.Pages-e.Pages))
		}
		return r
	}
	root, _, ok := p.root(ctx, &e.Checkpoint)
	switch {
	case ok:
		return p.published(ctx).after(root, count, e.Pages)
	case e.sameCount:
		return between(own, Unknown)
	}
	return unknown("the history does not tell how the entry's branch began")
}
