package position

import (
	"encoding/binary"

	"exportbridge/bridge"
)

const (
	// cycleMemory is the number of cursors that a process remembers to notice a cycle.
	cycleMemory = 4096
	// maxRecentCursors is the number of these cursors in a checkpoint, for the next
	// process.
	maxRecentCursors = 16
)

func cursorDigest(cursor string) uint64 {
	d := bridge.DigestCursor(cursor)
	return binary.BigEndian.Uint64(d[:])
}

// Visited has the last cursors that the stream has left. It is a value: after Add, the old
// value is still valid for the next cycleMemory cursors. Values made from one value share
// memory. If two of them add different cursors, only the later one is right. The zero value
// has no cursor. It must not be used concurrently.
type Visited struct {
	memory *cursorMemory
	n      int // number of added cursors
}

// cursorMemory has the cursors of a value, and of the values that it was made from. The nth
// added cursor is in ring[n%len]. The ring has twice the size of one value.
type cursorMemory struct {
	known map[uint64]int
	ring  []uint64
}

// recentVisited returns the cursors of a checkpoint that another process wrote.
func recentVisited(t bridge.RecentCursors) (v Visited) {
	for _, digest := range t {
		v = v.add(digest)
	}
	return v
}

// Has reports whether the stream has left the cursor before.
func (v Visited) Has(cursor string) bool { return v.n > 0 && v.has(cursorDigest(cursor)) }

// Add records that the stream has left the cursor.
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
