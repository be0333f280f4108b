package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"exportbridge/bridge"
)

const (
	// cycleMemory is how many cursors a process remembers to notice a cycle.
	cycleMemory = 4096
	// maxRecentCursors is how many of them a checkpoint carries, for the next process.
	maxRecentCursors = 16
)

func cursorDigest(cursor string) uint64 {
	var short [128]byte // on the stack, unlike the bytes of a conversion
	sum := sha256.Sum256(append(short[:0], cursor...))
	return binary.BigEndian.Uint64(sum[:8])
}

// visited remembers the last cursors that the stream went through. Cursors of
// pages that are not committed yet are kept apart, since a restart goes
// through them again. Owned by the commit loop.
type visited struct {
	known   map[uint64]struct{}
	ring    []uint64
	next    int
	pending []uint64
}

func newVisited() *visited { return &visited{known: make(map[uint64]struct{})} }

// has reports whether the stream has been at the cursor.
func (v *visited) has(cursor string) bool {
	h := cursorDigest(cursor)
	if _, ok := v.known[h]; ok {
		return true
	}
	return slices.Contains(v.pending, h)
}

// add notes that the stream left the cursor behind.
func (v *visited) add(cursor string) {
	v.pending = append(v.pending, cursorDigest(cursor))
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

// last returns the newest cursors, for a checkpoint.
func (v *visited) last() bridge.RecentCursors {
	t := make(bridge.RecentCursors, 0, maxRecentCursors)
	for i := range min(maxRecentCursors, len(v.pending)) {
		t = append(t, v.pending[len(v.pending)-1-i])
	}
	for i := 1; i <= len(v.ring) && len(t) < maxRecentCursors; i++ {
		t = append(t, v.ring[(v.next+len(v.ring)-i)%len(v.ring)])
	}
	if len(t) == 0 {
		return nil
	}
	slices.Reverse(t)
	return t
}

// begin goes on from a checkpoint that this process has not written.
func (v *visited) begin(t bridge.RecentCursors) {
	v.clear()
	v.pending = append(v.pending, t...)
	v.commit()
}

// rollback forgets what was added since the last commit.
func (v *visited) rollback() { v.pending = v.pending[:0] }

// clear forgets everything: the stream was moved.
func (v *visited) clear() {
	clear(v.known)
	v.ring, v.next, v.pending = v.ring[:0], 0, v.pending[:0]
}
