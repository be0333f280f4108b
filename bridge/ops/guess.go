package ops

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// guessBurst wrong tokens of an address are answered 401, further ones at one
	// in guessInterval.
	guessBurst    = 10
	guessInterval = time.Second
	// maxGuessers bounds the addresses in memory. Guessers at more addresses get
	// a new burst at times.
	maxGuessers = 1024
)

// guesses slows wrong tokens, per address: an IPv6 client is its /64 network, the
// smallest that is assigned. Its length prevents guessing a token of minToken characters,
// so the right one always passes: clients behind one proxy share an address. Slowing
// spares the log there. A shorter one is slowed like wrong ones.
type guesses struct {
	mu    sync.Mutex // guards wrong
	wrong map[netip.Addr]*rate.Limiter
}

// allow reports whether to tell an address if its token is right, or to slow it.
func (g *guesses) allow(from netip.Addr, now time.Time, right bool) bool {
	from = clientOf(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := g.wrong[from]
	switch {
	case right:
		return limit == nil || limit.TokensAt(now) >= 1
	case limit == nil:
		limit = g.add(from)
	}
	return limit.AllowN(now, 1)
}

// clientOf returns what an address has in common with others of one client.
func clientOf(from netip.Addr) netip.Addr {
	if from = from.Unmap(); from.Is6() {
		network, _ := from.Prefix(64) // 64 is always valid
		return network.Addr()
	}
	return from
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
