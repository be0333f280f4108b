package exportsim

import (
	"math"
	"sync"
	"time"
)

// stock is the number of events there are: what was put in, and what grew by
// the wall clock since.
type stock struct {
	rate  float64 // events per second
	limit int     // no more than this, so that times keep their 13 digits

	mu    sync.Mutex
	base  int       // guarded by mu
	since time.Time // guarded by mu: growth is counted from here
}

func (s *stock) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	grown := s.rate * time.Since(s.since).Seconds()
	return min(s.base+int(grown), s.limit)
}

func (s *stock) grow(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = max(0, s.base+min(n, s.limit-s.base))
}

func (s *stock) set(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base, s.since = max(0, min(n, s.limit)), time.Now()
}

// visible is when there were, or will be, n events if nothing but the wall
// clock adds to them; the zero time if never.
func (s *stock) visible(n int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case n <= s.base:
		return s.since
	case s.rate == 0:
		return time.Time{}
	}
	return s.since.Add(time.Duration(math.Ceil(float64(n-s.base) / s.rate * float64(time.Second))))
}
