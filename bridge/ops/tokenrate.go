package ops

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// guessBurst tokens of an address are tried, then one per guessInterval.
	guessBurst    = 10
	guessInterval = time.Second
	// maxGuessers bounds the addresses in memory, and the accepted clients. With more
	// addresses, some get a new burst.
	maxGuessers = 1024
)

// guesses slows an address that sends wrong tokens; an IPv6 address counts as its /64 network,
// the smallest that is assigned. An address that must wait does not learn whether a token is
// right. Clients behind one proxy share its address: who was accepted from it before does not
// wait.
type guesses struct {
	mu       sync.Mutex // guards all below
	wrong    map[netip.Addr]*rate.Limiter
	accepted map[visitor]struct{}
}

// visitor is the owner of a token at an address.
type visitor struct {
	from netip.Addr
	name string
}

// mustWait reports whether the address must wait before it learns about a token. name is the
// token's owner, empty if it is wrong.
func (g *guesses) mustWait(from netip.Addr, name string, now time.Time) bool {
	from = clientOf(from)
	g.mu.Lock()
	defer g.mu.Unlock()
	limit, who := g.wrong[from], visitor{from, name}
	if name == "" {
		if limit == nil {
			limit = rate.NewLimiter(rate.Every(guessInterval), guessBurst)
			g.wrong = add(g.wrong, from, limit)
		}
		return !limit.AllowN(now, 1)
	}
	if _, ok := g.accepted[who]; ok {
		return false
	}
	if limit != nil && limit.TokensAt(now) < 1 {
		return true
	}
	g.accepted = add(g.accepted, who, struct{}{})
	return false
}

// clientOf returns the network of an IPv6 address, and an IPv4 address as it is.
func clientOf(from netip.Addr) netip.Addr {
	if from = from.Unmap(); from.Is6() {
		network, _ := from.Prefix(64) // 64 is always valid
		return network.Addr()
	}
	return from
}

// add adds to a map of maxGuessers entries at most.
func add[K comparable, V any](to map[K]V, key K, value V) map[K]V {
	if to == nil {
		to = make(map[K]V)
	}
	for other := range to {
		if len(to) < maxGuessers {
			break
		}
		delete(to, other)
	}
	to[key] = value
	return to
}
