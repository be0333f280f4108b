package engine

import (
	"fmt"

	"exportbridge/bridge"
)

// Dead letters are for exceptions. Where all items are unreadable, what reads
// them is wrong, and the stream stops before it fills their topic.
const (
	// mappingPage is from how many items on the first page of a stream is
	// judged by itself: a few may all be exceptions.
	mappingPage = 10
	// mappingFirst is how many items a stream may have from its beginning on of
	// which none could be read, mappingLast how many later in a row.
	mappingFirst = 100
	mappingLast  = 1000
)

// checkReadable counts the unreadable items in a row and refuses a page that makes them
// too many. The count goes with the checkpoint: pages that are read again count
// once, and restarts do not begin anew.
func (at *progress) checkReadable(p *bridge.Page) error {
	h := &at.head
	row, none := h.Unreadable, h.Unreadable == h.Events
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
		if !at.e.cfg.DivertAll && (row >= mappingLast || none && row >= mappingFirst) {
			return mappingFault(p, first, row)
		}
	}
	if !at.e.cfg.DivertAll && none && h.Events == 0 && row >= mappingPage {
		return mappingFault(p, first, row)
	}
	h.Unreadable = row
	return nil
}

// mappingFault says of a page that its items cannot be read, with one of them
// as a sample, never what is in it.
func mappingFault(p *bridge.Page, sample int, row int64) *bridge.Fault {
	e, page := &p.Events[sample], "first page"
	if p.At.Cursor != "" {
		page = "page at cursor " + bridge.CursorHash(p.At.Cursor)
	}
	return &bridge.Fault{
		Class: bridge.Permanent, Code: "mapping", Reason: bridge.ReasonMapping,
		Advice: bridge.HintMapping,
		Err:    fmt.Errorf("%d consecutive items are unreadable, for example item %d of the %s (%s)", row, e.Index, page, e.Defect),
	}
}
