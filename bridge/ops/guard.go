package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/ops/door"
)

const localhost = "localhost"

// guard authorizes requests.
type guard struct {
	tokens door.Tokens // those that do not change while the process runs
	file   file        // of the other named tokens
	admin  file        // of HTTP_ADMIN_TOKEN, unless it is in tokens
	issuer *door.Issuer
	locked bool     // actions require a token, even from this machine
	login  bool     // reading requires one too
	names  []string // HTTP_ALLOWED_HOSTS, in lower case
	own    []string // the host of the address, as healthcheck names it
	proxy  door.Proxy
	guesses
}

// administrator is the owner of HTTP_ADMIN_TOKEN.
var administrator = door.Identity{Name: "admin", Role: door.Act, By: door.ByToken}

func newGuard(cfg Config, log *slog.Logger, issuer *door.Issuer) *guard {
	g := &guard{
		tokens: make(door.Tokens), proxy: cfg.proxy(), issuer: issuer,
		file:  file{path: cfg.TokensFile, setting: "HTTP_TOKENS_FILE", log: log},
		admin: file{path: cfg.AdminTokenFile, setting: "HTTP_ADMIN_TOKEN_FILE", log: log},
		login: cfg.login(),
	}
	g.locked = g.login || cfg.AdminToken != ""
	if named, err := door.Parse(cfg.Tokens.Reveal()); err == nil && g.file.path == "" { // Validate has returned the error
		g.tokens = named
	}
	if token := cfg.AdminToken.Reveal(); token != "" && g.admin.path == "" {
		g.tokens.Add(token, administrator)
	}
	for _, name := range cfg.AllowedHosts {
		g.names = append(g.names, strings.ToLower(name))
	}
	g.owns(cfg.Addr)
	return g
}

// owns accepts the host of an address as Host name.
func (g *guard) owns(addr string) {
	if host, _, err := net.SplitHostPort(addr); err == nil && host != "" {
		g.own = append(g.own, strings.ToLower(host))
	}
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
	return slices.Contains(g.own, host) || slices.Contains(g.names, host)
}

// mayRead returns nil if the caller may read.
func (g *guard) mayRead(r *http.Request) error {
	if !g.login {
		return nil
	}
	_, err := g.identify(r)
	return err
}

// mayAct returns the caller if he may execute actions.
func (g *guard) mayAct(r *http.Request) (door.Identity, error) {
	who, err := g.identify(r)
	if err == nil && who.Role != door.Act {
		err = &Error{
			Status: http.StatusForbidden, Hint: "use a token with the role " + string(door.Act), who: who,
			Err: fmt.Errorf("%s has the role %s, which may not act", who.Name, who.Role),
		}
	}
	return who, err
}

// identify returns who the caller is.
func (g *guard) identify(r *http.Request) (door.Identity, error) {
	switch {
	case !g.locked && isLocal(r):
		return door.Identity{Role: door.Act, By: door.ByLocal}, nil
	case !g.locked:
		from := callerOf(r)
		if by := proxied(r); by != "" {
			from += ", by a proxy: it has " + by
		}
		return door.Identity{}, errorf(http.StatusForbidden, "set HTTP_ADMIN_TOKEN_FILE, or send the request from localhost",
			"actions are restricted to localhost without a token; the request is from %s", from)
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	bearer := strings.EqualFold(scheme, "Bearer")
	if !bearer { // the scheme is none, or that between the client and the proxy
		who, err := g.proxy.User(r.Header)
		if err != nil {
			return who, errorf(http.StatusForbidden, "correct the name that the proxy sends", "%w", err)
		} else if who.Name != "" {
			return who, nil
		}
	}
	if scheme == "" {
		return door.Identity{}, unauthorized("a token is required")
	}
	var who door.Identity
	var err error
	if bearer {
		who, err = g.find(r.Context(), strings.TrimSpace(given))
	}
	switch {
	case err != nil && failure(err).Status >= http.StatusInternalServerError: // it is unknown whether the token is valid
		return door.Identity{}, err
	case g.mustWait(peerOf(r), nameOf(who, err), time.Now()):
		return door.Identity{}, errorf(http.StatusTooManyRequests, "retry after a second",
			"too many wrong tokens from %s", callerOf(r))
	case err != nil:
		return door.Identity{}, err
	case who.Name == "":
		return door.Identity{}, unauthorized("the token is wrong")
	}
	return who, nil
}

// nameOf returns the name of a token's owner, whether or not he is refused.
func nameOf(who door.Identity, err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.who.Name
	}
	return who.Name
}

// find returns the owner of a token, with an empty name for a wrong one. If a file cannot be
// read, no token in it is accepted: a removed line must not stay valid.
func (g *guard) find(ctx context.Context, token string) (door.Identity, error) {
	if who, ok := g.tokens.Find(token); ok {
		return who, nil
	}
	alone, wrong := g.admin.tokens(func(text string) (door.Tokens, error) {
		tokens := make(door.Tokens)
		tokens.Add(text, administrator)
		return tokens, checkAdminToken(text)
	})
	named, err := g.file.tokens(door.Parse)
	for _, tokens := range []door.Tokens{alone, named} {
		if who, ok := tokens.Find(token); ok {
			return who, nil
		}
	}
	if who, err := g.issuer.Identify(ctx, token); err != nil || who.Name != "" {
		return who, unidentified(err)
	}
	if err = errors.Join(err, wrong); err != nil {
		return door.Identity{}, unavailable(errors.New("the tokens cannot be read"))
	}
	return door.Identity{}, nil
}

// unidentified adds the status to an error of a door.Issuer.
func unidentified(err error) error {
	if errors.Is(err, door.ErrNoKeys) {
		return unavailable(err)
	}
	refused, ok := errors.AsType[*door.RefusedError](err)
	if !ok {
		return err
	}
	status := http.StatusForbidden
	if refused.Who.Name == "" {
		status = http.StatusUnauthorized
	}
	return &Error{Status: status, Err: err, Hint: refused.Hint, who: refused.Who}
}

// unavailable is the refusal of a token that may be right.
func unavailable(err error) error {
	return &Error{Status: http.StatusServiceUnavailable, Hint: "check the log of the process", Err: err, refused: true}
}

// file is a file of tokens. It logs when the file becomes unreadable, and when it is readable
// again.
type file struct {
	path    string // empty for none
	setting string
	log     *slog.Logger

	mu      sync.Mutex // guards trouble
	trouble string     // the last reading's error, empty for none
}

// tokens reads the file again, without a file no tokens.
func (f *file) tokens(parse func(string) (door.Tokens, error)) (door.Tokens, error) {
	if f.path == "" {
		return nil, nil
	}
	text, err := bridge.ReadSecretFile(f.path)
	var tokens door.Tokens
	switch {
	case err != nil:
	case text == "": // it may be being written
		err = errors.New("it is empty")
	default:
		tokens, err = parse(text)
	}
	trouble := ""
	if err != nil {
		tokens, trouble = nil, err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch trouble {
	case f.trouble:
	case "":
		f.log.Info("tokens readable again", "setting", f.setting)
	default:
		f.log.Error("tokens unreadable", "setting", f.setting, "error", trouble,
			"hint", "correct the file; it is read again")
	}
	f.trouble = trouble
	return tokens, err
}

func unauthorized(text string) error {
	return errorf(http.StatusUnauthorized, "Authorization: Bearer <token>", "%s", text)
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
