package exportsim

import (
	"maps"
	"sync"
)

// Stats are the counters of a Handler, without requests for /healthz.
type Stats struct {
	// Requests counts received requests.
	Requests int
	// ByStatus counts responses by status, also those that a fault broke afterwards. A
	// stalled request has no status.
	ByStatus map[int]int
	// Faults counts the injected faults by kind.
	Faults map[string]int
	// Items counts the items of complete responses, Bytes the compressed bytes of all
	// bodies.
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
