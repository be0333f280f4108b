package ops_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops"
)

// TestProxyUser attacks a server that trusts a proxy to name its users.
func TestProxyUser(t *testing.T) {
	t.Parallel()
	const (
		trusted, elsewhere = "10.9.0.7:4000", "10.8.0.7:4000"
		status, user       = "GET /api/v1/status", "X-Remote-User"
		required, unnamed  = "a token is required", "X-Remote-User from the proxy"
	)
	send := func(line, peer string, pairs []string) ask {
		a := ask{line: line, body: anyReason, peer: peer, header: make(map[string]string)}
		for i := 0; i < len(pairs); i += 2 {
			a.header[pairs[i]] = pairs[i+1]
		}
		return a
	}
	read := func(peer string, headers ...string) ask { return send(status, peer, headers) }
	act := func(peer string, headers ...string) ask { return send(pausePath, peer, headers) }
	rebound := read(trusted, user, "carol")
	rebound.host = "evil.example"
	p := newPeople(t)
	for _, tc := range []struct {
		name string
		role string
		ask  ask
		code int
		text string
	}{
		{"read", "read", read(trusted, user, "carol"), 200, ""},
		{"act", "act", act(trusted, user, "carol"), 200, ""},
		{"act with a token through the proxy", "read",
			act(trusted, user, "carol", "Authorization", "Bearer "+p.actor), 200, ""},
		{"a token from elsewhere", "read", read(elsewhere, "Authorization", "Bearer "+p.reader), 200, ""},
		{"Basic between client and proxy", "read", read(trusted, user, "carol", "Authorization", "Basic eDp5"), 200, ""},

		{"1 the header from elsewhere", "act", read(elsewhere, user, "carol"), 401, required},
		{"2 the header from this machine", "act", act("127.0.0.1:1", user, "carol"), 401, required},
		{"3 X-Forwarded-For names the proxy", "act",
			read(elsewhere, user, "carol", "X-Forwarded-For", "10.9.0.7"), 401, required},
		{"4 Forwarded names the proxy", "act", read(elsewhere, user, "carol", "Forwarded", "for=10.9.0.7"), 401, required},
		{"5 X-Real-IP names the proxy", "act", read(elsewhere, user, "carol", "X-Real-IP", "10.9.0.7"), 401, required},
		{"6 an address next to the network", "act", read("10.9.1.0:1", user, "carol"), 401, required},
		{"7 no address", "act", read("@", user, "carol"), 401, required},
		{"8 another header", "act", read(trusted, "X-Forwarded-User", "carol"), 401, required},
		{"9 underscores", "act", read(trusted, "X_Remote_User", "carol"), 401, required},
		{"10 no name", "act", read(trusted, user, ""), 403, unnamed},
		{"11 two names in one", "act", read(trusted, user, "carol, alice"), 403, unnamed},
		{"12 a name of spaces", "act", read(trusted, user, "  "), 403, unnamed},
		{"13 a name with a line", "act", read(trusted, user, "carol\nwho=alice"), 403, unnamed},
		{"14 a long name", "act", read(trusted, user, strings.Repeat("c", 129)), 403, unnamed},
		{"15 other letters", "act", read(trusted, user, "cаrol"), 403, unnamed},
		{"16 a role that only reads", "read", act(trusted, user, "carol"), 403, "carol has the role read"},
		{"17 a role in a header", "read",
			act(trusted, user, "carol", "X-Remote-Role", "act", "Http-Proxy-Role", "act"), 403, "carol has the role read"},
		{"18 a wrong token and a user", "act", act(trusted, user, "carol", "Authorization", "Bearer wrong"), 401, "is wrong"},
		{"19 a page of another site, with the cookie of the proxy", "act",
			act(trusted, user, "carol", "Origin", "https://evil.example"), 403, "cross-site"},
		{"20 a form of another site", "act", act(trusted, user, "carol", "Content-Type", "text/plain"), 415, "must be JSON"},
		{"21 a name of this machine by DNS", "act", rebound, 421, "unknown Host name"},
		{"22 profiles through the proxy", "act", send("GET /debug/pprof/cmdline", trusted, []string{user, "carol"}), 404, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := p.config()
			cfg.ProxyUserHeader, cfg.TrustedProxies, cfg.ProxyRole = user, []string{"10.9.0.0/24", "fd00::/64"}, tc.role
			must.Do(t, cfg.Validate())
			s := newSite(cfg)
			w := s.do(tc.ask)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.text) {
				t.Errorf("%d %s, want %d with %q", w.Code, w.Body, tc.code, tc.text)
			}
			if acted := len(s.control.orders) > 0; acted != (tc.code == 200 && tc.ask.line == pausePath) {
				t.Errorf("acted: %v", acted)
			}
		})
	}
}

func fromPeer(path, peer string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
	r.RemoteAddr = peer
	return r
}

// The header is twice in the request: which one the proxy set is unknown.
func TestTwoProxyUsers(t *testing.T) {
	t.Parallel()
	cfg := ops.Config{Addr: ":8080", ProxyUserHeader: "x-remote-user", ProxyRole: "act"}
	cfg.TrustedProxies = []string{"127.0.0.1"}
	var names []string
	s := newSite(cfg, func(parts *ops.Parts) {
		parts.Page = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			names = r.Header.Values("X-Remote-User")
		})
	})
	r := fromPeer("/api/v1/status", "127.0.0.1:1")
	r.Header["X-Remote-User"] = []string{"carol", "alice"}
	wantRefusal(t, s.serve(r), 403, "sends x-remote-user 2 times")

	for peer, want := range map[string]int{"127.0.0.1:1": 1, "127.0.0.2:1": 0} {
		r := fromPeer("/", peer)
		r.Header.Set("X-Remote-User", "carol")
		if s.serve(r); len(names) != want {
			t.Errorf("from %s the handlers get %q", peer, names)
		}
	}
}

func TestProxyConfig(t *testing.T) {
	t.Parallel()
	base := ops.Config{Addr: ":8080", ProxyUserHeader: "X-User", TrustedProxies: []string{"10.0.0.1"}, ProxyRole: "read"}
	if err := base.Validate(); err != nil {
		t.Error(err)
	}
	if got := base.Unsafe(); got != nil {
		t.Errorf("unsafe %q", got)
	}
	for want, change := range map[string]func(*ops.Config){
		"requires HTTP_TRUSTED_PROXIES":                  func(c *ops.Config) { c.TrustedProxies = nil },
		"requires HTTP_PROXY_USER_HEADER":                func(c *ops.Config) { c.ProxyUserHeader = "" },
		`"User-Agent" is not a header that only a proxy`: func(c *ops.Config) { c.ProxyUserHeader = "User-Agent" },
		`"Host" is not`:                                  func(c *ops.Config) { c.ProxyUserHeader = "Host" },
		`"a b" is not`:                                   func(c *ops.Config) { c.ProxyUserHeader = "a b" },
		`"sec-user" is not`:                              func(c *ops.Config) { c.ProxyUserHeader = "sec-user" },
		`"0.0.0.0/0" trusts every address`:               func(c *ops.Config) { c.TrustedProxies = []string{"0.0.0.0/0"} },
		`"::/0" trusts every address`:                    func(c *ops.Config) { c.TrustedProxies[0] = "::/0" },
		`"proxy" is not an address`:                      func(c *ops.Config) { c.TrustedProxies = []string{"proxy"} },
		`"fe80::1%eth0" is not an address`:               func(c *ops.Config) { c.TrustedProxies = []string{"fe80::1%eth0"} },
		`write the IPv4 network`:                         func(c *ops.Config) { c.TrustedProxies[0] = "::ffff:10.0.0.0/104" },
		`"admin" is not read or act`:                     func(c *ops.Config) { c.ProxyRole = "admin" },
	} {
		cfg := base
		cfg.TrustedProxies = slices.Clone(base.TrustedProxies)
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
