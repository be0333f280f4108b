package reconcile

import (
	"context"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
	"exportbridge/bridge/internal/pageread"
)

// maxEmpties is how many empty pages in a row a range may have. A window that is listed may have fewer.
const maxEmpties = 10_000

// rangeReader reads past ranges of the export.
type rangeReader struct {
	source  bridge.Source
	timeout time.Duration // of a call of the source
	// emptyPages in a row end a range, as does a page without a next cursor.
	emptyPages int
	// check returns why a page must not be used.
	check func(*bridge.Page) error
	// pageSize and endExplicit are those of Config. paged is set once a page has named a next one.
	pageSize           int
	endExplicit, paged bool
	// unproven is set while the stream cannot tell whether the API heeds the cursor.
	unproven bool
	// lists is set if the source lists windows: a page of the end shows a time after the range.
	lists bool
	// marksEnd is true once the API is known to mark the end of its results: then
	// empty pages end no range. cut is set if they ended one.
	marksEnd, cut bool
}

// each calls visit with every page of [from, to), in milliseconds since the epoch.
// visit may change the page's events and must not release it.
func (r *rangeReader) each(ctx context.Context, from, to int64, visit func(*bridge.Page) error) error {
	at := bridge.Position{Start: from, End: to, Window: true}
	var seen position.Visited
	empties := make(map[string]bool) // the cursors of empty pages since the last one with items
	var border bridge.Border         // of the previous page
	for empty := 0; ; {
		page, err := pageread.Fetch(ctx, r.source, at, r.timeout)
		if err != nil {
			return err
		}
		if err := page.Unread.Fault(); err != nil {
			page.Release()
			return err
		}
		next, tail, items, shows := page.Next, page.Tail(), page.Items, page.Time()
		repeats := position.MarkBorder(page, &border)
		switch {
		case repeats.Same && (!tail || items >= r.pageSize || r.unproven || repeats.Items < len(page.Events)):
			page.Release()
			return reject(CursorCycle, "cursor cycle: the page at cursor %s has the same %d items as the page before",
				bridge.CursorHash(at.Cursor), items)
		case repeats.Whole, repeats.Same: // Same: the first page names itself
			items = 0 // as an empty page
		case len(page.Events) > 0:
			border.Hold = position.Hold(border.Hold, repeats, items)
			position.KeepItems(&border, page, position.HoldOf(page, border.Hold, r.pageSize))
		}
		if err = r.check(page); err == nil {
			err = visit(page)
		}
		page.Release()
		if empty++; items > 0 {
			empty = 0
			clear(empties)
		}
		switch {
		case err != nil:
			return err
		case tail && r.lists && shows.Before(time.UnixMilli(to)):
			return notOver(shows.UnixMilli(), from)
		case tail && r.mayBeCutOff(items) && to-from > 1:
			return errTooMany
		case tail && r.mayBeCutOff(items):
			return reject(CutOff, "a full page of %d items of the millisecond %s names no next one: more events may follow",
				items, bridge.InstantText(from))
		case tail:
			r.marksEnd = r.marksEnd || next == ""
			return nil
		}
		r.paged = true
		if items > 0 {
			seen = seen.Add(at.Cursor) // a return to an empty page is no cycle: no event is repeated
		} else if empties[at.Cursor] = true; empty >= r.emptyPages && (empties[next] || !r.marksEnd) {
			r.cut = r.cut || !empties[next] // a return to an empty page is the end: nothing lies between
			return nil
		}
		if empty >= maxEmpties {
			return reject(Endless, "the range does not end: %d pages in a row have no items and name a next one", empty)
		}
		if seen.Has(next) {
			return reject(CursorCycle, "cursor cycle: the API returned cursor %s again", bridge.CursorHash(next))
		}
		at.Cursor = next
	}
}

// mayBeCutOff reports whether the API may hold back items after the first page. It has not named another
// page so far. The end of a list that is read by windows is proven.
func (r *rangeReader) mayBeCutOff(items int) bool {
	return !r.lists && !r.paged && !r.endExplicit && r.pageSize > 0 && items > 1 && items >= r.pageSize
}

// notOver rejects a range of which the source has read nothing after a time, by the API's clock.
func notOver(at, from int64) error {
	e := reject(NotPassed, "the range ends after the API's clock, which is at %s", bridge.InstantText(at))
	if at > from {
		e.Position = at
	}
	return e
}
