// Package linklocal recognizes the addresses where clouds serve instance metadata
// and credentials.
package linklocal

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
)

// ErrAddress is the error of Refuse.
var ErrAddress = errors.New("host resolves to a link-local address, or another one that serves cloud instance metadata")

// Refuse is a net.Dialer.Control. It checks the resolved address, which no host name can
// hide.
func Refuse(_, address string, _ syscall.RawConn) error {
	if ap, err := netip.ParseAddrPort(address); err == nil && Has(ap.Addr()) {
		return ErrAddress
	}
	return nil
}

// metadataAddresses are the addresses of instance metadata or credentials that are not
// link-local.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),      // AWS
	netip.MustParseAddr("fd00:ec2::23"),       // AWS, EKS Pod Identity
	netip.MustParseAddr("fd20:ce::254"),       // Google Cloud
	netip.MustParseAddr("168.63.129.16"),      // Azure
	netip.MustParseAddr("100.100.100.200"),    // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"),        // Oracle Cloud, Classic
	netip.MustParseAddr("fd00:c1::a9fe:a9fe"), // Oracle Cloud
	netip.MustParseAddr("fd00:42::42"),        // Scaleway
}

// nat64 is the prefix of an IPv4 address behind a NAT64 gateway.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Has reports whether an address is link-local or one of metadataAddresses.
func Has(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return addr.IsLinkLocalUnicast() || slices.Contains(metadataAddresses, addr)
}
