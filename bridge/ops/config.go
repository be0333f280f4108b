package ops

import (
	"fmt"
	"net"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/ops/door"
)

// Config is the address of the server and its access control.
type Config struct {
	// Addr is host:port, or "off".
	Addr string `env:"HTTP_ADDR" desc:"listen address of web UI, API, metrics and probes, or off"`
	// AdminToken authorizes actions. Without it and Tokens, actions are restricted to
	// localhost.
	AdminToken bridge.Secret `env:"HTTP_ADMIN_TOKEN" secret:"yes" desc:"bearer token for actions over HTTP, 16 characters or more; without tokens, actions are restricted to localhost"`
	// Tokens are lines for door.Parse. With them, reading takes a token too.
	Tokens bridge.Secret `env:"HTTP_TOKENS" secret:"yes" desc:"named tokens, a line each: name, role (read or act) and hash, from exportbridge token; reading requires one too, probes and metrics do not"`
	// TokensFile is where Tokens comes from, empty for none: each request reads it again.
	TokensFile string
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
func DefaultConfig() Config { return Config{Addr: "127.0.0.1:8080"} }

// Off reports whether the server is disabled.
func (c Config) Off() bool { return c.Addr == "off" }

// Local reports whether the server listens on localhost only.
func (c Config) Local() bool { return bridge.LoopbackAddr(c.Addr) }

// Unsafe lists the settings that disable a protection. HTTP_ADDR is one beyond localhost if
// reading takes no token.
func (c Config) Unsafe() []string {
	if c.Off() {
		return nil
	}
	var list []string
	if !c.Local() && c.Tokens == "" {
		list = append(list, "HTTP_ADDR")
	}
	if c.ShowEvents && !c.Local() {
		list = append(list, "HTTP_SHOW_EVENTS")
	}
	return list
}

// Validate returns all problems of the configuration.
func (c Config) Validate() error {
	var p bridge.Problems
	add := func(variable, format string, args ...any) {
		p.Add(bridge.Problem{Variable: variable, Message: variable + ": " + fmt.Sprintf(format, args...)})
	}
	if _, port, err := net.SplitHostPort(c.Addr); !c.Off() && (err != nil || port == "") {
		add("HTTP_ADDR", "%q is not an address, for example 127.0.0.1:8080, or off", c.Addr)
	}
	token := c.AdminToken.Reveal()
	switch {
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		add("HTTP_ADMIN_TOKEN", "must be printable ASCII without spaces, for example from: openssl rand -hex 32")
	case token != "" && len(token) < door.MinToken:
		add("HTTP_ADMIN_TOKEN", "has %d characters and can be guessed; create one of %d or more: openssl rand -hex 32",
			len(token), door.MinToken)
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
