// Package memory keeps the memory of pages for the next ones.
package memory

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
	smallPage   = 2000
)

// Page is the memory of one page.
type Page struct {
	Body   []byte
	Events []bridge.Event
}

// Room returns the empty body with capacity for size bytes and the read that
// finds the end, and some more, so that the same memory fits pages of about the
// same size.
func (p Page) Room(size int) []byte {
	if cap(p.Body) > size {
		return p.Body[:0]
	}
	return make([]byte, 0, size+size/8+512)
}

// Pages is a LIFO free list of page memory: the newest is still in the
// CPU cache.
type Pages struct {
	mu    sync.Mutex // guards all below: pages come back from wherever they are released
	free  []Page
	size  int // running mean of the pages' sizes in bytes
	items int // running mean of the items of the pages given back
}

// Take returns memory for the next page and its expected size.
func (p *Pages) Take() (Page, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return Page{}, p.size + p.size/8
	}
	last := p.free[n-1]
	p.free[n-1] = Page{}
	p.free = p.free[:n-1]
	return last, p.size + p.size/8
}

// Measure adds a page's size to the running mean.
func (p *Pages) Measure(size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size == 0 {
		p.size = size
		return
	}
	p.size += (size - p.size) / 8
}

// Give returns the memory of a page with that many items, and drops buffers far
// larger than current pages.
func (p *Pages) Give(m Page, items int) {
	// The events point into bodies and into strings that were unescaped.
	m.Events = m.Events[:cap(m.Events)]
	clear(m.Events)
	m.Body, m.Events = m.Body[:0], m.Events[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.items == 0 {
		p.items = items
	}
	p.items += (items - p.items) / 8
	if len(p.free) < keptBuffers {
		p.free = append(p.free, m)
	}
	p.free = slices.DeleteFunc(p.free, p.giant)
}

// giant reports whether the memory is far larger than current pages need. The
// caller holds mu.
func (p *Pages) giant(m Page) bool {
	return cap(m.Body) > max(4*p.size, smallBuffer) || cap(m.Events) > max(4*p.items, smallPage)
}
