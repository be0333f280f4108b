// Package memory keeps the memory of pages for the next ones, of all streams of the
// process.
package memory

import (
	"sync"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/spare"
)

const (
	// smallBuffer (bytes) and smallPage (events) are always kept.
	smallBuffer = 256 << 10
	smallPage   = 2000
)

var free spare.List[Page]

// Trim drops the memory that no page needed since the last Trim.
func Trim() { free.Trim() }

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

// Pages are the pages of one client.
type Pages struct {
	mu    sync.Mutex // guards all below: pages come back from wherever they are released
	size  int        // running mean of the pages' sizes in bytes
	items int        // running mean of the items of the pages given back
}

// Take returns memory for the next page and its expected size. Memory that is far larger is
// the last choice: other clients may need it. It is dropped when it comes back.
func (p *Pages) Take() (Page, int) {
	p.mu.Lock()
	size, bounds := p.size+p.size/8, p.limits()
	p.mu.Unlock()
	m, ok := free.Take(func(m Page) bool { return cap(m.Body) > size && !bounds.exceeded(m) })
	if !ok {
		m, ok = free.Take(func(m Page) bool { return !bounds.exceeded(m) })
	}
	if !ok {
		m, _ = free.Take(spare.Any)
	}
	return m, size
}

// Measure adds a page's size to the running mean. A page of quite another size begins it
// anew: a stream that has caught up asks for small pages from then on.
func (p *Pages) Measure(size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if size > 4*p.size || size < p.size/4 {
		p.size = size
		return
	}
	p.size += (size - p.size) / 8
}

// Give returns the memory of a page with that many items, and drops it if it is far
// larger than current pages.
func (p *Pages) Give(m Page, items int) {
	if p.giant(m, items) {
		return
	}
	// The events point into bodies and into strings that were unescaped.
	m.Events = m.Events[:cap(m.Events)]
	clear(m.Events)
	m.Body, m.Events = m.Body[:0], m.Events[:0]
	free.Give(m)
}

// giant reports whether the memory of a page with that many items is far larger than
// current pages need.
func (p *Pages) giant(m Page, items int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.items == 0 {
		p.items = items
	}
	p.items += (items - p.items) / 8
	return p.limits().exceeded(m)
}

// limits are the largest memory that pages of the current size use. The caller holds mu.
func (p *Pages) limits() limits {
	return limits{bytes: max(4*p.size, smallBuffer), events: max(4*p.items, smallPage)}
}

// limits bound the memory of a page.
type limits struct{ bytes, events int }

func (l limits) exceeded(m Page) bool { return cap(m.Body) > l.bytes || cap(m.Events) > l.events }
