package windows

import (
	"hash/maphash"

	"exportbridge/bridge"
)

// maxRemembered is how many items a Lister remembers: about 150 MB.
const maxRemembered = 2_000_000

// known is what is remembered of a published item.
type known struct {
	copies int32
	sum    uint32 // a hash of its bytes, if it has an id
	last   int64  // end of the window that listed it last, in milliseconds since the epoch
}

// other is an item with the key of another item, told apart by a hash of its bytes.
type other struct {
	key bridge.ItemKey
	sum uint32
}

// memory knows which of the items that may be listed again are in the topic.
type memory struct {
	held    bridge.PublishedIndex
	byBytes bool // an item with other bytes is another item
	seen    map[bridge.ItemKey]known
	listed  map[bridge.ItemKey]int32  // copies of items without an id, in this listing
	sums    map[bridge.ItemKey]uint32 // hashes of the bytes of items with an id, in this listing
	others  map[other]struct{}        // items that share the key of another item
	fresh   []bridge.ItemKey          // the new items of this window
}

func newMemory(held bridge.PublishedIndex, byBytes bool) memory {
	return memory{held: held, byBytes: byBytes, seen: make(map[bridge.ItemKey]known),
		listed: make(map[bridge.ItemKey]int32), sums: make(map[bridge.ItemKey]uint32), others: make(map[other]struct{})}
}

var seed = maphash.MakeSeed()

// keyOf returns the key under which an item with the key k is remembered. If one listing
// has two items of one key, with different bytes, the id is not unique: they are two items.
// One of them keeps k for ever, whichever is listed first, the other gets a key of its own.
func (m *memory) keyOf(e *bridge.Event, k bridge.ItemKey) (own bridge.ItemKey, sum uint32) {
	if m.byBytes {
		return bridge.ItemKeyOf(e.Form(), nil), 0
	}
	if e.ID == nil {
		return k, 0
	}
	sum = uint32(maphash.Bytes(seed, e.Form())) //nolint:gosec // as many bits as there is room for
	first, again := m.sums[k]
	switch {
	case !again:
		m.sums[k] = sum
	case first != sum && m.seen[k].sum == sum: // the first one gets another key, from the next listing on
		m.others[other{k, first}] = struct{}{}
	case first != sum:
		m.others[other{k, sum}] = struct{}{}
	}
	if _, is := m.others[other{k, sum}]; is {
		return bridge.ItemKeyOf(k[:], e.Form()), sum
	}
	return k, sum
}

// isNew reports whether the topic lacks an item with this key, and remembers the item. to is
// the end of the window that lists it. Each copy of equal items without an id is an item.
func (m *memory) isNew(e *bridge.Event, key bridge.ItemKey, to int64) bool {
	k, sum := m.keyOf(e, key)
	copies := int32(1)
	if e.ID == nil {
		m.listed[k]++
		copies = m.listed[k]
	}
	was := m.seen[k]
	is := known{copies: was.copies, sum: was.sum, last: max(was.last, to)}
	news := false
	if was.copies < copies {
		is.copies, is.sum = was.copies+1, sum
		if news = m.held == nil || !m.held.Match(e); news {
			m.fresh = append(m.fresh, k)
		}
	}
	m.seen[k] = is
	return news
}

// beginListing begins a listing: copies are counted anew. Within a listing a page must not
// be counted twice.
func (m *memory) beginListing() {
	clear(m.listed)
	clear(m.sums)
}

// undo forgets the new items of this window, which is not published.
func (m *memory) undo() {
	for _, k := range m.fresh {
		if is := m.seen[k]; is.copies > 1 {
			m.seen[k] = known{is.copies - 1, is.sum, is.last}
		} else {
			delete(m.seen, k)
		}
	}
	m.fresh = m.fresh[:0]
}

// keep ends a window. It forgets items that were last listed by a window that ended before
// a time: they are not listed again.
func (m *memory) keep(before int64) {
	m.fresh = m.fresh[:0]
	for k, is := range m.seen {
		if is.last < before {
			delete(m.seen, k)
		}
	}
	for o := range m.others {
		if _, is := m.seen[o.key]; !is {
			delete(m.others, o)
		}
	}
}
