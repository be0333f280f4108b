package position

import (
	"bytes"
	"hash/maphash"
	"maps"
	"slices"

	"exportbridge/bridge"
)

// TailFactor bounds a tail, and how long a carried tail is kept, in pages.
const TailFactor = 4

// form is the identity of an item with an id, and a hash of its bytes.
type form struct {
	id  bridge.Identity
	sum uint64
}

// forms are the forms of the tail's items. They show which items changed, and distinguish
// items with the same id. Only this process knows them: after a restart, the first form
// seen is assumed to be the published one. It is a value: its maps never change, and a
// trimming clones them before it adds to them.
type forms struct {
	known map[form]struct{}
	units map[bridge.Identity]int // number of known forms of an id
	// mutants are the other forms listed later under an id, each counted once.
	mutants map[bridge.Identity]uint64
	// missing counts the items of the tail that the last page at the cursor did not list.
	missing int
}

// scratch is memory that the calls of trim reuse.
type scratch struct {
	slots []int32
	left  map[bridge.Identity]int // items of the tail that the page has not listed
	fresh []form                  // forms of the items to publish from the page
}

// trimming is one call of trim.
type trimming struct {
	*scratch
	forms
	owned         bool // the maps of forms are clones
	shares        bool // several items of the page have the same id
	carries, last bool // the tail is carried; the page is the end of the results
}

// trim filters p.Events in place against the tail of the position at which p was fetched,
// and makes the tail that of the position after the page. Items with an id are a set. Items
// without one are a counted multiset: two equal items can both be real. Different items of
// one page with the same id are different, and each has a place in the tail. Their forms
// show which of them are already in the tail. If the forms are not known, the first items
// are assumed to be, since an export grows at its end.
//
// While the cursor stays, items that vanished from the page stay in the tail, because the
// API may list them again. When the cursor moves on, items that the page did not list are
// carried along: they may be on the next pages (a tail of 800, read again with a shorter
// page). They are dropped after TailLimit items.
func (at *Position) trim(p *bridge.Page, rules *Rules, r *Findings) error {
	t := trimming{scratch: at.scratch, forms: at.forms, carries: at.Carried > 0, last: p.Tail()}
	r.Repeated, t.shares = t.dropTwins(p)
	if len(at.Tail) == 0 && !t.last {
		if t.shares {
			r.Shared = surplus(p, make(map[string]bool), rules.DivertShared)
		}
		at.Tail, at.Carried = nil, 0
		return nil // the common case: a page in the middle needs no hashes
	}
	clear(t.left)
	for _, id := range at.Tail {
		t.left[id]++
	}
	seen := t.sift(p, rules.DivertShared, r)
	missing := make(bridge.Tail, 0)
	for _, id := range at.Tail {
		if t.left[id] > 0 {
			t.left[id]--
			missing = append(missing, id)
		}
	}
	carried := at.Carried + p.Items
	at.Tail, at.Carried = nil, 0
	switch {
	case t.last && t.carries: // the next tail begins: the carried items were not listed
		r.Vanished, at.Tail = len(missing), seen
	case t.last:
		// Every poll misses the same items again, so only new ones count.
		r.Vanished, at.Tail = max(0, len(missing)-t.missing), slices.Concat(seen, missing)
	case len(missing) > 0 && carried < rules.TailLimit:
		at.Tail, at.Carried = missing, max(1, carried)
	default:
		r.Vanished = len(missing)
	}
	if len(at.Tail) == 0 {
		at.Tail, t.forms = nil, forms{}
	}
	if t.missing = 0; t.last && !t.carries {
		t.missing = len(missing)
	}
	at.forms = t.forms
	if n := len(at.Tail); n > rules.TailLimit {
		return bridge.BlockHintf("tail", bridge.ReasonTail, bridge.HintTail,
			"the last page has %d items, the limit is %d", n, rules.TailLimit)
	}
	return nil
}

// sift removes the page's items from t.left, and keeps those in the page that were not in
// t.left. It returns the identities of all items. A carried tail has no items of the
// border, because the page before listed and removed them.
func (t *trimming) sift(p *bridge.Page, divert bool, r *Findings) bridge.Tail {
	var known, taken map[string]bool
	var units map[bridge.Identity]int // units of each id in the tail
	if t.shares {
		units, taken = maps.Clone(t.left), make(map[string]bool)
		known = t.recognize(p)
	}
	seen := make(bridge.Tail, 0, len(p.Events))
	kept := p.Events[:0]
	for _, e := range p.Events {
		seen = append(seen, e.Identity())
		id := t.nameOf(&e)
		is := formOf(id, &e)
		recognized := e.Shared && known[string(e.Form())]
		if !recognized && (t.left[id] == 0 || t.carries && e.AtBorder) {
			kept = append(kept, e)
			if e.ID != nil && t.last {
				t.fresh = append(t.fresh, is)
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
		if e.ID != nil && t.changed(is, units[id]) && t.last {
			r.Changed++
		}
	}
	for _, is := range t.fresh {
		t.learn(is)
	}
	p.Events, t.fresh = kept, t.fresh[:0]
	if t.shares {
		r.Shared = surplus(p, taken, divert)
	}
	return seen
}

// nameOf returns the identity of an item in t.left. It is the identity from before the
// rules for private data, if t.left has only that one.
func (t *trimming) nameOf(e *bridge.Event) bridge.Identity {
	id := e.Identity()
	if was, ok := e.WasIdentity(); ok && t.left[id] == 0 && t.left[was] > 0 {
		return was
	}
	return id
}

// formOf returns the form of an item with an id.
func formOf(id bridge.Identity, e *bridge.Event) form {
	if e.ID == nil {
		return form{}
	}
	return form{id, maphash.Bytes(seed, e.Form())}
}

// recognize removes from t.left the page's items that share their id and whose forms are
// known to be in the tail. It returns their bytes.
func (t *trimming) recognize(p *bridge.Page) map[string]bool {
	known := make(map[string]bool)
	for i := range p.Events {
		e := &p.Events[i]
		if !e.Shared || t.carries && e.AtBorder {
			continue
		}
		id := t.nameOf(e)
		if t.left[id] > 0 && t.has(formOf(id, e)) {
			t.left[id]--
			known[string(e.Form())] = true
		}
	}
	return known
}

// surplus counts the items left in the page whose id is taken, or is that of an earlier
// item. If divert is set, they become bad events.
func surplus(p *bridge.Page, taken map[string]bool, divert bool) (n int) {
	for i := range p.Events {
		e := &p.Events[i]
		if !e.Shared {
			continue
		}
		if taken[string(e.ID)] {
			n++
			if divert && e.Defect == bridge.DefectNone {
				e.Defect = bridge.DefectSharedID
			}
		}
		taken[string(e.ID)] = true
	}
	return n
}

// has reports whether a form is known to be in the tail.
func (f *forms) has(is form) bool {
	_, ok := f.known[is]
	return ok
}

// learn records that a form is in the tail.
func (t *trimming) learn(is form) {
	if !t.has(is) {
		t.own()
		t.known[is] = struct{}{}
		t.units[is.id]++
	}
}

// changed reports whether an item of the tail was listed with other bytes. The tail has
// units items with its id, 0 or 1 for a single one. The first units forms seen are assumed
// to be theirs.
func (t *trimming) changed(is form, units int) bool {
	if t.units[is.id] < max(1, units) {
		t.learn(is)
		return false
	}
	if t.has(is) || t.mutants[is.id] == is.sum {
		return false
	}
	t.own()
	t.mutants[is.id] = is.sum
	return true
}

// own clones the maps of forms before the first change.
func (t *trimming) own() {
	if t.owned {
		return
	}
	t.owned = true
	if t.known == nil {
		t.known, t.units, t.mutants = make(map[form]struct{}), make(map[bridge.Identity]int), make(map[bridge.Identity]uint64)
		return
	}
	t.known, t.units, t.mutants = maps.Clone(t.known), maps.Clone(t.units), maps.Clone(t.mutants)
}

// dropTwins drops an item if an earlier item of the page has the same id and the same
// bytes. It reports whether an id has different bytes; those items are marked as shared. It
// relies on short ids: one pass over an open-addressed table, and no allocation while pages
// keep their size. The table has an item by its id, or by its bytes if another item has the
// id.
func (t *scratch) dropTwins(p *bridge.Page) (dropped int, shares bool) {
	size := 16
	for size < 2*len(p.Events) {
		size *= 2
	}
	if n := len(t.slots); n < size || n > 16*size { // a quiet stream keeps little
		t.slots = make([]int32, size)
	}
	slots := t.slots[:size]
	clear(slots)
	kept := p.Events[:0]
	first := func(kept []bridge.Event, id []byte) *bridge.Event {
		i := int(maphash.Bytes(seed, id)) & (size - 1)
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
				if bytes.Equal(one.Form(), e.Form()) || t.twin(slots, kept, e) {
					continue
				}
				one.Shared, e.Shared, shares = true, true, true
			}
		}
		if len(kept) == i {
			kept = p.Events[:i+1] // nothing was dropped so far, so nothing moves
			continue
		}
		kept = append(kept, *e)
	}
	dropped = len(p.Events) - len(kept)
	p.Events = kept
	return dropped, shares
}

// twin reports whether an item, whose id another item has, repeats the bytes of an earlier
// item. There may be many such items, so the table has them by their bytes.
func (t *scratch) twin(slots []int32, kept []bridge.Event, e *bridge.Event) bool {
	i := int(maphash.Bytes(seed, e.Form())) & (len(slots) - 1)
	for ; slots[i] != 0; i = (i + 1) & (len(slots) - 1) {
		if one := &kept[slots[i]-1]; bytes.Equal(one.Form(), e.Form()) && bytes.Equal(one.ID, e.ID) {
			return true
		}
	}
	slots[i] = int32(len(kept) + 1)
	return false
}
