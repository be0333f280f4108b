package ops

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

const localhost = "localhost"

// guard authorizes requests.
type guard struct {
	token *[sha256.Size]byte // the hash of the token; nil without one
	short bool               // the token can be guessed: see minToken
	names []string           // HTTP_ALLOWED_HOSTS, in lower case
	own   string             // the host of HTTP_ADDR, as healthcheck names it
	guesses
}

func newGuard(cfg Config) *guard {
	g := new(guard)
	if token := cfg.AdminToken.Reveal(); token != "" {
		hash := sha256.Sum256([]byte(token))
		g.token, g.short = &hash, len(token) < minToken
	}
	for _, name := range cfg.AllowedHosts {
		g.names = append(g.names, strings.ToLower(name))
	}
	if host, _, err := net.SplitHostPort(cfg.Addr); err == nil {
		g.own = strings.ToLower(host)
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
	if _, err := netip.ParseAddr(host); err == nil || host == localhost || strings.HasSuffix(host, "."+localhost) {
		return true
	}
	return host != "" && host == g.own || slices.Contains(g.names, host)
}

// mayAct returns nil if the caller may execute actions.
func (g *guard) mayAct(r *http.Request) error {
	switch {
	case g.token == nil && isLocal(r):
		return nil
	case g.token == nil:
		from := callerOf(r)
		if by := proxied(r); by != "" {
			from += ", by a proxy: it has " + by
		}
		return errorf(http.StatusForbidden, "set HTTP_ADMIN_TOKEN_FILE, or send the request from localhost",
			"actions are restricted to localhost without a token; the request is from %s", from)
	}
	authorization := r.Header.Get("Authorization")
	if authorization == "" {
		return unauthorized("the admin token is required")
	}
	scheme, given, _ := strings.Cut(authorization, " ")
	// A comparison in constant time requires equal lengths.
	hash := sha256.Sum256([]byte(strings.TrimSpace(given)))
	right := strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(hash[:], g.token[:]) == 1
	allowed := right && !g.short || g.allow(peerOf(r), time.Now(), right)
	switch {
	case allowed && right:
		return nil
	case allowed:
		return unauthorized("the admin token is wrong")
	case g.short: // the answer does not reveal whether the token is right
		hint := fmt.Sprintf("retry in a second; set a token of %d characters or more, which is accepted at once", minToken)
		return errorf(http.StatusTooManyRequests, hint, "too many wrong tokens from %s", callerOf(r))
	}
	return errorf(http.StatusTooManyRequests, "send the token in HTTP_ADMIN_TOKEN_FILE, which is accepted at once",
		"the admin token is wrong; too many wrong tokens from %s", callerOf(r))
}

func unauthorized(text string) error {
	return errorf(http.StatusUnauthorized, "Authorization: Bearer <value of HTTP_ADMIN_TOKEN>", "%s", text)
}

// direct are the headers of browsers and HTTP clients, besides those that begin with Sec-.
// A request with another header may come through a proxy, sidecar or content delivery
// network: it looks local, but may come from anywhere.
var direct = []string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Connection",
	"Content-Encoding", "Content-Length", "Content-Type", "Cookie", "Dnt", "Expect", "If-Modified-Since",
	"If-None-Match", "Keep-Alive", "Last-Event-Id", "Origin", "Pragma", "Priority", "Range", "Referer", "Te",
	"Upgrade-Insecure-Requests", "User-Agent",
}

// isLocal reports whether the caller is on this machine and used no proxy.
func isLocal(r *http.Request) bool { return peerOf(r).IsLoopback() && proxied(r) == "" }

// proxied returns the sign that a request may come through a proxy, "" for none: a header,
// or HTTP/1.0, which clients do not use.
func proxied(r *http.Request) string {
	for name := range r.Header {
		if !strings.HasPrefix(name, "Sec-") && !slices.Contains(direct, name) {
			return "the header " + shorten(name)
		}
	}
	if !r.ProtoAtLeast(1, 1) {
		return r.Proto
	}
	return ""
}

// checkSite rejects a request of another site's web page. That page could not read the
// answer, but could exhaust connections. It may link to the web UI, the metrics and the
// probes. Files of the web UI are exempt over plain HTTP.
func (g *guard) checkSite(r *http.Request, file bool) error {
	origin, hint := r.Header.Get("Origin"), "use the web UI of this server, or curl"
	site := r.Header.Get("Sec-Fetch-Site")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	linked := reads && !strings.HasPrefix(r.URL.Path, apiRoot) && !strings.HasPrefix(r.URL.Path, debugRoot)
	switch {
	case site == "none" || site == "same-origin" || site == "" && origin == "":
		return nil
	case linked && site != "" && origin == "":
		return nil
	case reads && file && site == "": // scripts have an Origin, which proxies keep
		return nil
	case site == "": // a browser over plain HTTP
		u, err := url.Parse(origin)
		if err != nil || u.Hostname() == "" {
			break
		}
		// A proxy may change Host, but not Origin.
		if name := strings.ToLower(u.Hostname()); u.Host == r.Host || slices.Contains(g.names, name) {
			return nil
		}
		hint = fmt.Sprintf("if this is the web UI behind a proxy, add %s to HTTP_ALLOWED_HOSTS", shorten(u.Hostname()))
	}
	text := "cross-site request"
	if origin != "" {
		text += " from " + shorten(origin)
	}
	return errorf(http.StatusForbidden, hint, "%s", text)
}

// peerOf is the address of the caller, the zero Addr if unknown.
func peerOf(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero AddrPort on errors
	return peer.Addr().Unmap()
}

// callerOf is the address of the caller as text.
func callerOf(r *http.Request) string {
	if peer := peerOf(r); peer.IsValid() {
		return peer.String()
	}
	return "unknown"
}
