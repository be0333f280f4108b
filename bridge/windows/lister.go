package windows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
)

const (
	// unit is the granularity of windows in milliseconds: some APIs have bounds in
	// whole seconds. A request begins a unit earlier, since each bound may be inclusive
	// or exclusive. The identities of items decide which are new.
	unit = 1000
	// firstSize is the size of the first window in milliseconds, where it is not at the
	// end of the list.
	firstSize = int64(time.Hour / time.Millisecond)
	// maxEmpties is how many empty pages in a row a listing may have.
	maxEmpties = 1000
	// restless is how far the watermark may stay behind while nothing new is listed.
	restless = int64(time.Minute / time.Millisecond)
	// patience bounds the search for the next item through empty windows in one Fetch.
	patience = 20 * time.Second
)

// Lister lists a Source through windows. It implements bridge.Source: Fetch is for one
// goroutine at a time, Decode may run beside it.
type Lister struct {
	source bridge.Source
	cfg    Config
	clock  clock

	held    bridge.PublishedIndex // Position.Held, as memory began
	next    string                // where Fetch continues
	memory  memory
	pending []*bridge.Page // the pages of the listed window that Fetch has not returned
	listed  int64          // the end of the last window if it reached the limit: a Fetch there lists nothing
	gap     bool           // the listing has no item that was known before
	reading atomic.Bool    // a page has come for this Fetch; atomic, since an overdue call may read it later
	size    int64          // of the next window, in milliseconds
	learned bool           // the API's clock is known, and its bounds are checked
	deep    time.Time      // when the range of Late was last listed, zero if it is due
	looked  bool           // a window was listed since held changed

	older, olderLate, future, ids map[bridge.ItemKey]struct{} // of the last complete listings, see walk

	begun  bool // the number of the first page is right
	paged  bool // the API has listed another page
	proven int  // a listing of so many items without a next page was complete
	cuts   bool // the API has cut off a listing
	most   int  // the number of items at which it did so last, 0 if unknown
	// largest is the most items that a page has had. latest is the time of the newest
	// present item in listings without an end, 0 before the first one.
	largest int
	latest  int64
}

var _ bridge.Source = (*Lister)(nil)

// New returns a Lister of a source that reads ranges: Position.Window.
func New(source bridge.Source, cfg Config) *Lister {
	l := &Lister{source: source, cfg: cfg, size: min(firstSize, cfg.MaxWindow.Milliseconds())}
	if cfg.Observe != nil {
		l.source = &observed{source, l}
	}
	return l
}

// Decode implements bridge.Source: the pages of a Lister are decoded already.
func (l *Lister) Decode(*bridge.Page) error { return nil }

// Fetch implements bridge.Source. It lists the window at the watermark, or returns the
// next page of the listed window. A page that stays at its cursor means that the list has
// nothing new.
func (l *Lister) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	defer bridge.Waiting(ctx)() // each request has its own limit
	w, ok := at.Watermark()
	switch {
	case !ok || at.Window || at.Held == nil:
		return nil, bridge.Blockf("cursor", bridge.ReasonCursor, "",
			"the position is no watermark of a list that is followed by windows")
	case at.Held != l.held: // a new session, or the engine dropped pages
		l.held, l.memory = at.Held, newMemory(at.Held, &l.cfg)
		l.pending, l.listed, l.deep, l.gap, l.looked = nil, 0, time.Time{}, false, false
		l.older, l.olderLate, l.future, l.ids, l.latest = nil, nil, nil, nil, 0
	case at.Cursor != l.next:
		return nil, &bridge.Fault{Code: "window", Err: fmt.Errorf("the window at %s is to be listed again", at.Cursor)}
	}
	l.next = at.Cursor
	if len(l.pending) == 0 {
		if err := l.find(ctx, at, w); err != nil {
			l.memory.undo()
			return nil, err
		}
	}
	p := l.pending[0]
	l.pending = l.pending[1:]
	l.next = p.Next
	p.Gap, l.gap = l.gap, false
	return p, nil
}

// find lists windows from w on until one has new items, or the end of the list is
// reached.
func (l *Lister) find(ctx context.Context, at bridge.Position, w bridge.Watermark) error {
	if err := l.learn(ctx, w.At); err != nil {
		return err
	}
	l.reading.Store(false)
	l.clock.least = min(0, l.clock.ahead)
	start := w.At // the position, while the search passes empty windows
	for began := time.Now(); ; {
		now, limit := l.clock.oldest(), l.settled()
		switch {
		case w.At > now.UnixMilli()+restless:
			l.learned = false // learn the time again: one wrong Date must not block for ever
			return bridge.BlockHintf("watermark", bridge.ReasonCursor, bridge.HintWatermark,
				"the watermark %s is ahead of the API's clock, which is at %s", w.Cursor(), bridge.InstantText(now.UnixMilli()))
		case w.At >= limit && l.looked || l.listed != 0 && w.At == l.listed:
			l.listed = 0
			l.rest(at, w.At)
			return nil
		}
		// The first window may have only its look-back. An event may have appeared there
		// after the previous session, and a bounded run ends with this listing.
		limit = max(limit, w.At)
		to, items, whole, err := l.window(ctx, at.Floor, w.At, limit)
		if err != nil {
			return err
		}
		l.looked = whole
		end := to == limit && whole
		// The limit is too late if a clock was set back, or if a page came from a cache.
		to = max(w.At, min(to, l.settled()))
		switch {
		case len(items) > 0:
			l.pages(at, w, to, items)
			if end {
				l.listed = to
			}
			return nil
		case end && to-start < restless: // the watermark need not move
			l.memory.keep(l.forgotten(start))
			l.rest(at, to)
			return nil
		}
		w = bridge.Watermark{At: to}
		if end {
			l.listed = to
		}
		if end || time.Since(began) > patience {
			l.memory.keep(l.forgotten(to))
			l.pending = append(l.pending, l.page(at, at.Cursor, w.Cursor(), to))
			return nil
		}
	}
}

// settled is the end of the newest window, by the clocks.
func (l *Lister) settled() int64 {
	return floor(l.clock.oldest().Add(-l.cfg.Settle).UnixMilli())
}

// learn checks once that the API heeds the bounds of a range, and learns the API's time:
// the first window must not end after it. A cache may answer one of the checks with an old Date.
func (l *Lister) learn(ctx context.Context, watermark int64) error {
	if l.learned {
		return nil
	}
	var latest clock
	err := l.cfg.CheckBounds(ctx, l.source, watermark, func(p *bridge.Page) {
		c := l.clock
		if c.saw(p); !latest.byAPI || c.byAPI && c.ahead > latest.ahead {
			latest = c
		}
	})
	if err != nil {
		return err
	}
	if l.learned = true; latest.known {
		l.clock = latest
	}
	switch apart := l.clock.ahead.Abs(); {
	case l.cfg.Warn == nil:
	case apart > time.Minute:
		l.cfg.Warn(fmt.Sprintf("the API's clock and that of this machine differ by %s: windows end by the earlier one",
			apart.Round(time.Second)), "synchronize the clock of this machine (NTP)")
	case l.clock.known && !l.clock.byAPI:
		l.cfg.Warn("the API sends no Date header: windows end by the clock of this machine",
			"keep the clock of this machine right (NTP), and raise EXPORT_SETTLE by how far it may be ahead of the API's")
	}
	return nil
}

// forgotten is the time before which a window must have ended so that its items are not
// listed again at a watermark.
func (l *Lister) forgotten(watermark int64) int64 {
	return watermark - l.cfg.Reach().Milliseconds() - bridge.ListingMargin
}

// rest adds a page that stays at its cursor: everything up to a time is published.
func (l *Lister) rest(at bridge.Position, upTo int64) {
	l.pending = append(l.pending, l.page(at, at.Cursor, cmp.Or(at.Cursor, bridge.Watermark{At: upTo}.Cursor()), upTo))
}

// window lists from a watermark to an end: limit, or an earlier one if memory requires it.
// If even a second has too many items, it returns some of them, and from as the end; whole is false.
func (l *Lister) window(
	ctx context.Context, lowest, from, limit int64,
) (to int64, items []item, whole bool, err error) {
	back, began := l.cfg.LookBack, time.Now()
	if late, every, _ := l.cfg.late(); late > 0 && began.Sub(l.deep) >= every {
		back = late
	}
	start, bottom := floor(from-back.Milliseconds()), bridge.NoTime
	if start <= lowest { // nothing earlier is listed, so that items of the unit before it are dropped
		start, bottom = lowest, lowest
	}
	for {
		if to = min(limit, floor(from+l.size)); l.cfg.NoEnd {
			to = limit
		}
		w := window{from: start, to: to, floor: bottom, again: bridge.NoTime, late: back > l.cfg.LookBack}
		if again := to - l.cfg.LookBack.Milliseconds(); again > from { // otherwise other windows list the whole look-back too
			w.again = again
		}
		var c *collector
		c, err = l.complete(ctx, w)
		switch {
		case err == nil:
			if back > l.cfg.LookBack {
				l.deep = began
			}
			if c.bytes < l.cfg.MaxBytes/4 {
				l.size = min(l.cfg.MaxWindow.Milliseconds(), 2*l.size)
			}
			return to, c.items, true, nil
		case !errors.Is(err, errTooMuch):
			return to, nil, false, err
		}
		if l.size = floor((to - from) / 2); l.size < unit || l.cfg.NoEnd { // a shorter window cannot help
			l.size = unit
			if l.cfg.Numbered { // no second listing tells which items have moved
				c.items = l.memory.single(c.items)
			}
			return from, c.items, false, nil
		}
		l.memory.undo()
	}
}

// blocked is the fault of settings under which a list cannot be followed whole.
func blocked(hint, format string, args ...any) error {
	return bridge.Blockf("window", bridge.ReasonConfig, hint, format, args...)
}

// floor returns the beginning of the unit of a time.
func floor(ms int64) int64 { return ms - (ms%unit+unit)%unit }
