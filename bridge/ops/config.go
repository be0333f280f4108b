package ops

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"exportbridge/bridge"
)

// Config is where the server listens, and who may do what.
type Config struct {
	// Addr is host:port, or "off".
	Addr string `env:"HTTP_ADDR" desc:"address of the page, metrics and probes, or off"`
	// AdminToken is what actions must carry. Without one they are taken only
	// from this machine.
	AdminToken bridge.Secret `env:"HTTP_ADMIN_TOKEN" secret:"yes" desc:"bearer token of actions over HTTP; without one they are only taken from this machine"`
	// AllowedHosts are the names by which the server may be called, besides
	// localhost, IP addresses and the host of Addr.
	AllowedHosts []string `env:"HTTP_ALLOWED_HOSTS" desc:"names by which the server may be called, besides localhost and IP addresses" example:"bridge.example.com"`
	// ShowEvents lets the values of events out, to everybody who reaches Addr.
	ShowEvents bool `env:"HTTP_SHOW_EVENTS" desc:"show the payload of sampled events, to everybody who reaches HTTP_ADDR"`
}

// DefaultConfig returns the defaults of all settings.
func DefaultConfig() Config { return Config{Addr: "127.0.0.1:8080"} }

// Off reports whether no server is wanted.
func (c Config) Off() bool { return c.Addr == "off" }

// Local reports whether only this machine can reach the server.
func (c Config) Local() bool {
	host, _, err := net.SplitHostPort(c.Addr)
	ip, ipErr := netip.ParseAddr(host)
	return err == nil && (host == localhost || ipErr == nil && ip.IsLoopback())
}

// Validate reports everything that is wrong with the configuration.
func (c Config) Validate() error {
	var p bridge.Problems
	if _, port, err := net.SplitHostPort(c.Addr); !c.Off() && (err != nil || port == "") {
		p.Add(bridge.Problem{Variable: "HTTP_ADDR", Message: fmt.Sprintf("HTTP_ADDR: %q is not an address, for example 127.0.0.1:8080, or off", c.Addr)})
	}
	if token := c.AdminToken.Reveal(); strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.Add(bridge.Problem{Variable: "HTTP_ADMIN_TOKEN", Message: "HTTP_ADMIN_TOKEN: a token is one word of ASCII characters, for example from: openssl rand -hex 32"})
	}
	for _, name := range c.AllowedHosts {
		if name == "" || strings.ContainsAny(name, "/:*@ ") {
			p.Add(bridge.Problem{Variable: "HTTP_ALLOWED_HOSTS", Message: fmt.Sprintf("HTTP_ALLOWED_HOSTS: %q is not the name of a host, for example bridge.example.com, without scheme and port", name)})
		}
	}
	return p.Err()
}
