package bridge

import (
	"hash/maphash"
	"slices"
)

// cycleMemory is how many cursors are remembered to notice a cycle.
const cycleMemory = 4096

// visited remembers the last cursors that the stream went through. Cursors of
// pages that are not committed yet are kept apart, since a restart goes
// through them again. Owned by the commit loop.
type visited struct {
	seed    maphash.Seed
	known   map[uint64]struct{}
	ring    []uint64
	next    int
	pending []uint64
}

func newVisited() *visited {
	return &visited{seed: maphash.MakeSeed(), known: make(map[uint64]struct{})}
}

// has reports whether the stream has been at the cursor.
func (v *visited) has(cursor string) bool {
	h := maphash.String(v.seed, cursor)
	if _, ok := v.known[h]; ok {
		return true
	}
	return slices.Contains(v.pending, h)
}

// add notes that the stream left the cursor behind.
func (v *visited) add(cursor string) {
	v.pending = append(v.pending, maphash.String(v.seed, cursor))
}

// commit makes what was added since the last commit part of the memory.
func (v *visited) commit() {
	for _, h := range v.pending {
		if len(v.ring) < cycleMemory {
			v.ring = append(v.ring, h)
		} else {
			delete(v.known, v.ring[v.next])
			v.ring[v.next] = h
			v.next = (v.next + 1) % cycleMemory
		}
		v.known[h] = struct{}{}
	}
	v.pending = v.pending[:0]
}

// rollback forgets what was added since the last commit.
func (v *visited) rollback() { v.pending = v.pending[:0] }

// clear forgets everything: the stream was moved.
func (v *visited) clear() {
	clear(v.known)
	v.ring, v.next, v.pending = v.ring[:0], 0, v.pending[:0]
}
