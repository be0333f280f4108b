package exportapi

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// proxyEnvironment is the value of EXPORT_PROXY that selects HTTPS_PROXY and
// NO_PROXY.
const proxyEnvironment = "environment"

var errLinkLocal = errors.New("host resolves to a link-local address, or another one that serves cloud instance metadata")

// newTransport returns the client's own connections. Requests use a Transport:
// unlike http.Client it does not follow redirects, which would send the key to
// another host, and keeps URLs out of errors.
func newTransport(cfg *Config) (*http.Transport, error) {
	roots, err := cfg.roots()
	if err != nil {
		return nil, err
	}
	proxy, err := cfg.proxy()
	if err != nil {
		return nil, err
	}
	connect := cfg.Timeout / 3
	dialer := &net.Dialer{Timeout: connect}
	if !cfg.LinkLocal {
		dialer.Control = refuseLinkLocal
	}
	// A cursor gives one request after the other: it gains nothing from HTTP/2,
	// which costs twice the processor time. Where the next one leaves before a
	// body has arrived, it takes another connection.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    connect,
		ResponseHeaderTimeout:  2 * connect,
		DisableCompression:     true, // decompressed here, with a limit
		MaxIdleConnsPerHost:    maxTransfers,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		Protocols:              &protocols,
	}
	if cfg.TLSCert != "" {
		t.TLSClientConfig.GetClientCertificate = cfg.clientCertificate
	}
	switch {
	case proxy != nil:
		t.Proxy = http.ProxyURL(proxy)
	case cfg.Proxy.Reveal() == proxyEnvironment:
		t.Proxy = http.ProxyFromEnvironment
	}
	return t, nil
}

// refuseLinkLocal checks the resolved address, so that no host name bypasses
// it.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	if ap, err := netip.ParseAddrPort(address); err == nil && servesMetadata(ap.Addr()) {
		return errLinkLocal
	}
	return nil
}

// metadataAddresses are those where clouds serve instance metadata or credentials and
// that are not link-local.
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

// nat64 is the prefix of IPv4 addresses behind a NAT64 gateway.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// servesMetadata reports whether an address is link-local or one of
// metadataAddresses.
func servesMetadata(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return addr.IsLinkLocalUnicast() || slices.Contains(metadataAddresses, addr)
}
