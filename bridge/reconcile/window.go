package reconcile

import (
	"context"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/pageread"
)

// cycleMemory is how many cursors are remembered, to see one come again.
const cycleMemory = 4096

// exportWindow reads a past range of the export without a cursor of its own.
type exportWindow struct {
	source bridge.Source
	// emptyPages in a row end a window, as does a page that leads nowhere.
	emptyPages int
}

// each calls visit for every page of [from, to), in milliseconds since the
// epoch, as the API gives them. visit may change the page's events and does not
// release it.
func (w *exportWindow) each(ctx context.Context, from, to int64, visit func(*bridge.Page) error) error {
	at := bridge.Position{Start: from, End: to, Window: true}
	seen, order := make(map[string]bool), []string(nil)
	for empty := 0; ; {
		page, err := pageread.Fetch(ctx, w.source, at)
		if err != nil {
			return err
		}
		next, tail, items := page.Next, page.Tail(), page.Items
		err = visit(page)
		page.Release()
		if empty++; items > 0 {
			empty = 0
		}
		if err != nil || tail || empty >= w.emptyPages {
			return err
		}
		// Back to an empty page is no circle: nothing comes twice.
		if items > 0 {
			seen[at.Cursor], order = true, append(order, at.Cursor)
		}
		if seen[next] {
			return refuse(CursorCycle, "the API leads in a circle: cursor %s comes again", bridge.CursorHash(next))
		}
		if len(order) > cycleMemory {
			delete(seen, order[0])
			order = order[1:]
		}
		at.Cursor = next
	}
}
