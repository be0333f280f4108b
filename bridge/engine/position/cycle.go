package position

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

// Visited remembers the last cursors that the stream went through. Cursors of
// pages that are not committed yet are kept apart, since a restart goes
// through them again. Not for concurrent use.
type Visited struct {
	known   map[uint64]struct{}
	ring    []uint64
	next    int
	pending []uint64
}

// NewVisited remembers no cursor.
func NewVisited() *Visited { return &Visited{known: make(map[uint64]struct{})} }

// Has reports whether the stream has been at the cursor.
func (v *Visited) Has(cursor string) bool {
	h := cursorDigest(cursor)
	if _, ok := v.known[h]; ok {
		return true
	}
	return slices.Contains(v.pending, h)
}

// Add notes that the stream left the cursor behind.
func (v *Visited) Add(cursor string) {
	v.pending = append(v.pending, cursorDigest(cursor))
}

// Commit makes what was added since the last commit part of the memory.
func (v *Visited) Commit() {
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

// Last returns the newest cursors, for a checkpoint.
func (v *Visited) Last() bridge.RecentCursors {
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

// Begin goes on from a checkpoint that this process has not written.
func (v *Visited) Begin(t bridge.RecentCursors) {
	v.Clear()
	v.pending = append(v.pending, t...)
	v.Commit()
}

// Pending is how many cursors were added since the last commit.
func (v *Visited) Pending() int { return len(v.pending) }

// BackTo forgets what was added since Pending was n: with 0, since the last commit.
func (v *Visited) BackTo(n int) { v.pending = v.pending[:min(n, len(v.pending))] }

// Clear forgets everything: the stream was moved.
func (v *Visited) Clear() {
	clear(v.known)
	v.ring, v.next, v.pending = v.ring[:0], 0, v.pending[:0]
}
