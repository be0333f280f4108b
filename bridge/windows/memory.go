package windows

import (
	"hash/maphash"
	"maps"

	"exportbridge/bridge"
)

// maxRemembered is how many items a Lister remembers: about 150 MB.
const maxRemembered = 2_000_000

// known is what is remembered of a published item.
type known struct {
	copies int32
	sum    uint32 // a hash of its bytes, if it has an id
	unlike bool   // the topic has its key, with other bytes
	last   int64  // end of the window that listed it last, in milliseconds since the epoch
}

// form is the hash of the bytes of an item, and the page that has it.
type form struct {
	sum  uint32
	page int32
}

// copies counts the copies of an item without an id. page is that of the last one.
type copies struct{ n, page int32 }

// other is an item with the key of another item, told apart by a hash of its bytes.
type other struct {
	key bridge.ItemKey
	sum uint32
}

// memory knows which of the items that may be listed again are in the topic.
type memory struct {
	held    bridge.PublishedIndex
	byBytes bool // an item with other bytes is another item
	met     bool // an item that held has was listed
	seen    map[bridge.ItemKey]known
	listed  map[bridge.ItemKey]copies // of items without an id, in this listing
	sums    map[bridge.ItemKey]form   // of items with an id, in this listing
	others  map[other]struct{}        // items that share the key of another item
	doubted map[other]int             // items that may be such: by the first listing that has them
	listing int                       // counts the listings
	page    int32                     // counts the pages
	twice   digest                    // the new items of this listing whose copy is on another page
	first   bool                      // no listing of the window is complete
	missed  bool                      // an item was found to be another one too late for this listing, or may be one
	fresh   []bridge.ItemKey          // the new items of this window
}

func newMemory(held bridge.PublishedIndex, cfg *Config) memory {
	return memory{held: held, byBytes: cfg.ChangedIsNew(), seen: make(map[bridge.ItemKey]known),
		listed: make(map[bridge.ItemKey]copies), sums: make(map[bridge.ItemKey]form), others: make(map[other]struct{}),
		doubted: make(map[other]int)}
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
	switch is := m.seen[k]; {
	case !again:
		m.sums[k] = form{sum, m.page}
	case first.sum == sum:
	case is.unlike && m.inTopic(e, true):
		is.sum, is.unlike = sum, false
		m.seen[k] = is
		fallthrough
	case is.sum == sum: // the first one gets another key, from the next listing on
		m.missed = m.tellApart(other{k, first.sum}, first.page) || m.missed
	default:
		m.tellApart(other{k, sum}, first.page)
	}
	if _, is := m.others[other{k, sum}]; is {
		return bridge.ItemKeyOf(k[:], e.Form()), sum
	}
	return k, sum
}

// inTopic reports whether the topic has an item with the key of e, and if shared with its bytes too.
func (m *memory) inTopic(e *bridge.Event, shared bool) bool {
	was := e.Shared
	e.Shared = shared
	defer func() { e.Shared = was }()
	return m.held != nil && m.held.Match(e)
}

// tellApart counts an item as other than the one with its key, which is on a page. It reports whether
// that is news. An item that moves to the next page may have other bytes there: two listings must then
// have both.
func (m *memory) tellApart(o other, page int32) (news bool) {
	if _, is := m.others[o]; is {
		return false
	}
	first, doubted := m.doubted[o]
	switch {
	case page == m.page || doubted && first < m.listing:
		m.others[o] = struct{}{}
		return true
	case !doubted:
		m.doubted[o] = m.listing
		m.missed = m.missed || m.first
	}
	return false
}

// isNew reports whether the topic lacks an item with this key, and remembers the item. to is
// the end of the window that lists it. Each copy of equal items without an id is an item.
func (m *memory) isNew(e *bridge.Event, key bridge.ItemKey, to int64) bool {
	k, sum := m.keyOf(e, key)
	nth, moved := int32(1), false
	if e.ID == nil {
		of := m.listed[k]
		nth, moved = of.n+1, of.n > 0 && of.page != m.page
		m.listed[k] = copies{nth, m.page}
	}
	was := m.seen[k]
	is := known{copies: was.copies, sum: was.sum, unlike: was.unlike, last: max(was.last, to)}
	news := false
	if was.copies < nth {
		is.copies, is.sum = was.copies+1, sum
		shared := k != key // its key does not show whether the topic has it
		if news = !m.inTopic(e, shared); news {
			if m.fresh = append(m.fresh, k); moved {
				m.twice.add(k)
			}
		} else {
			m.met, is.unlike = true, sum != 0 && !shared && !m.inTopic(e, true)
		}
	}
	m.seen[k] = is
	return news
}

// beginListing begins a listing: copies are counted anew. Within a listing a page must not
// be counted twice.
func (m *memory) beginListing() {
	m.listing++
	clear(m.listed)
	clear(m.sums)
}

// single returns new items, of those without an id only the first copy: in a list that moves, another
// one may be the same item. It forgets the others. It returns all if there is no first copy.
func (m *memory) single(items []item) []item {
	keys := make(map[bridge.ItemKey]int32)
	kept := make([]item, 0, len(items))
	for i := range items {
		e := &items[i].event
		k, _ := m.keyOf(e, e.ItemKey())
		if e.ID == nil && m.seen[k].copies-keys[k] > 1 {
			keys[k]++
			continue
		}
		kept = append(kept, items[i])
	}
	if len(kept) == 0 {
		return items
	}
	for k, n := range keys {
		is := m.seen[k]
		is.copies -= n
		m.seen[k] = is
	}
	return kept
}

// undo forgets the new items of this window, which is not published.
func (m *memory) undo() {
	for _, k := range m.fresh {
		if is := m.seen[k]; is.copies > 1 {
			is.copies--
			m.seen[k] = is
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
	forgotten := func(o other) bool {
		_, is := m.seen[o.key]
		return !is
	}
	maps.DeleteFunc(m.others, func(o other, _ struct{}) bool { return forgotten(o) })
	maps.DeleteFunc(m.doubted, func(o other, _ int) bool { return forgotten(o) })
}
