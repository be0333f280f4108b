package exportapi

import (
	"slices"
	"sync"

	"exportbridge/bridge"
)

const (
	// keptBuffers bounds the free list.
	keptBuffers = 32
	// smallBuffer (bytes) and smallPage (events) are always kept.
	smallBuffer = 256 << 10
	smallPage   = 2 * maxPageSize
)

// pageBuffer is the memory of one page.
type pageBuffer struct {
	body   []byte
	events []bridge.Event
}

// room returns the empty body with capacity for size bytes and the read that
// finds the end, and some more, so that the same memory fits pages of about the
// same size.
func (m pageBuffer) room(size int) []byte {
	if cap(m.body) > size {
		return m.body[:0]
	}
	return make([]byte, 0, size+size/8+512)
}

// pageBuffers is a LIFO free list of page memory: the newest is still in the
// CPU cache.
type pageBuffers struct {
	mu    sync.Mutex // guards all below: pages come back from wherever they are released
	free  []pageBuffer
	size  int // running mean of the pages' sizes in bytes
	items int // running mean of the items of the pages given back
}

// take returns memory for the next page and its expected size.
func (s *pageBuffers) take() (pageBuffer, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.free)
	if n == 0 {
		return pageBuffer{}, s.size + s.size/8
	}
	last := s.free[n-1]
	s.free[n-1] = pageBuffer{}
	s.free = s.free[:n-1]
	return last, s.size + s.size/8
}

// measure adds a page's size to the running mean.
func (s *pageBuffers) measure(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size == 0 {
		s.size = size
		return
	}
	s.size += (size - s.size) / 8
}

// give returns the memory of a page with that many items, and drops buffers far
// larger than current pages.
func (s *pageBuffers) give(m pageBuffer, items int) {
	// The events point into bodies and into strings that were unescaped.
	m.events = m.events[:cap(m.events)]
	clear(m.events)
	m.body, m.events = m.body[:0], m.events[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items == 0 {
		s.items = items
	}
	s.items += (items - s.items) / 8
	if len(s.free) < keptBuffers {
		s.free = append(s.free, m)
	}
	s.free = slices.DeleteFunc(s.free, s.giant)
}

// giant reports whether the memory is far larger than current pages need. The
// caller holds mu.
func (s *pageBuffers) giant(m pageBuffer) bool {
	return cap(m.body) > max(4*s.size, smallBuffer) || cap(m.events) > max(4*s.items, smallPage)
}
