package exportapi

import (
	"slices"
	"sync"

	"exportbridge/bridge"
)

const (
	// keptBuffers bounds the free list. More pages than this in flight are
	// allocated and left to the garbage collector.
	keptBuffers = 32
	// smallBuffer and smallPage, in events, are never worth dropping.
	smallBuffer = 256 << 10
	smallPage   = 2 * maxPageSize
)

// sheet is the memory of one page.
type pageBuffer struct {
	body   []byte
	events []bridge.Event
}

// room returns the empty body with room for size bytes and for the read that
// finds the end. Pages are of about the same size: with some more room the same
// memory serves the next ones too, whichever of them is the largest.
func (m pageBuffer) room(size int) []byte {
	if cap(m.body) > size {
		return m.body[:0]
	}
	return make([]byte, 0, size+size/8+512)
}

// sheets is a free list of page memory. The last one given back is the first
// one taken, because it is still in the processor's cache.
type pageBuffers struct {
	mu    sync.Mutex // guards all below: pages come back from wherever they are released
	free  []pageBuffer
	size  int // running mean of the pages' sizes in bytes
	items int // running mean of the items of the pages given back
}

// take returns memory for the next page and the size to expect of it.
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

// measure counts a page's size into the running mean.
func (s *pageBuffers) measure(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size == 0 {
		s.size = size
		return
	}
	s.size += (size - s.size) / 8
}

// give takes the memory of a page of so many items back, and keeps none that is
// far larger than pages are: giant ones must not stay.
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

// giant reports whether a page's memory is far larger than pages are now. The
// caller holds mu.
func (s *pageBuffers) giant(m pageBuffer) bool {
	return cap(m.body) > max(4*s.size, smallBuffer) || cap(m.events) > max(4*s.items, smallPage)
}
