package exportapi

import (
	"net/url"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/ratelimit"
	"exportbridge/bridge/exportapi/internal/share"
	"exportbridge/bridge/exportapi/internal/transport"
	"exportbridge/bridge/internal/secrets"
)

// Shared holds what the clients of a process share. The zero value is ready for use; it may
// be used concurrently.
//
// Clients with the same API key share a rate limit, and the delay that the API requests
// with a 429. Clients without a key share by their URL, static headers and parameters, and
// client certificate. The streams of a key together have the highest of their RateLimits,
// and each has its own. Clients with Beside set together have half of it.
//
// Clients with the same timeout, TLS and proxy settings share connections. Clients with the
// same mapping share decoders. Both are freed when the last of their clients is closed.
type Shared struct {
	limits      ratelimit.Limits
	connections transport.Pool
	decoders    share.Values[string, *decoders]
	finders     share.Values[string, secrets.Finder]
}

// limitKey returns the key by which clients share their rate limit.
func limitKey(c *Config) string {
	if c.APIKey != "" {
		return "key " + strings.Join([]string{c.User, c.OAuth2ClientID, c.APIKey.Reveal()}, " ")
	}
	// These tell tenants apart as well.
	return strings.Join([]string{"url", c.URL, c.Headers.Reveal(), c.Params.Reveal(), c.TLSCert}, "\x00")
}

// connections returns the settings of the connections for pages.
func connections(c *Config) transport.Settings {
	s := transport.Settings{Timeout: c.Timeout, Roots: c.CA, Proxy: c.Proxy.Reveal(), LinkLocal: c.LinkLocal}
	if c.TLSCert != "" {
		api, _ := url.Parse(c.URL) // validated
		s.API = api.Scheme + "://" + api.Host
		s.Certificate = c.clientTLS()
	}
	return s
}

// tokenConnections returns the settings of the connections for token requests: those for
// pages, without the client certificate if another host issues the tokens.
func tokenConnections(c *Config) transport.Settings {
	s := connections(c)
	api, _ := url.Parse(c.URL)               // validated
	issuer, _ := url.Parse(c.OAuth2TokenURL) // validated
	if !strings.EqualFold(api.Hostname(), issuer.Hostname()) {
		s.API, s.Certificate = "", bridge.ClientTLS{}
	}
	return s
}
