package position

import (
	"fmt"

	"exportbridge/bridge"
)

const (
	// CodeOlder is the code of the fault of a page that may not belong to the cursor.
	CodeOlder = "older-page"
	// CodeCycle is the code of the fault of a page that leads nowhere.
	CodeCycle = "cycle"
)

// Dead letters are for exceptions. If all items are unreadable, the settings are wrong, and
// the stream stops before it fills the dead-letter topic.
const (
	// mappingPage is the number of unreadable items on the first page that stops the
	// stream. Fewer items may all be exceptions.
	mappingPage = 10
	// mappingFirst is the number of unreadable items that a stream may begin with.
	// mappingLast is the number that it may have in a row later.
	mappingFirst = 100
	mappingLast  = 1000
)

// checkOlder suspects a page that lists no item of the tail, and only items older than the
// tail by more than Rules.Overlap: an API that has forgotten the cursor may answer with
// another page. The engine rejects the page only if a page requested without a cursor
// begins with the same items. checkOlder does not suspect a page with an unknown time.
func (at *Position) checkOlder(p *bridge.Page, rules *Rules, found *Findings) error {
	from := at.Border.TailFrom
	if at.Carried > 0 || len(at.Tail) == 0 || from == 0 {
		return nil
	}
	if _, greatest, ok := times(p); !ok || greatest >= from-rules.Overlap.Milliseconds() || at.listsTail(p) {
		return nil
	}
	if found.Suspect = FirstItems(p); found.Suspect == at.Trusted {
		return nil
	}
	return badCursor(CodeOlder, "the page at cursor %s lists none of the %d items that were its last ones, "+
		"but older ones, as the first page does", bridge.CursorHash(p.At.Cursor), len(at.Tail))
}

// checkPage rejects pages that must not be published.
func (at *Position) checkPage(p *bridge.Page, digest uint64, found *Findings) error {
	switch {
	case len(p.Next) > bridge.MaxCursor:
		return bridge.BlockHintf("cursor", bridge.ReasonCursor, bridge.HintCursorTooLong,
			"the next cursor has %d bytes, the limit is %d", len(p.Next), bridge.MaxCursor)
	case isFirstPage(p, at.Border.FirstNext) && !found.Whole:
		return badCursor("first-page", "the API answered cursor %s with the first page: it leads to cursor %s again",
			bridge.CursorHash(p.At.Cursor), bridge.CursorHash(p.Next))
	case !p.Tail() && at.visited.Has(p.Next):
		return stuck(bridge.HintCycle, fmt.Errorf("page at cursor %s leads back to cursor %s",
			bridge.CursorHash(p.At.Cursor), bridge.CursorHash(p.Next)))
	case digest != 0 && digest == at.left && p.Items > 1, found.Same:
		return stuck(bridge.HintCursorIgnored, fmt.Errorf("page at cursor %s has the same %d items as the page before",
			bridge.CursorHash(p.At.Cursor), p.Items))
	}
	return at.checkSource(p.Source)
}

func badCursor(code, format string, args ...any) error {
	return &bridge.Fault{Class: bridge.BadCursor, Code: code, Reason: bridge.ReasonCursor,
		HintCode: bridge.HintCursorRejected, Err: fmt.Errorf(format, args...)}
}

func stuck(advice bridge.Hint, err error) error {
	return &bridge.Fault{Class: bridge.Malformed, Code: CodeCycle, Reason: bridge.ReasonCycle, HintCode: advice, Err: err}
}

// checkSource keeps the events of two tenants from mixing in one topic.
func (at *Position) checkSource(got bridge.SourceIdentity) error {
	have := &at.Source
	if got == (bridge.SourceIdentity{}) || got == *have {
		return nil
	}
	if *have == (bridge.SourceIdentity{}) {
		if end := at.RewindEnd; end != nil && end.Source != (bridge.SourceIdentity{}) && end.Source != got {
			at.RewindEnd = nil
		}
		*have = got
		return nil
	}
	return have.Conflict(got)
}

// checkReadable counts consecutive unreadable items, and rejects the page with too many.
// The checkpoint has the count, so a page that is read again counts once, and a restart
// keeps the count.
func (at *Position) checkReadable(p *bridge.Page, rules *Rules) error {
	row, none := at.Unreadable, at.Unreadable == at.Events
	first := -1
	for i := range p.Events {
		if !p.Events[i].Defect.Unreadable() {
			row, none, first = 0, false, -1
			continue
		}
		if first < 0 {
			first = i
		}
		row++
		if !rules.DivertAll && (row >= mappingLast || none && row >= mappingFirst) {
			return mappingFault(p, first, row)
		}
	}
	if !rules.DivertAll && none && at.Events == 0 && row >= mappingPage {
		return mappingFault(p, first, row)
	}
	at.Unreadable = row
	return nil
}

// mappingFault returns the fault of a page whose items cannot be read. It describes one of
// them, but never the content.
func mappingFault(p *bridge.Page, sample int, row int64) *bridge.Fault {
	e, page := &p.Events[sample], "first page"
	if p.At.Cursor != "" {
		page = "page at cursor " + bridge.CursorHash(p.At.Cursor)
	}
	return bridge.BlockHintf("mapping", bridge.ReasonMapping, bridge.HintMapping,
		"%d consecutive items are unreadable, for example item %d of the %s (%s)", row, e.Index, page, e.Defect)
}
