// Package memory reuses the memory of pages, across all streams of the process.
package memory

import (
	"sync"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/spare"
)

const (
	// Memory up to smallBuffer (bytes) and smallPage (events) is always kept.
	smallBuffer = 256 << 10
	smallPage   = 2000
)

var free spare.List[Page]

// Trim frees the memory that no page has needed since the last Trim.
func Trim() { free.Trim() }

// Page is the memory of one page.
type Page struct {
	Body   []byte
	Events []bridge.Event
	Notes  any // see bridge.Page
}

// Room returns the empty body with a capacity above size bytes: the read that finds the end
// needs room. New memory is a bit larger, so that it fits pages of about the same size.
func (p Page) Room(size int) []byte {
	if cap(p.Body) > size {
		return p.Body[:0]
	}
	return make([]byte, 0, size+size/8+512)
}

// Pages takes and gives the memory for the pages of one client. Its methods may be called
// concurrently: a page is released by whatever goroutine owns it.
type Pages struct {
	mu    sync.Mutex // guards the rest
	size  int        // running mean of the pages' sizes in bytes
	items int        // running mean of the items of the pages given back
}

// Take returns memory for the next page and the expected size of the page. It takes memory
// that is far too large only as a last choice: other clients may need that memory, and Give
// drops it.
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

// Measure adds a page's size to the running mean. A page of a very different size resets
// the mean: a stream that has caught up has small pages from then on.
func (p *Pages) Measure(size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if size > 4*p.size || size < p.size/4 {
		p.size = size
		return
	}
	p.size += (size - p.size) / 8
}

// Give returns the memory of a page with that many items. It drops memory that is far
// larger than current pages need.
func (p *Pages) Give(m Page, items int) {
	if p.giant(m, items) {
		return
	}
	// The events refer to bodies and to unescaped strings.
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

// limits returns the largest memory that is kept for pages of the current size. The caller
// holds mu.
func (p *Pages) limits() limits {
	return limits{bytes: max(4*p.size, smallBuffer), events: max(4*p.items, smallPage)}
}

// limits bound the memory of a page.
type limits struct{ bytes, events int }

func (l limits) exceeded(m Page) bool { return cap(m.Body) > l.bytes || cap(m.Events) > l.events }
