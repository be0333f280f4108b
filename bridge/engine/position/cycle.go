package position

import (
	"crypto/sha256"
	"encoding/binary"

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

// Visited is the last cursors that the stream went through. It is a value: one with
// a cursor added leaves the other as it was, up to cycleMemory cursors behind. Those
// made of one value share a memory, and of two that went apart only the later one
// counts. The zero value is no cursor. Not for concurrent use.
type Visited struct {
	memory *cursorMemory
	n      int // how many were added
}

// cursorMemory holds the cursors of one value and of those it was made of: the cursor
// that was added as the nth is in ring[n%len]. It is twice as large as what one value
// remembers.
type cursorMemory struct {
	known map[uint64]int
	ring  []uint64
}

// recentVisited is the memory of a checkpoint that this process has not written.
func recentVisited(t bridge.RecentCursors) (v Visited) {
	for _, digest := range t {
		v = v.add(digest)
	}
	return v
}

// Has reports whether the stream has been at the cursor.
func (v Visited) Has(cursor string) bool { return v.n > 0 && v.has(cursorDigest(cursor)) }

// Add notes that the stream left the cursor behind.
func (v Visited) Add(cursor string) Visited { return v.add(cursorDigest(cursor)) }

func (v Visited) has(digest uint64) bool {
	if v.memory == nil {
		return false
	}
	i, ok := v.memory.known[digest]
	return ok && i < v.n && i >= v.n-cycleMemory && v.memory.ring[i%(2*cycleMemory)] == digest
}

func (v Visited) add(digest uint64) Visited {
	if v.has(digest) {
		return v
	}
	if v.memory == nil {
		v.memory = &cursorMemory{known: make(map[uint64]int)}
	}
	m, slot := v.memory, v.n%(2*cycleMemory)
	if slot == len(m.ring) {
		m.ring = append(m.ring, digest)
	} else {
		if was := m.ring[slot]; m.known[was]%(2*cycleMemory) == slot {
			delete(m.known, was)
		}
		m.ring[slot] = digest
	}
	m.known[digest] = v.n
	v.n++
	return v
}

// Last returns the newest cursors, for a checkpoint.
func (v Visited) Last() bridge.RecentCursors {
	if v.n == 0 {
		return nil
	}
	t := make(bridge.RecentCursors, min(maxRecentCursors, v.n))
	for i := range t {
		t[i] = v.memory.ring[(v.n-len(t)+i)%(2*cycleMemory)]
	}
	return t
}
