package exportapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"exportbridge/bridge/exportapi/internal/linklocal"
)

// proxyEnvironment is the value of EXPORT_PROXY that selects HTTPS_PROXY and
// NO_PROXY.
const proxyEnvironment = "environment"

// newTransport returns the client's own connections. Requests use a Transport:
// unlike http.Client it does not follow redirects, which would send the key to
// another host, and keeps URLs out of errors.
func newTransport(cfg *Config) *http.Transport {
	roots, _ := cfg.roots() // validated
	proxy, _ := cfg.proxy() // validated
	connect := cfg.Timeout / 3
	dialer := &net.Dialer{Timeout: connect}
	if !cfg.LinkLocal {
		dialer.Control = linklocal.Refuse
	}
	// A cursor gives one request after the other: it gains nothing from HTTP/2,
	// which costs twice the processor time.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    connect,
		ResponseHeaderTimeout:  2 * connect,
		DisableCompression:     true, // decompressed here, with a limit
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		Protocols:              &protocols,
	}
	if cfg.TLSCert != "" {
		t.DialTLSContext = dialFirst(dialer, t, cfg)
		t.TLSClientConfig.GetClientCertificate = cfg.clientCertificate // through a proxy's tunnel
	}
	switch {
	case proxy != nil:
		t.Proxy = http.ProxyURL(proxy)
	case cfg.Proxy.Reveal() == proxyEnvironment:
		t.Proxy = http.ProxyFromEnvironment
	}
	return t
}

// dialFirst returns what dials the first server of a TLS connection: the API's host, which
// is offered the client certificate, or a proxy, which is not.
func dialFirst(dialer *net.Dialer, t *http.Transport, cfg *Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain, certified := t.TLSClientConfig.Clone(), t.TLSClientConfig.Clone()
	certified.GetClientCertificate = cfg.clientCertificate
	api, _ := url.Parse(cfg.URL) // validated
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := tls.Dialer{NetDialer: dialer, Config: plain}
		isProxy := false
		if t.Proxy != nil {
			proxy, err := t.Proxy(&http.Request{URL: api})
			isProxy = err == nil && proxy != nil && addr == net.JoinHostPort(proxy.Hostname(), cmp.Or(proxy.Port(), "443"))
		}
		if host, _, err := net.SplitHostPort(addr); err == nil && !isProxy && strings.EqualFold(host, api.Hostname()) {
			d.Config = certified
		}
		return d.DialContext(ctx, network, addr)
	}
}

// tokenTransport returns the connections for token requests: those of pages, or, where
// another host issues the tokens, some that offer it no client certificate.
func tokenTransport(cfg *Config, pages *http.Transport) *http.Transport {
	api, _ := url.Parse(cfg.URL)               // validated
	issuer, _ := url.Parse(cfg.OAuth2TokenURL) // validated
	if cfg.TLSCert == "" || strings.EqualFold(api.Hostname(), issuer.Hostname()) {
		return pages
	}
	t := pages.Clone()
	t.TLSClientConfig.GetClientCertificate, t.DialTLSContext = nil, nil
	return t
}
