package reconcile

import (
	"context"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
	"exportbridge/bridge/internal/pageread"
)

// cycleMemory is the number of cursors that are kept to detect a cycle.
const cycleMemory = 4096

// exportWindow reads a past range of the export.
type exportWindow struct {
	source  bridge.Source
	timeout time.Duration // of a call of the source
	// emptyPages in a row end a window, as does a page without a next cursor.
	emptyPages int
	// check returns why a page must not be used.
	check func(*bridge.Page) error
	// marksEnd is true once the API is known to mark the end of its results: then
	// empty pages end nothing. cut is set if they ended a range.
	marksEnd, cut bool
}

// each calls visit with every page of [from, to), in milliseconds since the epoch.
// visit may change the page's events and must not release it.
func (w *exportWindow) each(ctx context.Context, from, to int64, visit func(*bridge.Page) error) error {
	at := bridge.Position{Start: from, End: to, Window: true}
	seen, order := make(map[string]bool), []string(nil)
	empties := make(map[string]bool) // the cursors of empty pages since the last one with items
	var border bridge.Border         // of the page before
	for empty := 0; ; {
		page, err := pageread.Fetch(ctx, w.source, at, w.timeout)
		if err != nil {
			return err
		}
		if err := page.Unread.Fault(); err != nil {
			page.Release()
			return err
		}
		next, tail, items := page.Next, page.Tail(), page.Items
		repeats := position.MarkBorder(page, &border)
		switch {
		case repeats.Same:
			page.Release()
			return reject(CursorCycle, "cursor cycle: the page at cursor %s has the same %d items as the page before", bridge.CursorHash(at.Cursor), items)
		case repeats.Whole:
			items = 0 // as an empty page
		case len(page.Events) > 0:
			border.Hold = position.Hold(border.Hold, repeats, items)
			position.KeepItems(&border, page, border.Hold)
		}
		if err = w.check(page); err == nil {
			err = visit(page)
		}
		page.Release()
		if empty++; items > 0 {
			empty = 0
		}
		if err != nil || tail {
			w.marksEnd = w.marksEnd || tail && next == ""
			return err
		}
		if items > 0 {
			clear(empties)
		} else if empties[at.Cursor] = true; empty >= w.emptyPages && (empties[next] || !w.marksEnd) {
			w.cut = w.cut || !empties[next] // what leads back to an empty page is the end: nothing lies between
			return nil
		}
		// A return to an empty page is no cycle: no event is repeated.
		if items > 0 {
			seen[at.Cursor], order = true, append(order, at.Cursor)
		}
		if seen[next] {
			return reject(CursorCycle, "cursor cycle: the API returned cursor %s again", bridge.CursorHash(next))
		}
		if len(order) > cycleMemory {
			delete(seen, order[0])
			order = order[1:]
		}
		at.Cursor = next
	}
}
