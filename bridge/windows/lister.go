package windows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/pageread"
)

const (
	// unit is the granularity of windows in milliseconds: some APIs have bounds in
	// whole seconds. A request begins one earlier, since either bound may be inclusive
	// or exclusive; the identities of items decide.
	unit = 1000
	// firstSize is the size of the first window in milliseconds, where it is not at the
	// end of the list.
	firstSize = int64(time.Hour / time.Millisecond)
	// restless is how far the watermark may lag behind while nothing new is listed.
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

	held    bridge.PublishedIndex // the one that memory began with
	next    string                // where Fetch continues
	memory  memory
	pending []*bridge.Page // of the window that is listed
	listed  int64          // the end of the newest window, while nothing else was asked for
	size    int64          // of the next window
	marks   bool           // the API has marked the end of a listing
	paged   bool           // the API has named a next page
	learned bool           // the API's time is known, and that it takes bounds
}

var _ bridge.Source = (*Lister)(nil)

// New returns a Lister of a source that reads ranges: Position.Window.
func New(source bridge.Source, cfg Config) *Lister {
	if cfg.Observe != nil {
		source = &observed{source, cfg.Observe}
	}
	return &Lister{source: source, cfg: cfg, size: min(firstSize, cfg.MaxWindow.Milliseconds())}
}

// Decode implements bridge.Source: the pages of a Lister are decoded.
func (l *Lister) Decode(*bridge.Page) error { return nil }

// Fetch implements bridge.Source. It lists the window at the watermark, or returns the
// next page of one that is listed. A page that stays at its cursor means that nothing new
// is there.
func (l *Lister) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	defer bridge.Waiting(ctx)() // each request has its own limit
	w, ok := at.Watermark()
	switch {
	case !ok || at.Window || at.Held == nil:
		return nil, fault(bridge.Permanent, "cursor", bridge.ReasonCursor, "", "the position is no watermark of a list that is followed by windows")
	case at.Held != l.held: // a new session, or what was given out was dropped
		l.held, l.memory = at.Held, newMemory(at.Held, l.cfg.ChangedIsNew())
		l.pending, l.listed = nil, 0
	case at.Cursor != l.next:
		return nil, fault(bridge.Transient, "window", "", "", "the window at "+at.Cursor+" is to be listed again")
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
	return p, nil
}

// find lists windows from w on until one has new items, or the end of the list is
// reached.
func (l *Lister) find(ctx context.Context, at bridge.Position, w bridge.Watermark) error {
	if err := l.learn(ctx, w.At); err != nil {
		return err
	}
	for began := time.Now(); ; {
		limit := floor(l.clock.now().Add(-l.cfg.Settle).UnixMilli())
		switch {
		case w.At > limit+restless:
			return fault(bridge.Permanent, "watermark", bridge.ReasonCursor,
				"if the clock of the API or, without a Date header, of this machine was wrong: exportbridge cursor reset --to-datetime TIME",
				fmt.Sprintf("the watermark %s is ahead of the API's clock, which is at %s", w.Cursor(), l.clock.now().UTC().Format(time.RFC3339)))
		case w.At >= limit || l.listed != 0 && w.At == l.listed:
			l.listed = 0
			l.rest(at, w.At)
			return nil
		}
		to, items, err := l.window(ctx, at.Floor, w.At, limit)
		if err != nil {
			return err
		}
		end := to == limit
		switch {
		case len(items) > 0:
			l.pages(at, w, to, items)
			if end {
				l.listed = to
			}
			return nil
		case end && to-w.At < restless: // the watermark need not move
			l.memory.keep(l.forgotten(w.At))
			l.rest(at, to)
			return nil
		}
		l.memory.keep(l.forgotten(to))
		w = bridge.Watermark{At: to}
		if end {
			l.listed = to
		}
		if end || time.Since(began) > patience {
			l.pending = append(l.pending, l.page(at, at.Cursor, w.Cursor(), to))
			return nil
		}
	}
}

// learn checks once that the API takes the bounds of a range, and learns its time: the
// first window must not end ahead of it.
func (l *Lister) learn(ctx context.Context, watermark int64) error {
	if l.learned {
		return nil
	}
	if err := CheckBounds(ctx, l.source, watermark, l.cfg.Timeout, l.clock.saw); err != nil {
		return err
	}
	l.learned = true
	if !l.clock.byAPI && l.cfg.Warn != nil {
		l.cfg.Warn("the API sends no Date header: windows end by the clock of this machine", "keep the clock of this machine right (NTP), and raise EXPORT_SETTLE by how far it may be ahead of the API's")
	}
	return nil
}

// forgotten is the end of the windows whose items are listed no more at a watermark.
func (l *Lister) forgotten(watermark int64) int64 {
	return watermark - l.cfg.Reach().Milliseconds() - bridge.ListingMargin
}

// rest gives a page that stays where it is: all up to a time is published.
func (l *Lister) rest(at bridge.Position, upTo int64) {
	l.pending = append(l.pending, l.page(at, at.Cursor, cmp.Or(at.Cursor, bridge.Watermark{At: upTo}.Cursor()), upTo))
}

// window lists from a watermark to an end that is at most limit, and as near as memory
// requires.
func (l *Lister) window(ctx context.Context, lowest, from, limit int64) (to int64, items []item, err error) {
	for {
		to = min(limit, from+l.size)
		c := collector{memory: &l.memory, floor: lowest, to: to, most: l.cfg.MaxBytes}
		err = l.list(ctx, &c, max(lowest, floor(from-l.cfg.LookBack.Milliseconds())), to)
		switch {
		case err == nil:
			if c.bytes < l.cfg.MaxBytes/4 {
				l.size = min(l.cfg.MaxWindow.Milliseconds(), 2*l.size)
			}
			return to, c.items, nil
		case !errors.Is(err, errTooMuch):
			return to, nil, err
		}
		l.memory.undo()
		if l.size = floor((to - from) / 2); l.size < unit {
			l.size = unit
			return to, nil, fault(bridge.Permanent, "window", bridge.ReasonConfig, "raise EXPORT_PREFETCH_BYTES, which bounds the new events of a window in memory",
				fmt.Sprintf("the events of the second at %s take more than %d bytes", bridge.Watermark{At: from}.Cursor(), l.cfg.MaxBytes))
		}
	}
}

// list reads a range whole. One that the API cuts off is read in halves.
func (l *Lister) list(ctx context.Context, c *collector, from, to int64) error {
	asked := bridge.Position{Start: max(0, from-unit), End: to, Window: true}
	l.memory.beginListing()
	err := l.read(ctx, asked, c)
	if !errors.Is(err, errCutOff) {
		return err
	}
	middle := floor((from + to) / 2)
	if middle <= from {
		return fault(bridge.Permanent, "window", bridge.ReasonConfig, "raise EXPORT_PAGE_SIZE, or set how a page names the next one: EXPORT_CURSOR_IN, EXPORT_CURSOR_FIELD",
			fmt.Sprintf("the API lists a full page of %d items for the second at %s, and names no next page: more may follow", l.cfg.PageSize, bridge.Watermark{At: from}.Cursor()))
	}
	if err := l.list(ctx, c, from, middle); err != nil {
		return err
	}
	return l.list(ctx, c, middle, to)
}

// errCutOff is the error of a full page that names no next one, errTooMuch that of a
// window with more new items than memory is for.
var (
	errCutOff  = errors.New("the listing is cut off")
	errTooMuch = errors.New("the window has too many new items")
)

// read reads all pages of a listing.
func (l *Lister) read(ctx context.Context, at bridge.Position, c *collector) error {
	visited := make(map[string]struct{})
	for empties := 0; ; {
		p, err := l.request(ctx, at)
		if err != nil {
			return err
		}
		l.clock.saw(p)
		err = c.collect(p)
		items, next, tail, unread := p.Items, p.Next, p.Tail(), p.Unread
		p.Release()
		switch {
		case err != nil:
			return err
		case unread.Where != "":
			return unread.Fault()
		case tail && next == "" && items >= l.cfg.PageSize && !l.cfg.EndExplicit && !l.paged:
			return errCutOff
		case tail:
			l.marks = l.marks || next == ""
			return nil
		}
		l.paged = true
		if empties++; items > 0 {
			empties = 0
		}
		if empties >= l.cfg.EmptyPages && !l.marks {
			return nil
		}
		if _, was := visited[next]; was {
			return &bridge.Fault{Class: bridge.Malformed, Code: "cycle", Reason: bridge.ReasonCycle, HintCode: bridge.HintCursorIgnored,
				Err: fmt.Errorf("the listing leads back to cursor %s", bridge.CursorHash(next))}
		}
		visited[next] = struct{}{}
		at.Cursor = next
	}
}

// request asks for one page and decodes it. The first one of a listing fails at once, so
// that the engine shows it; later ones are tried again, since what is read would be lost.
// A cursor that the API rejects is one of this listing, which begins anew.
func (l *Lister) request(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	fetch := l.ask
	if at.Cursor != "" {
		fetch = func(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
			return pageread.Fetch(ctx, l.source, at, l.cfg.Timeout)
		}
	}
	p, err := fetch(ctx, at)
	f, ok := errors.AsType[*bridge.Fault](err)
	if !ok || f.Class != bridge.BadCursor {
		return p, err
	}
	again := *f
	if again.Class = bridge.Transient; at.Cursor == "" {
		again.Class, again.Reason = bridge.Malformed, bridge.ReasonConfig
	}
	return nil, &again
}

func (l *Lister) ask(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	return pageread.Once(ctx, l.source, at, l.cfg.Timeout)
}

// observed is a Source whose requests are observed.
type observed struct {
	bridge.Source
	observe func(bridge.Observation)
}

// Fetch implements bridge.Source.
func (o *observed) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	began := time.Now()
	p, err := o.Source.Fetch(ctx, at)
	saw := bridge.Observation{What: bridge.ObserveFetch, Took: time.Since(began), Code: "200"}
	switch {
	case ctx.Err() != nil, err != nil && bridge.FaultOf(err).Unsent:
		return p, err
	case err != nil:
		saw.Code = bridge.FaultOf(err).Code
	default:
		saw.Bytes = int64(len(p.Body))
	}
	o.observe(saw)
	return p, err
}

func fault(class bridge.Class, code string, reason bridge.Reason, hint, text string) error {
	return &bridge.Fault{Class: class, Code: code, Reason: reason, Hint: hint, Err: errors.New(text)}
}

// floor is the beginning of the unit that a time is in.
func floor(ms int64) int64 { return ms - (ms%unit+unit)%unit }
