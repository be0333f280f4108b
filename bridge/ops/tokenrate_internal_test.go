package ops

import (
	"net/netip"
	"testing"
	"time"
)

// Guessing from many addresses costs a bounded amount of memory.
func TestGuessersAreBounded(t *testing.T) {
	t.Parallel()
	var g guesses
	now := time.Now()
	ip := netip.MustParseAddr("10.0.0.0")
	for range 5 * maxGuessers {
		ip = ip.Next()
		g.mustWait(ip, "", now)
	}
	if n := len(g.wrong); n > maxGuessers || n < maxGuessers/2 {
		t.Errorf("%d addresses are stored, want at most %d", n, maxGuessers)
	}
	for range 5 * maxGuessers {
		ip = ip.Next()
		g.mustWait(ip, "alice", now)
	}
	if n := len(g.accepted); n > maxGuessers {
		t.Errorf("%d accepted clients are stored, want at most %d", n, maxGuessers)
	}
	for range 2 * guessBurst {
		g.mustWait(ip, "", now)
	}
	if !g.mustWait(ip, "", now) {
		t.Error("the last address is not slowed")
	}
}
