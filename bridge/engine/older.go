package engine

import (
	"fmt"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
)

// codeOlder is the code of the fault of a page that may be another one than the
// cursor's.
const codeOlder = "older-page"

// older is what is known of a page that lists only items from before the tail of its
// cursor. Owned by the commit loop.
type older struct {
	suspect uint64 // its first items: a request without a cursor is to list others
	trusted uint64 // of a page that is not the first one
}

// checkOlder suspects a page that lists nothing of the tail, but older items: an API
// that has forgotten the cursor may answer with another page. It is refused only where
// the request without a cursor begins with the same items.
func (at *progress) checkOlder(p *bridge.Page) error {
	h := &at.head
	if h.Carried > 0 || !position.IsOlder(p, h.Tail, h.Border.TailFrom, at.e.cfg.Overlap.Milliseconds()) {
		return nil
	}
	if at.older.suspect = position.FirstItems(p); at.older.suspect == at.older.trusted {
		return nil
	}
	return &bridge.Fault{
		Class: bridge.BadCursor, Code: codeOlder, Reason: bridge.ReasonCursor, Advice: bridge.HintCursorRefused,
		Err: fmt.Errorf("the page at cursor %s lists none of the %d items that were its last ones, but older ones, as the first page does", bridge.CursorHash(p.At.Cursor), len(h.Tail)),
	}
}

// trustOlder goes on from a suspect page that is not the first one, given the first
// one. It reports false if it is.
func (f *follower) trustOlder(first *bridge.Page) bool {
	if f.schedule.suspect.Code != codeOlder || position.FirstItems(first) == f.at.older.suspect {
		return false
	}
	f.at.older.trusted = f.at.older.suspect
	f.schedule.suspect = nil
	f.log.Warn("the last page lists none of its items any more, but older ones: the API may have forgotten the cursor",
		"cursor", bridge.CursorHash(f.at.cp.Cursor), "tail", len(f.at.cp.Tail), "hint", f.e.cfg.words(bridge.HintCursorRefused))
	f.e.observe(bridge.Observation{What: bridge.ObserveStuck, Code: bridge.StuckOlder})
	return true
}
