package ops

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/ops/door"
)

const off = "off"

// Config is the addresses of the server and its access control.
type Config struct {
	// Addr is host:port, or "off".
	Addr string `env:"HTTP_ADDR" desc:"listen address of web UI, API, metrics and probes, or off"`
	// ProbeAddr is host:port. If empty, Addr serves probes and metrics without a token.
	ProbeAddr string `env:"HTTP_PROBE_ADDR" desc:"listen address of probes and metrics alone, without TLS and tokens; on HTTP_ADDR, access to them is then as for reading the API" example:":8081"`
	// TLSCert and TLSKey serve Addr with TLS. TLSCertFile and TLSKeyFile are as in
	// door.Pair.
	TLSCert                 string        `env:"HTTP_TLS_CERT" desc:"certificate of HTTP_ADDR, with intermediate ones (PEM); serves TLS 1.2 or later; its file is read again"`
	TLSKey                  bridge.Secret `env:"HTTP_TLS_KEY" secret:"yes" desc:"its private key (PEM); its file is read again"`
	TLSCertFile, TLSKeyFile string
	// TLSClientCA are the authorities that sign the certificates of clients.
	TLSClientCA string `env:"HTTP_TLS_CLIENT_CA" desc:"require client certificates of these authorities (PEM) on HTTP_ADDR, besides tokens; requires HTTP_PROBE_ADDR"`
	// AdminToken authorizes actions. Without it, and if reading takes no token, actions are
	// restricted to localhost.
	AdminToken bridge.Secret `env:"HTTP_ADMIN_TOKEN" secret:"yes" desc:"bearer token for actions over HTTP, 16 characters or more; if neither tokens, HTTP_OIDC_ISSUER nor HTTP_PROXY_USER_HEADER are set, actions are restricted to localhost; its file is read again at each request"`
	// AdminTokenFile is where AdminToken comes from, empty for none: each request that sends a
	// token reads it again.
	AdminTokenFile string
	// Tokens are lines for door.Parse. With them, reading takes a token too.
	Tokens bridge.Secret `env:"HTTP_TOKENS" secret:"yes" desc:"named tokens, a line each: name, role (read or act) and hash, from exportbridge token; reading requires one too, probes and metrics do not unless HTTP_PROBE_ADDR is set; its file is read again at each request"`
	// TokensFile is where Tokens comes from, empty for none: each request reads it again.
	TokensFile string
	// OIDC are the tokens of an issuer. With them, reading takes a token too.
	OIDC door.OIDC
	// TrustedProxies (addresses and networks) send the user's name in ProxyUserHeader. All
	// users have the role ProxyRole. From other addresses the header is ignored.
	ProxyUserHeader string   `env:"HTTP_PROXY_USER_HEADER" desc:"header with the user's name, believed from HTTP_TRUSTED_PROXIES only; reading then requires a user or a token" example:"X-Forwarded-User"`
	TrustedProxies  []string `env:"HTTP_TRUSTED_PROXIES" desc:"addresses and networks of the proxies that set HTTP_PROXY_USER_HEADER" example:"10.0.0.5,10.1.0.0/16"`
	ProxyRole       string   `env:"HTTP_PROXY_ROLE" values:"read,act" desc:"what users that a proxy names may do"`
	// AuditLog is a file, "-" for standard output, or empty for none.
	AuditLog string `env:"HTTP_AUDIT_LOG" desc:"append actions and rejected requests as JSON lines to this file, or to standard output with -; an action whose line cannot be written is refused"`
	// AllowedHosts are the accepted Host names besides localhost, IP addresses and
	// the host of Addr. Web pages of these names may act even if a proxy changes
	// Host.
	AllowedHosts []string `env:"HTTP_ALLOWED_HOSTS" desc:"accepted Host names besides localhost and IP addresses; also accepted as Origin, for a web UI behind a proxy that changes Host" example:"bridge.example.com"`
	// PProf serves Go profiles to clients on this machine.
	PProf bool `env:"HTTP_PPROF" desc:"serve Go profiles at /debug/pprof/ to localhost"`
	// ShowEvents exposes the payload of sampled events, their ids and hashes of their
	// keys to every client.
	ShowEvents bool `env:"HTTP_SHOW_EVENTS" desc:"expose the payload and the id of sampled events, and a hash of their key, to every client of HTTP_ADDR"`
}

// DefaultConfig returns the defaults of all settings.
func DefaultConfig() Config {
	return Config{Addr: "127.0.0.1:8080", ProxyRole: string(door.Read), OIDC: door.DefaultOIDC()}
}

// Off reports whether the server is disabled.
func (c Config) Off() bool { return c.Addr == off && c.ProbeAddr == "" }

// TLS reports whether Addr is served with TLS.
func (c Config) TLS() bool { return c.TLSCert != "" }

// Local reports whether the server listens on localhost only.
func (c Config) Local() bool { return bridge.LoopbackAddr(c.Addr) }

// login reports whether reading takes a token, or a user of a proxy.
func (c Config) login() bool { return c.Tokens != "" || c.ProxyUserHeader != "" || c.OIDC.Issuer != "" }

// Unsafe lists the settings that disable a protection. HTTP_ADDR is one beyond localhost if
// reading takes no login and no client certificate.
func (c Config) Unsafe() []string {
	if c.Addr == off {
		return nil
	}
	var list []string
	if !c.Local() && !c.login() && c.TLSClientCA == "" {
		list = append(list, "HTTP_ADDR")
	}
	if c.ShowEvents && !c.Local() {
		list = append(list, "HTTP_SHOW_EVENTS")
	}
	return list
}

var headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)

// checkProxy adds the problems of the proxy settings.
func (c Config) checkProxy(add func(variable, format string, args ...any)) {
	const header, proxies = "HTTP_PROXY_USER_HEADER", "HTTP_TRUSTED_PROXIES"
	name := http.CanonicalHeaderKey(c.ProxyUserHeader)
	switch {
	case c.ProxyUserHeader == "" && len(c.TrustedProxies) > 0:
		add(proxies, "requires %s", header)
	case c.ProxyUserHeader == "":
		return
	case len(c.TrustedProxies) == 0:
		add(header, "requires %s, for example 10.0.0.5", proxies)
	case !headerName.MatchString(name), name == "Host", strings.HasPrefix(name, "Sec-"), slices.Contains(direct, name):
		add(header, "%q is not a header that only a proxy sets, for example X-Forwarded-User", c.ProxyUserHeader)
	}
	if _, err := door.ParseProxies(c.TrustedProxies); err != nil {
		add(proxies, "%v", err)
	}
	if role := door.Role(c.ProxyRole); role != door.Read && role != door.Act {
		add("HTTP_PROXY_ROLE", "%q is not read or act", c.ProxyRole)
	}
}

// checkClientCA adds the problems of TLSClientCA.
func (c Config) checkClientCA(p *bridge.Problems) {
	const clients = "HTTP_TLS_CLIENT_CA"
	if c.TLSClientCA == "" {
		return
	}
	p.Check(c.TLS(), clients, "requires HTTP_TLS_CERT")
	p.Check(c.ProbeAddr != "", clients, "requires HTTP_PROBE_ADDR: probes have no client certificate")
	p.Check(x509.NewCertPool().AppendCertsFromPEM([]byte(c.TLSClientCA)), clients, "has no certificate (PEM)")
}

func (c Config) proxy() door.Proxy {
	if c.ProxyUserHeader == "" {
		return door.Proxy{}
	}
	from, err := door.ParseProxies(c.TrustedProxies)
	if err != nil { // Validate returns it
		from = nil
	}
	return door.Proxy{Header: c.ProxyUserHeader, From: from, Role: door.Role(c.ProxyRole)}
}

func isAddr(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	return err == nil && port != ""
}

// checkAdminToken returns why a text cannot be HTTP_ADMIN_TOKEN, without the text.
func checkAdminToken(token string) error {
	switch {
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("must be printable ASCII without spaces, for example from: openssl rand -hex 32")
	case len(token) < door.MinToken:
		return fmt.Errorf("has %d characters and can be guessed; create one of %d or more: openssl rand -hex 32",
			len(token), door.MinToken)
	}
	return nil
}

// Validate returns all problems of the configuration.
func (c Config) Validate() error {
	var p bridge.Problems
	add := func(variable, format string, args ...any) {
		p.Add(bridge.Problem{Variable: variable, Message: variable + ": " + fmt.Sprintf(format, args...)})
	}
	if c.Addr != off && !isAddr(c.Addr) {
		add("HTTP_ADDR", "%q is not an address, for example 127.0.0.1:8080, or off", c.Addr)
	}
	if c.ProbeAddr != "" && !isAddr(c.ProbeAddr) {
		add("HTTP_PROBE_ADDR", "%q is not an address, for example :8081", c.ProbeAddr)
	}
	p.Check(c.ProbeAddr == "" || c.ProbeAddr != c.Addr || strings.HasSuffix(c.Addr, ":0"), "HTTP_PROBE_ADDR",
		"is the same address as HTTP_ADDR; choose another, for example :8081")
	p.Add(bridge.CheckKeyPair("HTTP_TLS", c.TLSCert, c.TLSKey))
	c.checkClientCA(&p)
	c.checkProxy(add)
	p.Add(c.OIDC.Validate())
	if token := c.AdminToken.Reveal(); token != "" {
		if err := checkAdminToken(token); err != nil {
			add("HTTP_ADMIN_TOKEN", "%v", err)
		}
	}
	if named, err := door.Parse(c.Tokens.Reveal()); err != nil {
		add("HTTP_TOKENS", "%v; create a line: exportbridge token NAME", err)
	} else if c.Tokens != "" && len(named) == 0 {
		add("HTTP_TOKENS", "has no token; create a line: exportbridge token NAME")
	}
	for _, name := range c.AllowedHosts {
		if name == "" || strings.ContainsAny(name, "/:*@ ") {
			add("HTTP_ALLOWED_HOSTS", "%q is not a host name without scheme and port, for example bridge.example.com", name)
		}
	}
	return p.Err()
}
