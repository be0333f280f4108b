// Package transport makes the connections of requests. Clients with the same settings
// share connections.
package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/linklocal"
	"exportbridge/bridge/exportapi/internal/share"
)

// Environment is the value of Settings.Proxy that selects HTTPS_PROXY and NO_PROXY.
const Environment = "environment"

// idleTimeout is how long a connection without requests stays open.
const idleTimeout = 90 * time.Second

// Settings hold all that connections depend on. Clients with equal settings share
// connections.
type Settings struct {
	Timeout     time.Duration // of a request: a third of it for connecting, two for the header
	Roots       string        // trusted certificates, see ParseRoots
	Proxy       string        // Environment, or see ParseProxy
	LinkLocal   bool          // allow addresses that serve instance metadata
	Certificate bridge.ClientTLS
	API         string // scheme and host of the only server that gets the certificate
}

// Pool holds the connections of clients. The zero value is ready for use; it may be used
// concurrently.
type Pool struct {
	transports share.Values[Settings, *http.Transport]
}

// Shared are connections in use.
type Shared struct {
	*http.Transport
	value *share.Value[Settings, *http.Transport]
}

// Use returns connections with valid settings.
func (p *Pool) Use(s Settings) Shared {
	value := p.transports.Use(s, func() *http.Transport { return build(s) })
	return Shared{value.V, value}
}

// Leave ends the use of the connections, after the last request. The last user closes them.
func (s Shared) Leave() {
	if s.value.Leave() {
		s.CloseIdleConnections()
	}
}

// build returns a Transport for valid settings. Requests use it without http.Client, which
// would follow redirects with the key to other hosts, and would put URLs into errors.
func build(s Settings) *http.Transport {
	roots, _ := ParseRoots(s.Roots) // validated
	connect := s.Timeout / 3
	dialer := &net.Dialer{Timeout: connect}
	if !s.LinkLocal {
		dialer.Control = linklocal.Refuse
	}
	// A cursor allows one request at a time. HTTP/2 gains nothing for it,
	// and takes twice the processor time.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    connect,
		ResponseHeaderTimeout:  2 * connect,
		DisableCompression:     true,        // decompressed by package body, with a limit
		MaxIdleConnsPerHost:    math.MaxInt, // one for each client at most
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 256 << 10,
		Protocols:              &protocols,
	}
	if s.Certificate != (bridge.ClientTLS{}) {
		t.DialTLSContext = dialFirst(dialer, t, s)
		t.TLSClientConfig.GetClientCertificate = s.Certificate.Certificate // through a proxy's tunnel
	}
	switch proxy, _ := ParseProxy(s.Proxy); { // validated
	case s.Proxy == Environment:
		t.Proxy = http.ProxyFromEnvironment
	case proxy != nil:
		t.Proxy = http.ProxyURL(proxy)
	}
	return t
}

// dialFirst returns the function that dials the first server of a TLS connection. Only the
// API's host gets the client certificate, a proxy does not.
func dialFirst(
	dialer *net.Dialer, t *http.Transport, s Settings,
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain, certified := t.TLSClientConfig.Clone(), t.TLSClientConfig.Clone()
	certified.GetClientCertificate = s.Certificate.Certificate
	api, _ := url.Parse(s.API) // validated
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := tls.Dialer{NetDialer: dialer, Config: plain}
		isProxy := false
		if t.Proxy != nil {
			proxy, err := t.Proxy(&http.Request{URL: api})
			isProxy = err == nil && proxy != nil &&
				addr == net.JoinHostPort(proxy.Hostname(), cmp.Or(proxy.Port(), "443"))
		}
		if host, _, err := net.SplitHostPort(addr); err == nil && !isProxy && strings.EqualFold(host, api.Hostname()) {
			d.Config = certified
		}
		return d.DialContext(ctx, network, addr)
	}
}

// ParseProxy parses the URL of a proxy. It returns nil for "" and Environment, and not ok
// for text that is no URL of a proxy.
func ParseProxy(text string) (proxy *url.URL, ok bool) {
	if text == "" || text == Environment {
		return nil, true
	}
	u, err := url.Parse(text)
	if err == nil && u.Hostname() != "" {
		switch u.Scheme {
		case "http", "https", "socks5", "socks5h":
			return u, true
		}
	}
	return nil, false
}

// ParseRoots parses certificates (PEM). It returns nil, for the system's, if pem is empty,
// and not ok if pem has no certificate.
func ParseRoots(pem string) (roots *x509.CertPool, ok bool) {
	if pem == "" {
		return nil, true
	}
	roots = x509.NewCertPool()
	return roots, roots.AppendCertsFromPEM([]byte(pem))
}
