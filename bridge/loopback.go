package bridge

import (
	"net"
	"net/netip"
)

// Loopback reports whether a host, a name or an IP address, is this machine: what is sent
// to it leaves no trace on a network.
func Loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// LoopbackAddr is Loopback for a host with a port. An address without a port is elsewhere.
func LoopbackAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && Loopback(host)
}
