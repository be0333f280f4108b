package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
)

const (
	// fetchTries is how often a page is asked for before a command gives up.
	fetchTries = 8
	// fetchBackoff is the longest wait of its own between two of them.
	fetchBackoff = 10 * time.Second
	// cycleMemory is how many cursors are remembered, to see one come again.
	cycleMemory = 4096
)

// fetchPage asks for a page and splits it. What may pass by waiting is tried
// again, for some minutes at most. The caller releases the page.
func fetchPage(ctx context.Context, api *exportapi.Client, at bridge.Position) (*bridge.Page, error) {
	for try := 0; ; try++ {
		page, err := api.Fetch(ctx, at)
		if err == nil {
			if err = api.Decode(page); err == nil {
				return page, nil
			}
			page.Release()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fault, ok := errors.AsType[*bridge.Fault](err)
		last := try == fetchTries
		if ok && (fault.Class == bridge.Malformed || fault.Class == bridge.BadCursor) {
			last = try >= 2
		}
		if last || ok && fault.Class == bridge.Permanent {
			return nil, err
		}
		wait := rand.N(min(fetchBackoff, 250*time.Millisecond<<try) + 1)
		if ok {
			wait = max(wait, fault.RetryAfter)
		}
		if err := waitFor(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// waitFor waits, or less if ctx ends, whose error it returns then.
func waitFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// exportWindow reads a past window of the export without a cursor of its own.
type exportWindow struct {
	api *exportapi.Client
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
		page, err := fetchPage(ctx, w.api, at)
		if err != nil {
			return explained(err)
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
			return &exitError{
				code: exitFailed, err: fmt.Errorf("the API leads in a circle: cursor %s comes again", bridge.CursorHash(next)),
				hint: "tell those who run the API; a smaller window may avoid it",
			}
		}
		if len(order) > cycleMemory {
			delete(seen, order[0])
			order = order[1:]
		}
		at.Cursor = next
	}
}
