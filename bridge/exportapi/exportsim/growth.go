package exportsim

import (
	"math"
	"sync"
	"time"
)

// growth is the number of events there are: what was put in, and what grew by
// the wall clock since.
type growth struct {
	rate  float64 // events per second
	limit int     // no more than this, so that times keep their 13 digits

	happened func() int // is the number in place of all others, if it is set

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

// visible is when there were, or will be, n events if nothing but the wall
// clock adds to them; the zero time if never.
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
