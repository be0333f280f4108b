package windows

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
)

// closing is how far the API's clock must have passed the end of a part before the part is
// listed, in milliseconds: the next part then lists the items at that end too. longest is
// how long a Fetch waits for that time.
const (
	closing = 2 * unit
	longest = 10 * time.Second
)

// Range reads ranges of the Source of a list without a lasting cursor, from
// bridge.Position.Start to End. It lists a range in parts, each as completely as a Lister
// lists a window, and returns the items of a part by time. Its cursor holds the range, the
// part and the last item that was returned: a Fetch there lists the part again and returns
// the items after that one. Once the API's clock has passed the end of the range, an empty
// page without a next cursor is the end. Fetch is for one goroutine at a time, Decode may
// run beside it.
//
// An item belongs to the part whose range lists it. If two parts list it, it belongs to the
// earlier one, unless its time is within a unit after their border.
type Range struct {
	lister  *Lister
	pending []*bridge.Page // of the part that is listed
}

var _ bridge.Source = (*Range)(nil)

// NewRange returns a Range over a source that reads ranges, start and end: see New.
func NewRange(source bridge.Source, cfg Config) *Range { return &Range{lister: New(source, cfg)} }

// Decode implements bridge.Source: the pages of a Range are decoded already.
func (r *Range) Decode(*bridge.Page) error { return nil }

// Fetch implements bridge.Source.
func (r *Range) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	defer bridge.Waiting(ctx)() // each request has its own limit
	p, ok := placeOf(&at)
	if !ok {
		return nil, bridge.Blockf("cursor", bridge.ReasonCursor, "",
			"the cursor is not one of this range of a list that is followed by windows")
	}
	if len(r.pending) == 0 || r.pending[0].At.Cursor != at.Cursor || r.pending[0].At.Start != at.Start ||
		r.pending[0].At.End != at.End {
		r.pending = nil
		if err := r.find(ctx, at, p); err != nil {
			return nil, err
		}
	}
	next := r.pending[0]
	r.pending = r.pending[1:]
	return next, nil
}

// find lists parts from p on until one has items, or the range ends.
func (r *Range) find(ctx context.Context, at bridge.Position, p place) error {
	l := r.lister
	asked := !l.learned // for the time, since the last page
	if err := l.learn(ctx, p.start); err != nil {
		return err
	}
	l.reading.Store(false)
	for began := time.Now(); p.from < p.end; {
		to, c, err := r.part(ctx, &p)
		switch {
		case err != nil:
			return err
		case to <= p.from && !asked: // the last page may have come from a cache
			l.learned, asked = false, true
			if err := l.learn(ctx, p.start); err != nil {
				return err
			}
			continue
		case to <= p.from: // the part is in the future
			r.pending = append(r.pending, l.page(at, at.Cursor, at.Cursor, l.clock.now().UnixMilli()))
			return nil
		case len(c.items) > 0:
			r.cut(at, p, to, c)
			return nil
		}
		p, asked = place{start: p.start, end: p.end, from: to}, false
		if to < p.end && time.Since(began) > patience {
			r.pending = append(r.pending, l.page(at, at.Cursor, p.cursor(), l.clock.response()))
			return nil
		}
	}
	// The clock has passed the end, even if the last response came from a server that lags behind.
	r.pending = append(r.pending, l.page(at, at.Cursor, "", max(p.end, l.clock.response())))
	return nil
}

// part lists the part at a place up to an end, and returns its items after p.after. A part
// that does not fit into memory is halved. If it cannot be halved, part returns its first
// items.
func (r *Range) part(ctx context.Context, p *place) (to int64, c *collector, err error) {
	l := r.lister
	for {
		to = p.to
		if to == 0 {
			to = min(p.end, floor(p.from+l.size))
			passed := l.clock.now().UnixMilli() - closing
			if wait := time.Duration(to-passed) * time.Millisecond; wait > 0 && wait <= longest {
				bridge.Sleep(ctx, wait)
			} else if wait > 0 {
				to = min(to, floor(passed))
			}
		}
		if to <= p.from || ctx.Err() != nil {
			return to, nil, ctx.Err()
		}
		c, err = r.list(ctx, p, to)
		switch {
		case err == nil:
			if c.share.until == nil && c.bytes < l.cfg.MaxBytes/4 {
				l.size = min(l.cfg.MaxWindow.Milliseconds(), 2*l.size)
			}
			return to, c, nil
		case !errors.Is(err, errTooMuch):
			return to, nil, err
		}
		if l.size = floor((to - p.from) / 2); l.size < unit || p.to != 0 {
			l.size = unit
			return to, nil, blocked("choose ranges without this time",
				"the second from %s on has too many events to remember", bridge.InstantText(p.from))
		}
	}
}

// list lists [p.from, to). An item that the previous part lists too belongs to that part,
// unless its time is after the border.
func (r *Range) list(ctx context.Context, p *place, to int64) (*collector, error) {
	l := r.lister
	l.memory = newMemory(nil, &l.cfg)
	if p.from > unit {
		before := &share{leave: [2]int64{p.from, p.from + unit}, marks: true}
		if _, err := l.complete(ctx, part(p.from-unit, p.from, before)); err != nil {
			return nil, err
		}
	}
	l.memory.keep(bridge.NoTime)
	mine := &share{after: p.after, sheds: p.to != 0 || to-p.from < 2*unit, bound: [2]int64{to, to + unit}}
	c, err := l.complete(ctx, part(p.from, to, mine))
	if err != nil || !c.share.crosses {
		return c, err
	}
	l.memory = newMemory(nil, &l.cfg)
	behind := &share{leave: mine.bound, only: true, marks: true, marked: make(map[order]struct{})}
	if _, err := l.complete(ctx, part(to, to+closing, behind)); err != nil {
		return nil, err
	}
	c.items = slices.DeleteFunc(c.items, func(i item) bool {
		_, theirs := behind.marked[i.order]
		return theirs && inside(&i.event, mine.bound)
	})
	return c, nil
}

// part is the window of a part of a range. All its items are listed once.
func part(from, to int64, s *share) window {
	return window{from: from, to: to, floor: bridge.NoTime, again: math.MaxInt64, share: s}
}

// cut cuts the items of a part into pages, in their order.
func (r *Range) cut(at bridge.Position, p place, to int64, c *collector) {
	items, cursor, whole := c.items, at.Cursor, c.share.until == nil
	slices.SortStableFunc(items, func(a, b item) int { return a.order.compare(b.order) })
	for len(items) > 0 {
		n := r.lister.fits(items)
		next := place{start: p.start, end: p.end, from: p.from, to: to, after: &items[n-1].order}
		if n == len(items) && whole {
			next = place{start: p.start, end: p.end, from: to}
		}
		page := r.lister.page(at, cursor, next.cursor(), r.lister.clock.response())
		fill(page, items[:n])
		items, cursor = items[n:], page.Next
		r.pending = append(r.pending, page)
	}
}

// order is the place of an item in its part: by time, then by key. The zero value is an
// item that is in no part.
type order struct {
	time int64
	key  bridge.ItemKey
}

func (o *order) compare(other order) int {
	return cmp.Or(cmp.Compare(o.time, other.time), bytes.Compare(o.key[:], other.key[:]))
}

// share says which items of a listing belong to a part of a range.
type share struct {
	leave   [2]int64           // items from and to these times are left out
	only    bool               // all other items are left out instead
	marks   bool               // nothing is kept: the listed items belong to another part
	marked  map[order]struct{} // with marks, the listed items; nil notes none
	bound   [2]int64           // items of these times belong to the next part, if it lists them too
	crosses bool               // the listing has items within bound
	after   *order             // the last item that was returned of the part, nil for none
	sheds   bool               // the part cannot be shorter: if memory is full, its last items are left out
	until   *order             // the last item that memory has room for, nil for all
}

// begin returns the share of a new listing; s may be nil.
func (s *share) begin() *share {
	if s == nil {
		return nil
	}
	anew := *s
	return &anew
}

func inside(e *bridge.Event, times [2]int64) bool {
	return e.Defect == bridge.DefectNone && e.Time >= times[0] && e.Time < times[1]
}

// leaves reports whether an item is left to another listing; s may be nil.
func (s *share) leaves(e *bridge.Event) bool { return s != nil && inside(e, s.leave) != s.only }

// keeps reports whether a new item belongs to the share.
func (s *share) keeps(i *item) bool {
	if s.marked != nil {
		s.marked[i.order] = struct{}{}
	}
	if s.marks || s.after != nil && i.order.compare(*s.after) <= 0 || s.until != nil && i.order.compare(*s.until) > 0 {
		return false
	}
	s.crosses = s.crosses || inside(&i.event, s.bound)
	return true
}

// shed makes room: it drops the later half of the items. All items of one order stay.
func (c *collector) shed() {
	slices.SortFunc(c.items, func(a, b item) int { return a.order.compare(b.order) })
	until := c.items[(len(c.items)-1)/2].order
	c.share.until = &until
	c.items = slices.DeleteFunc(c.items, func(i item) bool { return i.order.compare(until) > 0 })
	c.bytes = 0
	for i := range c.items {
		c.bytes += c.items[i].cost
	}
	c.most = max(c.most, 2*c.bytes)
}

// place is where a range continues: in its part [from, to) after an item, or, if to is 0,
// with the part that begins at from. Times are in milliseconds since the epoch.
type place struct {
	start, end int64 // of the range
	from, to   int64
	after      *order
}

func (p *place) cursor() string {
	text := fmt.Sprintf("%s%d:%d:%d", bridge.RangePrefix, p.start, p.end, p.from)
	if p.after != nil {
		text += fmt.Sprintf(":%d:%d:%s", p.to, p.after.time, hex.EncodeToString(p.after.key[:]))
	}
	return text
}

// placeOf returns the place that a position names. ok is false if its cursor is not one of
// its range.
func placeOf(at *bridge.Position) (p place, ok bool) {
	p = place{start: at.Start, end: at.End, from: at.Start}
	if !at.Window || at.Start >= at.End || at.Cursor == "" {
		return p, at.Window && at.Start < at.End
	}
	text, _ := strings.CutPrefix(at.Cursor, bridge.RangePrefix)
	parts := strings.Split(text, ":")
	number := func(i int) (n int64) {
		if i < len(parts) {
			n, _ = strconv.ParseInt(parts[i], 10, 64)
		}
		return n
	}
	p.from = number(2)
	if len(parts) > 3 {
		p.to, p.after = number(3), &order{time: number(4)}
		key, _ := hex.DecodeString(parts[len(parts)-1])
		copy(p.after.key[:], key)
	}
	return p, p.cursor() == at.Cursor && p.from >= p.start && p.from <= p.end &&
		(p.after == nil || p.to > p.from && p.to <= p.end)
}
