package position

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"

	"exportbridge/bridge"
)

// leastHold is the least number of items to keep of the page before.
const leastHold = 16

// Repeats counts the items of the page before that a page repeats.
type Repeats struct {
	// Items counts the items, by id and bytes, that were at the end of the page before.
	Items int
	// Whole is true if the page has no other items. Then it counts as empty.
	Whole bool
	// Same is true if the page has the same number of items as the page before, more than
	// one, and the same end: the API ignored the cursor.
	Same bool
	// Full is true if the page has all items that were kept of the page before. It may
	// repeat earlier items too, which were not kept.
	Full bool
}

// MarkBorder marks the items of a page that are in the border of the position at which the
// page was fetched. No item of the page may be dropped yet. Items without an id are never
// marked, because they may be equal by chance. One pass over the ids finds the few items
// whose bytes are worth a hash.
func MarkBorder(p *bridge.Page, before *bridge.Border) (r Repeats) {
	border := before.Items
	if len(border) == 0 {
		return r
	}
	var filter [256]uint64 // prefixes of the ids in the border, by 14 bits
	for i := range border {
		bit := border[i].Prefix() & (64*uint32(len(filter)) - 1)
		filter[bit/64] |= 1 << (bit % 64)
	}
	may := func(prefix uint32) bool {
		bit := prefix & (64*uint32(len(filter)) - 1)
		return filter[bit/64]&(1<<(bit%64)) != 0
	}
	for i := range p.Events {
		e := &p.Events[i]
		if e.ID != nil && e.In(border, may) {
			e.AtBorder = true
			r.Items++
		}
	}
	r.Same = len(p.Events) > 1 && len(p.Events) == before.Of && r.Items == len(border) && endsAtBorder(p, r.Items)
	r.Whole = !r.Same && r.Items > 0 && r.Items == len(p.Events)
	r.Full = r.Items >= len(border) && len(border) >= leastHold && before.Of != len(border)
	return r
}

// markInclusiveEnd is for APIs that begin a page with the item of the cursor. It marks all
// items of a page that repeats the page before at the end of the results: the page names
// its own cursor, and is not full, so the API holds nothing back. Only items with an id
// tell pages apart. If again is false, items before the border are others than those of the
// page before, or the tail has them.
func markInclusiveEnd(p *bridge.Page, pageSize int, again bool, r *Repeats) {
	noID := func(e bridge.Event) bool { return e.ID == nil }
	if !p.Tail() || len(p.Events) == 0 || p.Items >= pageSize || slices.ContainsFunc(p.Events, noID) {
		return
	}
	if !again {
		r.Same = false
		return
	}
	for i := range p.Events {
		p.Events[i].AtBorder = true
	}
	*r = Repeats{Items: len(p.Events), Whole: true}
}

// nextBorder returns the border after a page from which no item is dropped yet. The border
// does not change while the cursor stays, nor after a page that has only items of the page
// before.
func (at *Position) nextBorder(p *bridge.Page, rules *Rules, found *Findings) bridge.Border {
	b, r := at.Border, found.Repeats
	if rules.Listing {
		return bridge.Border{}
	}
	if p.Tail() {
		b.TailFrom = tailFrom(p, b.TailFrom, len(at.Tail) == 0)
		return b
	}
	b.TailFrom = 0
	hold := Hold(b.Hold, r, max(rules.PageSize, len(p.Events)))
	if r.Full && hold > max(b.Hold, leastHold) { // reported once: from now on this many are kept
		found.Widened = hold
	}
	if b.Hold = hold; hold == leastHold {
		b.Hold = 0
	}
	if len(p.Events) > 0 && !r.Whole {
		KeepItems(&b, p, HoldOf(p, hold, rules.PageSize))
	}
	if p.At.Cursor == "" && p.Items > 0 {
		b.FirstNext = bridge.DigestCursor(p.Next)
	}
	return b
}

// endsAtBorder reports whether the last n items of a page are marked.
func endsAtBorder(p *bridge.Page, n int) bool {
	return !slices.ContainsFunc(p.Events[len(p.Events)-n:], func(e bridge.Event) bool { return !e.AtBorder })
}

// dropBorder drops the marked items from a page, and returns their number.
func dropBorder(p *bridge.Page) (dropped int) {
	listed := len(p.Events)
	p.Events = slices.DeleteFunc(p.Events, func(e bridge.Event) bool { return e.AtBorder })
	return listed - len(p.Events)
}

// Hold returns the number of items to keep of a page after an overlap: twice the largest
// overlap so far, at most a page.
func Hold(held int, r Repeats, page int) int {
	return max(held, leastHold, min(2*r.Items, max(page, leastHold)))
}

// HoldOf returns the number of items to keep of a page: hold, but as many as were asked for of the first page.
// That was requested without a cursor, so the cursor that it names may be its own, and the width of overlaps is
// unknown. An API that ignores the page size may list more than a checkpoint can have.
func HoldOf(p *bridge.Page, hold, pageSize int) int {
	if p.At.Cursor == "" {
		return max(hold, pageSize)
	}
	return hold
}

// KeepItems puts the last items of a page that have an id into the border. No item of the
// page may be dropped yet.
func KeepItems(b *bridge.Border, p *bridge.Page, hold int) {
	last := p.Events[max(0, len(p.Events)-hold):]
	b.Items, b.Of = make(bridge.BorderItems, 0, len(last)), len(p.Events)
	for i := range last {
		if last[i].ID != nil {
			b.Items = append(b.Items, bridge.NewBorderItem(&last[i]))
		}
	}
	if len(b.Items) == 0 {
		b.Items = nil
	}
}

// isFirstPage reports whether a page at a later cursor is the first page, because both lead
// to the same cursor. An API that has forgotten a cursor may answer with the first page.
func isFirstPage(p *bridge.Page, first bridge.CursorDigest) bool {
	return first != bridge.CursorDigest{} && p.At.Cursor != "" && !p.Tail() && p.Items > 0 &&
		bridge.DigestCursor(p.Next) == first
}

// Heeded reports whether a page showed that the API heeds the cursor: one at a later cursor that was not
// the first page again, at its own cursor.
func Heeded(c *bridge.Checkpoint) bool {
	return c.Cursor != "" && (c.Drained || c.Border.FirstNext != bridge.DigestCursor(c.Cursor))
}

// FirstAgainText is the text of Findings.FirstAgain.
const FirstAgainText = "the cursor of the first page leads to the first page: unless that has all items, more follow"

// seed is the seed of all hashes that stay within this process.
var seed = maphash.MakeSeed()

// FirstItems returns a hash of the first items that the API listed on a page. Within a
// process, equal hashes mean that two pages begin with the same items.
func FirstItems(p *bridge.Page) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for i := range p.Events[:min(firstItems, len(p.Events))] {
		_, _ = h.Write(p.Events[i].Form())
	}
	return h.Sum64()
}

// firstItems is the number of items that tell two pages apart.
const firstItems = 8

// times returns the least and the greatest time of the page's items. ok is false if an item
// has no time, or if the page is empty.
func times(p *bridge.Page) (least, greatest int64, ok bool) {
	least, greatest = math.MaxInt64, math.MinInt64
	for i := range p.Events {
		e := &p.Events[i]
		if e.Time == bridge.NoTime || e.Defect.Unreadable() {
			return 0, 0, false
		}
		least, greatest = min(least, e.Time), max(greatest, e.Time)
	}
	return least, greatest, len(p.Events) > 0
}

// tailFrom returns the least time of the tail after a page that ends the results, 0 if it
// is unknown. from is the least time of the tail before the page.
func tailFrom(p *bridge.Page, from int64, empty bool) int64 {
	least, _, ok := times(p)
	switch {
	case !ok && len(p.Events) > 0:
		return 0
	case !ok:
		return from
	case empty:
		return cmp.Or(least, 1)
	}
	return min(from, cmp.Or(least, 1)) // 0 stays unknown
}
