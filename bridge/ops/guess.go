package ops

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// guessBurst wrong tokens of an address are answered at once, further ones at
	// one in guessInterval.
	guessBurst    = 10
	guessInterval = time.Second
	// maxGuessers bounds the addresses in memory. Guessers at more addresses get
	// a new burst at times.
	maxGuessers = 1024
)

// guesses slows guessing of the token, per address: an IPv6 client is its /64
// network, the smallest that is assigned. Clients behind one proxy share an address.
type guesses struct {
	mu    sync.Mutex // guards wrong
	wrong map[netip.Addr]*rate.Limiter
}

// allow reports whether to answer a token that is right or wrong. Once an address is
// slowed, the right one is not answered either: the guesser would know it.
func (g *guesses) allow(from netip.Addr, right bool, now time.Time) bool {
	if from = from.Unmap(); from.Is6() {
		network, _ := from.Prefix(64) // 64 is always valid
		from = network.Addr()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := g.wrong[from]
	switch {
	case limit == nil && right:
		return true
	case limit == nil:
		limit = g.add(from)
	case limit.TokensAt(now) < 1:
		return false
	}
	return right || limit.AllowN(now, 1)
}

func (g *guesses) add(from netip.Addr) *rate.Limiter {
	if g.wrong == nil {
		g.wrong = make(map[netip.Addr]*rate.Limiter)
	}
	for other := range g.wrong {
		if len(g.wrong) < maxGuessers {
			break
		}
		delete(g.wrong, other)
	}
	g.wrong[from] = rate.NewLimiter(rate.Every(guessInterval), guessBurst)
	return g.wrong[from]
}
