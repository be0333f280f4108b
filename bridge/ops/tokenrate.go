package ops

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// guessBurst wrong tokens of an address get 401, then one per guessInterval.
	guessBurst    = 10
	guessInterval = time.Second
	// maxGuessers bounds the addresses in memory. With more addresses, some get a new
	// burst.
	maxGuessers = 1024
)

// guesses limits the rate of wrong tokens per address; an IPv6 address counts as its /64
// network, the smallest that is assigned. A token cannot be guessed: a right one always
// passes, since clients behind a proxy share an address, and the limit only spares the log.
type guesses struct {
	mu    sync.Mutex // guards wrong
	wrong map[netip.Addr]*rate.Limiter
}

// allow reports whether an address may learn that its token is wrong.
func (g *guesses) allow(from netip.Addr, now time.Time) bool {
	from = clientOf(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := g.wrong[from]
	if limit == nil {
		limit = g.add(from)
	}
	return limit.AllowN(now, 1)
}

// clientOf returns the network of an IPv6 address, and an IPv4 address as it is.
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
