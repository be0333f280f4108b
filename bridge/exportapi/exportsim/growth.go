package exportsim

import (
	"math"
	"sync"
	"time"
)

// growth counts the events: those that were put in, and those that the wall clock has added
// since.
type growth struct {
	rate  float64 // events per second
	limit int     // the most events, see world.limit

	happened func() int // if not nil, returns the number instead

	mu    sync.Mutex
	base  int       // guarded by mu
	since time.Time // guarded by mu: growth is counted from here
}

func (g *growth) now() int {
	if g.happened != nil {
		return g.happened()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	grown := g.rate * time.Since(g.since).Seconds()
	return min(g.base+int(grown), g.limit)
}

func (g *growth) grow(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base = max(0, g.base+min(n, g.limit-g.base))
}

func (g *growth) set(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.base, g.since = max(0, min(n, g.limit)), time.Now()
}

// visible returns when there were, or will be, n events if only the wall clock adds some;
// zero if never.
func (g *growth) visible(n int) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case n <= g.base:
		return g.since
	case g.rate == 0:
		return time.Time{}
	}
	return g.since.Add(time.Duration(math.Ceil(float64(n-g.base) / g.rate * float64(time.Second))))
}
