package exportsim

import (
	"maps"
	"sync"
)

// Stats is what a Handler has done so far. Requests for /healthz are not in it.
type Stats struct {
	// Requests is the number of requests that arrived.
	Requests int
	// ByStatus counts the answers by status, those included that a fault broke
	// afterwards. A stalled request has none.
	ByStatus map[int]int
	// Faults counts the injected faults by kind.
	Faults map[string]int
	// Items is the number of items in whole answers, Bytes the number of bytes
	// of all bodies, compressed.
	Items, Bytes int64
}

type stats struct {
	mu  sync.Mutex
	now Stats // guarded by mu
}

// Stats returns a copy of the counters.
func (h *Handler) Stats() Stats {
	h.stats.mu.Lock()
	defer h.stats.mu.Unlock()
	copied := h.stats.now
	copied.ByStatus = maps.Clone(copied.ByStatus)
	copied.Faults = maps.Clone(copied.Faults)
	return copied
}

// arrived counts a request and returns its number, from 1.
func (s *stats) arrived() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Requests++
	return s.now.Requests
}

func (s *stats) failed(fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Faults[fault]++
}

func (s *stats) answered(a answer, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.ByStatus[a.status]++
	s.now.Items += int64(a.items)
	s.now.Bytes += int64(bytes)
}
