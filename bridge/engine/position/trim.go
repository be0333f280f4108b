package position

import (
	"bytes"
	"hash/maphash"
	"maps"
	"slices"

	"exportbridge/bridge"
)

// TailFactor bounds a tail, and how long a carried one is kept, in pages.
const TailFactor = 4

// Trimmed says what Trim found besides the events it left in the page.
type Trimmed struct {
	Repeated int // dropped: the same bytes under the same id came earlier in the page
	Shared   int // left: other bytes under an id that an item before has
	Vanished int // in the tail, but the API does not list it any more
	Changed  int // in the tail, and came back with other bytes
	// Tail and Carried are those of the checkpoint after the page.
	Tail    bridge.Tail
	Carried int
}

// form is an item with an id as it stands: its identity and a hash of its bytes.
type form struct {
	id  bridge.Identity
	sum uint64
}

// Trimmer drops from a page what the checkpoint says was published from it
// before. Its memory is reused from page to page. Not for concurrent use.
type Trimmer struct {
	seed  maphash.Seed
	slots []int32
	left  map[bridge.Identity]int
	// sums holds a hash of the bytes of tail items, and forms those of further
	// ones under the same id, to notice items that changed and to tell items of
	// one id apart. Only this process knows them; a restart forgets, and takes
	// what it sees first for what was published.
	sums  map[bridge.Identity]uint64
	forms map[form]struct{}
	more  map[bridge.Identity]int // how many there are in forms
	// mutants are the other forms that came back under an id, each counted once.
	mutants map[bridge.Identity]uint64
	// pending are the forms of items that are not committed yet.
	pending []form
	// divert makes dead letters of items whose id is taken.
	divert bool
	// missing counts the tail items that the last look at the tail missed.
	missing int
}

// NewTrimmer returns a Trimmer that knows no item. With divert, an item whose id is
// taken by another one of its page becomes a bad event.
func NewTrimmer(divert bool) *Trimmer {
	return &Trimmer{
		divert: divert, seed: maphash.MakeSeed(), left: make(map[bridge.Identity]int), sums: make(map[bridge.Identity]uint64),
		forms: make(map[form]struct{}), more: make(map[bridge.Identity]int), mutants: make(map[bridge.Identity]uint64),
	}
}

// Trim filters p.Events in place against the tail of the position p was
// fetched at, and returns the tail after the page. Items with an id are a set,
// items without one a counted multiset: two equal items can both be real.
// Different items of one page under one id are different, and as many in the
// tail. Their forms say which of them are there already; where those are not
// known it is the first ones, since an export grows at its end.
//
// While the cursor stays, what vanished from the page stays in the tail, in
// case it comes back. When the cursor moves on, the items that the page did
// not show are carried along: they may come on the next pages (a tail of 800,
// read again with a shorter page). They are dropped after limit items.
func (t *Trimmer) Trim(p *bridge.Page, tail bridge.Tail, carried, limit int) Trimmed {
	var r Trimmed
	var shares bool
	r.Repeated, shares = t.dropTwins(p)
	if len(tail) == 0 && !p.Tail() {
		if shares {
			r.Shared = t.surplus(p, make(map[string]bool))
		}
		return r // the common case: a page in the middle costs no hashing
	}
	clear(t.left)
	for _, id := range tail {
		t.left[id]++
	}
	seen := t.sift(p, shares, carried > 0, &r)
	missing := make(bridge.Tail, 0)
	for _, id := range tail {
		if t.left[id] > 0 {
			t.left[id]--
			missing = append(missing, id)
		}
	}
	switch {
	case p.Tail() && carried > 0: // the next tail: what was carried so far did not come
		r.Vanished, r.Tail = len(missing), seen
	case p.Tail():
		// Every poll misses them again; only what is newly gone counts.
		r.Vanished, r.Tail = max(0, len(missing)-t.missing), slices.Concat(seen, missing)
	case len(missing) > 0 && carried+p.Items < limit:
		r.Tail, r.Carried = missing, max(1, carried+p.Items)
	default:
		r.Vanished = len(missing)
	}
	if len(r.Tail) == 0 {
		r.Tail = nil
	}
	if t.missing = len(missing); !p.Tail() {
		t.missing = 0
	}
	if len(r.Tail) == 0 {
		t.Forget()
	}
	return r
}

// sift takes the page's items out of what is left of the tail, leaves in the
// page what was not in it, and returns the identities of all. What is carried does not
// hold the items of the border: the page before listed them, and took them out of it.
func (t *Trimmer) sift(p *bridge.Page, shares, carries bool, r *Trimmed) bridge.Tail {
	var known, taken map[string]bool
	var units map[bridge.Identity]int // of the tail
	if shares {
		units, taken = maps.Clone(t.left), make(map[string]bool)
		known = t.recognize(p, carries)
	}
	seen := make(bridge.Tail, 0, len(p.Events))
	kept := p.Events[:0]
	for _, e := range p.Events {
		id := e.Identity()
		seen = append(seen, id)
		is := t.formOf(id, &e)
		recognized := e.Shared && known[string(e.Raw)]
		if !recognized && (t.left[id] == 0 || carries && e.AtBorder) {
			kept = append(kept, e)
			if e.ID != nil && p.Tail() {
				t.pending = append(t.pending, is)
			}
			continue
		}
		if e.Shared {
			taken[string(e.ID)] = true
		}
		if recognized {
			continue
		}
		t.left[id]--
		if e.ID != nil && t.changed(is, units[id]) && p.Tail() {
			r.Changed++
		}
	}
	p.Events = kept
	if shares {
		r.Shared = t.surplus(p, taken)
	}
	return seen
}

// formOf returns the form of an item with an id.
func (t *Trimmer) formOf(id bridge.Identity, e *bridge.Event) form {
	if e.ID == nil {
		return form{}
	}
	return form{id, maphash.Bytes(t.seed, e.Raw)}
}

// recognize takes from what is left of the tail the items that share their id
// and whose forms are known to be in it. It returns their bytes.
func (t *Trimmer) recognize(p *bridge.Page, carries bool) map[string]bool {
	known := make(map[string]bool)
	for i := range p.Events {
		e := &p.Events[i]
		if !e.Shared || carries && e.AtBorder {
			continue
		}
		id := e.Identity()
		if t.left[id] > 0 && t.has(t.formOf(id, e)) {
			t.left[id]--
			known[string(e.Raw)] = true
		}
	}
	return known
}

// surplus counts the items left in the page whose id is taken, or is that of an
// item before.
func (t *Trimmer) surplus(p *bridge.Page, taken map[string]bool) (n int) {
	for i := range p.Events {
		e := &p.Events[i]
		if !e.Shared {
			continue
		}
		if taken[string(e.ID)] {
			n++
			if t.divert && e.Defect == bridge.DefectNone {
				e.Defect = bridge.DefectSharedID
			}
		}
		taken[string(e.ID)] = true
	}
	return n
}

// Has reports whether a form is known to be in the tail.
func (t *Trimmer) has(is form) bool {
	if sum, ok := t.sums[is.id]; ok && sum == is.sum {
		return true
	}
	_, ok := t.forms[is]
	return ok
}

// learn notes that a form is in the tail.
func (t *Trimmer) learn(is form) {
	if _, ok := t.sums[is.id]; !ok {
		t.sums[is.id] = is.sum
	} else if !t.has(is) {
		t.forms[is] = struct{}{}
		t.more[is.id]++
	}
}

// changed notices an item of the tail that came back with other bytes. The tail
// Has so many items of its id, 0 or 1 if it is alone: as many forms as are seen
// first are taken for theirs.
func (t *Trimmer) changed(is form, units int) bool {
	if _, ok := t.sums[is.id]; !ok || !t.has(is) && 1+t.more[is.id] < units {
		t.learn(is)
		return false
	}
	if t.has(is) || t.mutants[is.id] == is.sum {
		return false
	}
	t.mutants[is.id] = is.sum
	return true
}

// Commit makes the forms of committed items part of the memory.
func (t *Trimmer) Commit() {
	for _, is := range t.pending {
		t.learn(is)
	}
	t.pending = t.pending[:0]
}

// Pending is how many forms of items are not committed.
func (t *Trimmer) Pending() int { return len(t.pending) }

// BackTo forgets the forms that were added since Pending was n: with 0, since the
// last commit.
func (t *Trimmer) BackTo(n int) { t.pending = t.pending[:min(n, len(t.pending))] }

// Forget forgets all forms: the tail is empty.
func (t *Trimmer) Forget() {
	clear(t.sums)
	clear(t.forms)
	clear(t.more)
	clear(t.mutants)
	t.pending = t.pending[:0]
}

// dropTwins drops the items whose id came earlier in the same page with the same
// bytes, and reports whether an id came with others: those items are marked as
// shared. It counts on ids being short: one pass over an open-addressed table,
// no allocation once the table has grown. An item is in the table by its id, or,
// where that is taken by another, by its bytes.
func (t *Trimmer) dropTwins(p *bridge.Page) (dropped int, shares bool) {
	size := 16
	for size < 2*len(p.Events) {
		size *= 2
	}
	if len(t.slots) < size {
		t.slots = make([]int32, size)
	}
	slots := t.slots[:size]
	clear(slots)
	kept := p.Events[:0]
	first := func(kept []bridge.Event, id []byte) *bridge.Event {
		i := int(maphash.Bytes(t.seed, id)) & (size - 1)
		for ; slots[i] != 0; i = (i + 1) & (size - 1) {
			if e := &kept[slots[i]-1]; bytes.Equal(e.ID, id) {
				return e
			}
		}
		slots[i] = int32(len(kept) + 1)
		return nil
	}
	for i := range p.Events {
		e := &p.Events[i]
		if e.ID != nil {
			if one := first(kept, e.ID); one != nil {
				if bytes.Equal(one.Raw, e.Raw) || t.twin(slots, kept, e) {
					continue
				}
				one.Shared, e.Shared, shares = true, true, true
			}
		}
		if len(kept) == i {
			kept = p.Events[:i+1] // nothing dropped so far: nothing to move
			continue
		}
		kept = append(kept, *e)
	}
	dropped = len(p.Events) - len(kept)
	p.Events = kept
	return dropped, shares
}

// twin reports whether an item, whose id is another's already, came earlier with
// the same bytes. They may be many, so they are found by their bytes.
func (t *Trimmer) twin(slots []int32, kept []bridge.Event, e *bridge.Event) bool {
	i := int(maphash.Bytes(t.seed, e.Raw)) & (len(slots) - 1)
	for ; slots[i] != 0; i = (i + 1) & (len(slots) - 1) {
		if one := &kept[slots[i]-1]; bytes.Equal(one.Raw, e.Raw) && bytes.Equal(one.ID, e.ID) {
			return true
		}
	}
	slots[i] = int32(len(kept) + 1)
	return false
}
