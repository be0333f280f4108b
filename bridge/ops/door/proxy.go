package door

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
)

// Proxy selects the proxies that the server trusts to name their users. The zero Proxy
// trusts none.
type Proxy struct {
	Header string // header with the user's name
	From   []netip.Prefix
	Role   Role // role of all users
}

// userPattern allows e-mail addresses. It excludes characters that break a line, or hide a
// part of it.
var userPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._@+-]{0,127}$`)

// ParseProxies parses addresses and networks. It rejects a network of all addresses, with
// which any client could choose its user name.
func ParseProxies(list []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range list {
		network, err := netip.ParsePrefix(text)
		if addr, failed := netip.ParseAddr(text); failed == nil && addr.Zone() == "" {
			network, err = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%.64q is not an address or a network, for example 10.0.0.5 or 10.1.0.0/16", text)
		case network.Addr().Is4In6():
			return nil, fmt.Errorf("%.64q: write the IPv4 network, for example 10.1.0.0/16", text)
		case network.Bits() == 0:
			return nil, fmt.Errorf("%q trusts every address", text)
		}
		all = append(all, network)
	}
	return all, nil
}

// Trusts reports whether the address is that of a trusted proxy.
func (p Proxy) Trusts(peer netip.Addr) bool {
	return slices.ContainsFunc(p.From, func(network netip.Prefix) bool { return network.Contains(peer.Unmap()) })
}

// Strip empties the header of a request that no trusted proxy sent. It keeps the name of
// the header, which shows that the request came through a proxy.
func (p Proxy) Strip(h http.Header, peer netip.Addr) {
	name := http.CanonicalHeaderKey(p.Header)
	if _, ok := h[name]; ok && !p.Trusts(peer) {
		h[name] = nil
	}
}

// User returns the user that the proxy names. The name is empty if the proxy names none.
// The request must have passed Strip.
func (p Proxy) User(h http.Header) (Identity, error) {
	switch names := h.Values(p.Header); {
	case p.Header == "" || len(names) == 0:
		return Identity{}, nil
	case len(names) > 1:
		return Identity{}, fmt.Errorf("the proxy sends %s %d times", p.Header, len(names))
	case !userPattern.MatchString(names[0]):
		const want = "a letter or digit, then up to 127 letters, digits, and . _ @ + -"
		return Identity{}, fmt.Errorf("%s from the proxy is not %s", p.Header, want)
	default:
		return Identity{Name: names[0], Role: p.Role, By: ByProxy}, nil
	}
}
