package windows

import (
	"hash/maphash"

	"exportbridge/bridge"
)

// maxRemembered is how many items a Lister remembers: about 150 MB.
const maxRemembered = 2_000_000

// known is what is remembered of a published item: how many copies, a hash of its bytes, if
// it has an id, and the end of the window that listed it last, in milliseconds since the epoch.
type known struct {
	copies int32
	sum    uint32
	last   int64
}

// other is an item that has the key of another one, by a hash of its bytes.
type other struct {
	key bridge.ItemKey
	sum uint32
}

// memory is what the topic holds of the items that may be listed again.
type memory struct {
	held    bridge.PublishedIndex
	byBytes bool // an item with other bytes is another one
	seen    map[bridge.ItemKey]known
	// listed counts the copies of items without an id in this listing, fresh are the
	// new items of this window.
	listed map[bridge.ItemKey]int32
	sums   map[bridge.ItemKey]uint32 // of the bytes of items with an id, in this listing
	others map[other]struct{}        // that share the key of another item
	fresh  []bridge.ItemKey
}

func newMemory(held bridge.PublishedIndex, byBytes bool) memory {
	return memory{held: held, byBytes: byBytes, seen: make(map[bridge.ItemKey]known),
		listed: make(map[bridge.ItemKey]int32), sums: make(map[bridge.ItemKey]uint32), others: make(map[other]struct{})}
}

var seed = maphash.MakeSeed()

// keyOf identifies an item with the key k. Two of one key in one listing, with other bytes,
// are two items: the id is not unique. One of them has the key for ever, whichever comes
// first.
func (m *memory) keyOf(e *bridge.Event, k bridge.ItemKey) (own bridge.ItemKey, sum uint32) {
	if m.byBytes {
		return bridge.ItemKeyOf(e.Raw, nil), 0
	}
	if e.ID == nil {
		return k, 0
	}
	sum = uint32(maphash.Bytes(seed, e.Raw)) //nolint:gosec // as many bits as there is room for
	first, again := m.sums[k]
	switch {
	case !again:
		m.sums[k] = sum
	case first != sum && m.seen[k].sum == sum: // what came first is another one, for the next listing
		m.others[other{k, first}] = struct{}{}
	case first != sum:
		m.others[other{k, sum}] = struct{}{}
	}
	if _, is := m.others[other{k, sum}]; is {
		return bridge.ItemKeyOf(k[:], e.Raw), sum
	}
	return k, sum
}

// isNew reports whether an item with this key that a window up to to lists is not in the
// topic, and remembers it. Of equal items without an id each copy counts.
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

// beginListing begins to count copies. A listing that reads a page twice must not.
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

// keep ends a window: what was listed last by a window that ended before before is
// listed no more.
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
