package bridge

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// tailFactor bounds a tail, and how long a carried one is kept, in pages.
const tailFactor = 4

// trimmed says what trim found besides the events it left in the page.
type trimmed struct {
	repeated int // dropped: its id came earlier in the same page
	vanished int // in the tail, but the API does not list it any more
	changed  int // in the tail, and came back with other bytes
	tail     Tail
	carried  int
}

// trimmer drops from a page what the checkpoint says was published from it
// before. Its memory is reused from page to page; it is owned by the commit loop.
type trimmer struct {
	seed  maphash.Seed
	slots []int32
	left  map[Identity]int
	// sums holds a hash of the bytes of tail items, to notice items that
	// changed. Only this process knows them; a restart forgets.
	sums map[Identity]uint64
	// missing counts the tail items that the last look at the tail missed.
	missing int
}

func newTrimmer() *trimmer {
	return &trimmer{seed: maphash.MakeSeed(), left: make(map[Identity]int), sums: make(map[Identity]uint64)}
}

// trim filters p.Events in place against the tail of the position p was
// fetched at, and returns the tail after the page. Items with an id are a set,
// items without one a counted multiset: two equal items can both be real.
//
// While the cursor stays, what vanished from the page stays in the tail, in
// case it comes back. When the cursor moves on, the items that the page did
// not show are carried along: they may come on the next pages (a tail of 800,
// read again with a shorter page). They are dropped after limit items.
func (t *trimmer) trim(p *Page, tail Tail, carried, limit int) trimmed {
	var r trimmed
	r.repeated = t.dropTwins(p)
	if len(tail) == 0 && !p.Tail() {
		return r // the common case: a page in the middle costs no hashing
	}
	clear(t.left)
	for _, id := range tail {
		t.left[id]++
	}
	seen := make(Tail, 0, len(p.Events))
	kept := p.Events[:0]
	for _, e := range p.Events {
		id := e.Identity()
		seen = append(seen, id)
		if t.changed(id, &e, p.Tail()) {
			r.changed++
		}
		if t.left[id] > 0 {
			t.left[id]--
			continue
		}
		kept = append(kept, e)
	}
	p.Events = kept

	missing := make(Tail, 0)
	for _, id := range tail {
		if t.left[id] > 0 {
			t.left[id]--
			missing = append(missing, id)
		}
	}
	switch {
	case p.Tail() && carried > 0: // the next tail: what was carried so far did not come
		r.vanished, r.tail = len(missing), seen
	case p.Tail():
		// Every poll misses them again; only what is newly gone counts.
		r.vanished, r.tail = max(0, len(missing)-t.missing), slices.Concat(seen, missing)
	case len(missing) > 0 && carried+p.Items < limit:
		r.tail, r.carried = missing, max(1, carried+p.Items)
	default:
		r.vanished = len(missing)
	}
	if len(r.tail) == 0 {
		r.tail = nil
	}
	if t.missing = len(missing); !p.Tail() {
		t.missing = 0
		clear(t.sums)
	}
	return r
}

// changed notices an item that came back under its id with other bytes.
func (t *trimmer) changed(id Identity, e *Event, atTail bool) bool {
	if e.ID == nil || !atTail {
		return false
	}
	sum := maphash.Bytes(t.seed, e.Raw)
	was, known := t.sums[id]
	t.sums[id] = sum
	return known && was != sum
}

// dropTwins drops the items whose id came earlier in the same page. It counts
// on ids being short and pages small: one pass over an open-addressed table,
// no allocation once the table has grown.
func (t *trimmer) dropTwins(p *Page) int {
	size := 16
	for size < 2*len(p.Events) {
		size *= 2
	}
	if len(t.slots) < size {
		t.slots = make([]int32, size)
	}
	slots := t.slots[:size]
	clear(slots)
	first := func(kept []Event, id []byte) bool {
		i := int(maphash.Bytes(t.seed, id)) & (size - 1)
		for ; slots[i] != 0; i = (i + 1) & (size - 1) {
			if bytes.Equal(kept[slots[i]-1].ID, id) {
				return false
			}
		}
		slots[i] = int32(len(kept) + 1)
		return true
	}
	kept := p.Events[:0]
	for i := range p.Events {
		e := &p.Events[i]
		if e.ID != nil && !first(kept, e.ID) {
			continue
		}
		if len(kept) == i {
			kept = p.Events[:i+1] // nothing dropped so far: nothing to move
			continue
		}
		kept = append(kept, *e)
	}
	dropped := len(p.Events) - len(kept)
	p.Events = kept
	return dropped
}
