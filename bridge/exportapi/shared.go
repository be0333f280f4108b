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

// Shared is what the clients of a process share. The zero value is ready for use; it may
// be used concurrently.
//
// Clients share by their API key, or if they have none by their URL, static headers and
// parameters, and client certificate: a rate limit, and the delay that the API requests
// with a 429. Streams of the same key together have the highest of their RateLimits, and
// each has its own. Clients with Beside set together have half of it.
//
// Clients share connections by their timeout, TLS and proxy settings, and decoders by their
// mapping. Both go when the last client that has them is closed.
type Shared struct {
	limits      ratelimit.Limits
	connections transport.Pool
	decoders    share.Values[string, *decoders]
	finders     share.Values[string, secrets.Finder]
}

// limitKey is what clients share their rate limit by.
func (c *Config) limitKey() string {
	if c.APIKey != "" {
		return "key " + strings.Join([]string{c.User, c.OAuth2ClientID, c.APIKey.Reveal()}, " ")
	}
	// What else tells tenants apart.
	return strings.Join([]string{"url", c.URL, c.Headers.Reveal(), c.Params.Reveal(), c.TLSCert}, "\x00")
}

// connections are the settings of the connections for pages.
func (c *Config) connections() transport.Settings {
	s := transport.Settings{Timeout: c.Timeout, Roots: c.CA, Proxy: c.Proxy.Reveal(), LinkLocal: c.LinkLocal}
	if c.TLSCert != "" {
		api, _ := url.Parse(c.URL) // validated
		s.API = api.Scheme + "://" + api.Host
		s.Certificate = c.clientTLS()
	}
	return s
}

// tokenConnections are the settings of the connections for token requests: those of pages,
// or, where another host issues the tokens, some that offer it no client certificate.
func (c *Config) tokenConnections() transport.Settings {
	s := c.connections()
	api, _ := url.Parse(c.URL)               // validated
	issuer, _ := url.Parse(c.OAuth2TokenURL) // validated
	if !strings.EqualFold(api.Hostname(), issuer.Hostname()) {
		s.API, s.Certificate = "", bridge.ClientTLS{}
	}
	return s
}
