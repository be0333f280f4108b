package ops

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

const localhost = "localhost"

// guard authorizes requests.
type guard struct {
	token *[sha256.Size]byte // of the hash of the token; nil where none is set
	hosts []string           // in lower case
}

func newGuard(cfg Config) guard {
	var g guard
	if token := cfg.AdminToken.Reveal(); token != "" {
		hash := sha256.Sum256([]byte(token))
		g.token = &hash
	}
	for _, name := range cfg.AllowedHosts {
		g.hosts = append(g.hosts, strings.ToLower(name))
	}
	if host, _, err := net.SplitHostPort(cfg.Addr); err == nil && host != "" {
		g.hosts = append(g.hosts, strings.ToLower(host)) // healthcheck asks there
	}
	return g
}

// knowsHost reports whether the Host header is accepted. Rejecting unknown names
// prevents DNS rebinding.
func (g *guard) knowsHost(header string) bool {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == localhost || strings.HasSuffix(host, "."+localhost) || slices.Contains(g.hosts, host) {
		return true
	}
	_, err = netip.ParseAddr(host)
	return err == nil
}

// mayAct returns why the caller may not execute actions, or nil.
func (g *guard) mayAct(r *http.Request) error {
	switch {
	case g.token == nil && isLocal(r):
		return nil
	case g.token == nil:
		return &Error{
			Status: http.StatusForbidden, Err: fmt.Errorf("actions are restricted to localhost without a token; the request is from %s", callerOf(r)),
			Hint: "set HTTP_ADMIN_TOKEN_FILE, or send the request from there",
		}
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	// Hashes have equal lengths, which constant time requires.
	hash := sha256.Sum256([]byte(strings.TrimSpace(given)))
	if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(hash[:], g.token[:]) == 1 {
		return nil
	}
	text := "the admin token is required"
	if scheme != "" {
		text = "the admin token is wrong"
	}
	return &Error{Status: http.StatusUnauthorized, Err: errors.New(text), Hint: "Authorization: Bearer <value of HTTP_ADMIN_TOKEN>"}
}

// forwarded are the prefixes of headers that proxies add. Proxied requests look local
// but may come from anywhere.
var forwarded = []string{"Forwarded", "X-Forwarded-", "X-Real-Ip", "X-Envoy-", "Via"}

// isLocal reports whether the caller is on this machine.
func isLocal(r *http.Request) bool {
	for name := range r.Header {
		if slices.ContainsFunc(forwarded, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

// fromOtherSite reports whether a web page of another site sent a request to the API
// or the profiler. It could not read the answer, but could exhaust connections.
func fromOtherSite(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, apiRoot) && !strings.HasPrefix(r.URL.Path, debugRoot) {
		return false
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// callerOf is the address of the caller, without its port.
func callerOf(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	return peer.Addr().Unmap().String()
}
