package ops

import (
	"net/netip"
	"slices"
	"testing"
)

// A new feed beyond the limit ends the oldest feed of the client with the most feeds.
func TestSeats(t *testing.T) {
	t.Parallel()
	var s seats
	var ended []string
	take := func(from string) func() {
		return s.take(netip.MustParseAddr(from), maxFeeds, func() { ended = append(ended, from) })
	}
	take("10.0.0.1")
	leave := take("10.0.0.1")
	for i := range 30 { // one network
		take([]string{"2001:db8::1", "2001:db8::2"}[i%2])
	}
	take("10.0.0.2")
	take("2001:db8::3")
	leave()
	take("10.0.0.2")
	if want := []string{"2001:db8::1", "2001:db8::2"}; !slices.Equal(ended, want) {
		t.Errorf("ended %q, want %q", ended, want)
	}
	leave() // twice is once
	if len(s.taken) != maxFeeds {
		t.Errorf("%d feeds", len(s.taken))
	}
}

// A client with too many feeds loses its own oldest one.
func TestSeatsOfOneClient(t *testing.T) {
	t.Parallel()
	var s seats
	var ended []int
	s.take(netip.MustParseAddr("10.0.0.1"), maxFeedsOfClient, func() { t.Error("another client's feed ends") })
	for i := range maxFeedsOfClient + 2 {
		s.take(netip.MustParseAddr("10.0.0.2"), maxFeedsOfClient, func() { ended = append(ended, i) })
	}
	if want := []int{0, 1}; !slices.Equal(ended, want) {
		t.Errorf("ended %v, want %v", ended, want)
	}
}
