package position

import (
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
	d := bridge.DigestCursor(cursor)
	return binary.BigEndian.Uint64(d[:])
}

// Visited holds the last cursors that the stream went through. It is a value: adding a
// cursor leaves the old value valid, for the next cycleMemory cursors. Values made from
// one value share memory; if two of them add different cursors, only the later one is
// right. The zero value has no cursor. Not for concurrent use.
type Visited struct {
	memory *cursorMemory
	n      int // how many were added
}

// cursorMemory holds the cursors of a value and of the values it was made from. The nth
// added cursor is in ring[n%len]. The ring is twice as large as what one value remembers.
type cursorMemory struct {
	known map[uint64]int
	ring  []uint64
}

// recentVisited returns the cursors in a checkpoint that another process wrote.
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
