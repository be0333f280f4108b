package windows

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/pageread"
)

// errTooMuch is the error of a window whose new items exceed Config.MaxBytes.
var errTooMuch = errors.New("the window has too many new items")

// cutOff is the error of a listing that ends before its range does.
type cutOff struct {
	why, hint string
	moved     bool // the list may also have moved
}

func (e *cutOff) Error() string { return e.why }

// errMoved is the error of a page that does not begin with the last item of the page before.
var errMoved = errors.New("the list moved while it was read")

// maxListings bounds the listings of a range whose pages move.
const maxListings = 8

// window is the range that is listed for one window. Times are in milliseconds since the
// epoch.
type window struct {
	from, to int64
	floor    int64  // items below it are dropped
	again    int64  // items before it are listed by this window only
	late     bool   // the range extends back by Config.Late
	share    *share // of a part of a range, else nil
}

// complete lists a range whole. Numbered pages move while they are read, so that an item
// may be left out or listed twice. Two listings in a row must then have the same items
// among those without an id, and among those that no other window lists. A cursor may be a number
// too: if a new item without an id is on two pages, the next listing must have it on two pages too.
func (l *Lister) complete(ctx context.Context, w window) (*collector, error) {
	var before digest
	for n := range maxListings {
		c := &collector{memory: &l.memory, floor: w.floor, to: w.to, most: l.cfg.MaxBytes, moving: l.cfg.Numbered,
			again: w.again, share: w.share.begin()}
		l.memory.first, l.memory.missed, l.memory.twice = n == 0, false, digest{}
		if !l.paged {
			c.keys = make(map[bridge.ItemKey]int64)
		}
		c.walk = l.walk(w.from, w.to, w.late)
		err := l.listAll(ctx, c, w.from, w.to)
		listed := c.listed
		if !l.cfg.Numbered {
			listed = l.memory.twice
		}
		switch {
		case err == nil && listed == before && !l.memory.missed:
			return c, l.walked(c.walk)
		case err != nil && !errors.Is(err, errMoved):
			return c, err
		case err == nil:
			before = listed
		}
		l.memory.undo()
	}
	return nil, &bridge.Fault{Class: bridge.Transient, Code: "window",
		Hint: "if the list is at rest, check EXPORT_CURSOR_PARAM and EXPORT_CURSOR_FIRST, " +
			"and that EXPORT_PARAMS asks for a fixed order; unset EXPORT_MORE_FIELD if it never ends the pages",
		Err: fmt.Errorf("the list moves while it is read: of %d listings no two in a row had the same items", maxListings)}
}

// listAll reads a range whole, in parts that the API can list.
func (l *Lister) listAll(ctx context.Context, c *collector, from, to int64) error {
	if l.cfg.NoEnd {
		return l.list(ctx, c, from, to)
	}
	for from < to {
		end := min(to, floor(from+l.cfg.MaxWindow.Milliseconds()-unit))
		if err := l.list(ctx, c, from, end); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// list reads a range whole. A range that the API cuts off is read in halves.
func (l *Lister) list(ctx context.Context, c *collector, from, to int64) error {
	middle := floor((from + to) / 2)
	if l.cfg.NoEnd { // without an end, a half would list everything
		middle = from
	}
	read := l.read
	if c.keys != nil {
		read = l.keyed
	}
	got, err := read(ctx, c, from, to)
	if err == nil {
		err = l.joins(c, got)
	}
	if err == nil && (middle > from || l.cfg.NoEnd && !l.cfg.NoStart) {
		err = l.prove(ctx, c, got, from, to)
	}
	cut, ok := errors.AsType[*cutOff](err)
	switch {
	case !ok:
		return err
	case middle <= from && cut.moved:
		return errMoved
	case middle <= from:
		return blocked(cut.hint, "the smallest listing from %s on: %s: more events may follow",
			bridge.Watermark{At: from}.Cursor(), cut.why)
	}
	if err := l.list(ctx, c, from, middle); err != nil {
		return err
	}
	return l.list(ctx, c, middle, to)
}

// joins checks that a listing without an end has an item that was known before. Otherwise
// the API may have cut off the items between, and no smaller range can be requested.
func (l *Lister) joins(c *collector, got listing) error {
	switch w := c.walk; {
	case w == nil || w.met || got.items < manyUp || l.paged && got.last < l.largest:
	case l.latest == 0 && w.noStart && c.floor == bridge.NoTime: // the first listing of a session
		if l.gap = true; l.cfg.Warn != nil {
			l.cfg.Warn("the list has no event that was known before: if the API cuts it off, events between are missing",
				hintPages)
		}
	case l.latest != 0 && (w.noStart || l.latest >= w.from+2*unit):
		return bridge.BlockHintf("window", bridge.ReasonConfig, bridge.HintCutOff,
			"the list has %d events and none that was known before: the API cuts it off, so events between may be missing",
			got.items)
	}
	return nil
}

// listing counts the items of one listing of a range.
type listing struct {
	items int
	last  int // items of the last page that has some
}

func (l *listing) add(p *bridge.Page) {
	if l.items += p.Items; p.Items > 0 {
		l.last = p.Items
	}
}

// full returns the error of a page that names no next page, and has the maximum number of
// items of the API.
func (l *Lister) full(items int) error {
	return &cutOff{
		why:  fmt.Sprintf("a full page of %d items names no next one", items),
		hint: hintPages,
	}
}

const hintPages = "raise EXPORT_PAGE_SIZE, or set how a page names the next one: EXPORT_CURSOR_IN, EXPORT_CURSOR_FIELD"

// read reads all pages of a range.
func (l *Lister) read(ctx context.Context, c *collector, from, to int64) (got listing, err error) {
	l.memory.beginListing()
	at := l.cfg.Range(max(0, from-unit), to)
	visited := make(map[string]struct{})
	numbers := numbering{size: l.cfg.PageSize, most: l.largest}
	for empties := 0; ; {
		p, err := l.request(ctx, at)
		over := (err == nil || l.cfg.Numbered && !l.cfg.EndExplicit) && numbers.ended(p, err)
		if over && (l.cfg.Numbered || !p.Tail() && (p.Items > 1 || p.Events[0].ID == nil)) {
			return got, l.repeated(p, got.items)
		}
		if err != nil {
			return got, err
		}
		l.paged = l.paged || numbers.pages > 1 && numbers.apart
		l.clock.saw(p)
		got.add(p)
		if err = l.begins(ctx, p); err == nil {
			err = l.overlap(p, &numbers.last)
		}
		if err == nil {
			err = c.collect(p)
		}
		items, next, tail, unread := p.Items, p.Next, p.Tail(), p.Unread
		p.Release()
		l.largest = max(l.largest, items)
		full := !l.paged && items >= l.cfg.PageSize && !l.cfg.EndExplicit
		switch {
		case err != nil:
			return got, err
		case tail && next == "" && (full || l.cutsAt(got.items)):
			return got, l.full(items)
		case unread.Where != "":
			return got, unread.Fault()
		case tail:
			return got, nil
		}
		l.paged = l.paged || !l.cfg.Numbered
		if c.walk.ends() {
			return got, nil
		}
		if empties++; items > 0 && !numbers.same {
			empties = 0
		}
		if empties >= maxEmpties {
			return got, blocked("set what marks the end of the results: EXPORT_MORE_FIELD, or EXPORT_CURSOR_FIELD",
				"the listing does not end: %d pages in a row have no items, or the same, and name a next one", empties)
		}
		if _, was := visited[next]; was {
			return got, circles("the listing leads back to cursor %s", bridge.CursorHash(next))
		}
		visited[next] = struct{}{}
		at.Cursor = next
	}
}

const hintFirst = "set EXPORT_CURSOR_FIRST to the number of the first page, usually 0 or 1, " +
	"and check EXPORT_CURSOR_PARAM"

// begins checks once that the page without a number is the page of the first number:
// otherwise the next number would leave out a page.
func (l *Lister) begins(ctx context.Context, first *bridge.Page) error {
	if l.begun || !l.cfg.Numbered || l.cfg.First == "" || first.At.Cursor != "" || len(first.Events) == 0 {
		return nil
	}
	plain, numbered := first.At, first.At
	numbered.Cursor = l.cfg.First
	head, has := first.Events[0].ItemKey(), keysOf(first)
	for try := range 3 { // items of the first page may have been deleted, or moved to the second one
		if try > 0 {
			p, err := l.request(ctx, plain)
			if err != nil {
				return err
			}
			if has = keysOf(p); len(p.Events) > 0 {
				head = p.Events[0].ItemKey()
			}
			p.Release()
		}
		p, err := l.request(ctx, numbered)
		if cut, rejected := errors.AsType[*cutOff](err); rejected {
			return blocked(hintFirst, "page %s, which should be the first one: %s", l.cfg.First, cut.why)
		}
		if err != nil {
			return err
		}
		l.begun = samePage(p, head, has)
		if p.Release(); l.begun {
			return nil
		}
	}
	return blocked(hintFirst,
		"the page of number %s has other items than the page without a number: another page is the first one", l.cfg.First)
}

// samePage reports whether a page is the one that had the items of has, head first, a moment ago.
// In a list that moves, the second page has some of them, too: the last ones.
func samePage(p *bridge.Page, head bridge.ItemKey, has map[bridge.ItemKey]struct{}) bool {
	common := 0
	for k := range keysOf(p) {
		if _, is := has[k]; is {
			common++
		}
		if k == head {
			return true
		}
	}
	return 2*common > len(has)
}

// keysOf returns the keys of the items of a page.
func keysOf(p *bridge.Page) map[bridge.ItemKey]struct{} {
	keys := make(map[bridge.ItemKey]struct{}, len(p.Events))
	for i := range p.Events {
		keys[p.Events[i].ItemKey()] = struct{}{}
	}
	return keys
}

// circles is the fault of a listing that has no end.
func circles(format string, args ...any) error {
	return &bridge.Fault{Class: bridge.Malformed, Code: "cycle", Reason: bridge.ReasonCycle,
		HintCode: bridge.HintCursorIgnored, Err: fmt.Errorf(format, args...)}
}

// repeated ends a listing whose last page was repeated, or whose next number was rejected: p is then
// nil. It returns an error if the listing may go on. A cursor never leads to the same items again. An
// API that has listed no other page may ignore numbers: a full first page may then hide more items.
func (l *Lister) repeated(p *bridge.Page, items int) error {
	if p != nil {
		defer p.Release()
	}
	switch {
	case !l.cfg.Numbered:
		return circles("the page at cursor %s has the same %d items as the page before, and names a next one",
			bridge.CursorHash(p.At.Cursor), p.Items)
	case l.cfg.EndExplicit: // the page has said that more items follow
		return errMoved
	case !l.paged && items >= l.cfg.PageSize || l.cutsAt(items):
		return &cutOff{
			why:  fmt.Sprintf("the second page does not continue after the %d items of the first one, which is full", items),
			hint: "check EXPORT_CURSOR_PARAM, or raise EXPORT_PAGE_SIZE",
		}
	}
	return nil
}

// numbering finds the end of numbered pages, and pages that are repeated.
type numbering struct {
	size  int                         // the requested size of a page
	pages int                         // so far
	most  int                         // the most items on a page, in all listings
	last  bridge.ItemKey              // last item of the previous page
	page  digest                      // the items of the previous page
	same  bool                        // this page has the same items as the previous one
	first map[bridge.ItemKey]struct{} // the items of the first page
	apart bool                        // this page has no item of the first one
}

// ended reports whether a page is after the last one: some APIs then repeat the last page,
// and some reject the number. After a full page, a number may be rejected only because it
// is large. Equal items without an id, of one time, may fill several pages: these do not
// count as a repeated page.
func (n *numbering) ended(p *bridge.Page, err error) bool {
	if err != nil {
		_, rejected := errors.AsType[*cutOff](err)
		return rejected && (n.page.items < n.most || n.pages == 1 && n.page.items < n.size)
	}
	var page digest
	if n.pages == 0 {
		n.first = keysOf(p)
	}
	told := len(p.Events) < n.most || len(p.Events) == 1 && n.size > 1
	n.apart = true
	for i := range p.Events {
		e := &p.Events[i]
		k := e.ItemKey()
		page.add(k)
		told = told || e.ID != nil || e.Time != p.Events[0].Time
		if _, of := n.first[k]; of {
			n.apart = false
		}
	}
	n.same = n.pages > 0 && page.items > 0 && page == n.page
	n.page, n.most = page, max(n.most, page.items)
	n.pages++
	return n.same && told
}

// overlap drops the first item of a page, which must be the last item of the page before,
// and notes the page's own last item.
func (l *Lister) overlap(p *bridge.Page, last *bridge.ItemKey) error {
	if !l.cfg.Overlaps {
		return nil
	}
	if p.At.Cursor != "" {
		switch {
		case len(p.Events) == 0:
			return &cutOff{why: "the API lists nothing at an offset, where the last item of the page before was",
				moved: true}
		case p.Events[0].ItemKey() != *last:
			return errMoved
		}
		p.Events = p.Events[1:]
	}
	if n := len(p.Events); n > 0 {
		*last = p.Events[n-1].ItemKey()
	}
	return nil
}

// request asks for one page and decodes it. If the first page of a Fetch fails, request
// fails at once, so that the engine shows the error. Later pages are tried again, since the
// pages read so far would be lost. A rejected cursor is one of this listing, which then has
// too many pages. A rejected range may be too long.
func (l *Lister) request(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	fetch := pageread.Once
	if l.reading.Load() {
		fetch = pageread.Fetch
	}
	source := &final{Source: l.source, is: l.cfg.Numbered}
	p, err := fetch(ctx, source, at, l.cfg.Timeout)
	if err == nil {
		l.reading.Store(true)
	}
	f, ok := errors.AsType[*bridge.Fault](err)
	switch {
	case ok && (f.Class == bridge.BadCursor || source.rejected.Load()):
		return nil, &cutOff{
			why:  fmt.Sprintf("the API rejects the cursor of a listing: %v", err),
			hint: "check EXPORT_CURSOR_IN, EXPORT_CURSOR_FIELD, EXPORT_CURSOR_PARAM and EXPORT_CURSOR_ALONE",
		}
	case ok && at.Cursor == "" && at.End > 0 && (f.Code == "400" || f.Code == "422"):
		first := *f
		first.Hint = "lower EXPORT_MAX_WINDOW if it exceeds the longest range that the API lists; " + f.Hint
		return nil, &first
	}
	return p, err
}

// final is a Source whose rejected cursors are not tried again if is is set: a number after the last
// page is the usual end of some lists.
type final struct {
	bridge.Source
	is       bool
	rejected atomic.Bool // atomic, since an overdue call may set it later
}

// Fetch implements bridge.Source.
func (s *final) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	p, err := s.Source.Fetch(ctx, at)
	if f, ok := errors.AsType[*bridge.Fault](err); ok && s.is && f.Class == bridge.BadCursor {
		own := *f
		own.Class = bridge.Permanent
		s.rejected.Store(true)
		return nil, &own
	}
	return p, err
}

// observed is a Source whose requests are observed.
type observed struct {
	bridge.Source
	lister *Lister
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
		f := bridge.FaultOf(err)
		if saw.Code = f.Code; o.lister.reading.Load() && o.lister.cfg.Warn != nil && f.Class != bridge.BadCursor {
			o.lister.cfg.Warn("a listing waits for a page: its request failed ("+saw.Code+") and is repeated", f.Hint)
		}
	default:
		saw.Bytes = int64(len(p.Body))
	}
	o.lister.cfg.Observe(saw)
	return p, err
}
