package bridge

import (
	"net"
	"net/netip"
	"net/url"
)

// Loopback reports whether a host name or an IP address is this machine.
func Loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// SecureURL reports whether a URL uses TLS, or leads to this machine.
func SecureURL(u *url.URL) bool {
	return u.Scheme == "https" && u.Hostname() != "" || u.Scheme == "http" && Loopback(u.Hostname())
}

// LoopbackAddr is Loopback for a host with a port. It returns false without a port.
func LoopbackAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && Loopback(host)
}
