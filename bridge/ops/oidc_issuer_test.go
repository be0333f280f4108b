package ops_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/door"
)

func (s *recordedSite) read(token string) *httptest.ResponseRecorder {
	return s.do(ask{line: "GET /api/v1/status", peer: loginPeer, header: bearer(token)})
}

func (s *recordedSite) want(t *testing.T, token string, code int) {
	t.Helper()
	if w := s.read(token); w.Code != code {
		t.Errorf("%d %s, want %d", w.Code, w.Body, code)
	}
}

// Roles and names are in the claims that the settings name.
func TestOIDCClaims(t *testing.T) {
	t.Parallel()
	issuer, p := servers.StartIssuer(t, false), newPeople(t)
	const role = "https://example.com/role"
	for name, tc := range map[string]struct {
		role, name string
		claims     claims
		want       string // who acted, or the error
	}{
		"a path": {"realm_access.roles", "sub", claims{"realm_access": claims{"roles": []string{"a", "operator"}}}, "http:bridge@10.1.2.3"},
		"a client with dots": {"resource_access.a.example.roles", "sub", claims{"resource_access": claims{
			"a": claims{}, "a.example": claims{"roles": "operator"}}}, "http:bridge@10.1.2.3"},
		"a name with dots":  {role, "sub", claims{role: "admin"}, "http:bridge@10.1.2.3"},
		"scopes":            {"scope", "sub", claims{"scope": "openid operator"}, "http:bridge@10.1.2.3"},
		"an address":        {"roles", "email", claims{"roles": "admin", "email": "ann@example.com", "email_verified": true}, "http:ann@example.com@10.1.2.3"},
		"a subject":         {"roles", "sub", claims{"roles": "admin", "sub": "auth0|5f7c"}, "http:auth0|5f7c@10.1.2.3"},
		"unverified":        {"roles", "email", claims{"roles": "admin", "email": "ann@example.com", "email_verified": false}, "not verified"},
		"a path too short":  {"realm_access", "sub", claims{"realm_access": claims{"roles": "operator"}}, "no role"},
		"a path too long":   {"roles.x", "sub", claims{"roles": "operator"}, "no role"},
		"a name of another": {"roles", "user.name", claims{"roles": "admin", "sub": "ann"}, "the claim user.name"},
	} {
		cfg := oidcConfig(p, issuer)
		cfg.OIDC.RoleClaim, cfg.OIDC.NameClaim = tc.role, tc.name
		s := newRecordedSite(t, cfg)
		w := s.do(ask{line: pausePath, body: anyReason, peer: loginPeer, header: bearer(sign(issuer, nil, tc.claims))})
		text, _ := os.ReadFile(s.audit)
		if len(s.control.orders) == 1 {
			if who := s.control.orders[0].By.Who; who != tc.want || !bytes.Contains(text, []byte(`"auth":"oidc"`)) {
				t.Errorf("%s: by %s, want %s; audit log:\n%s", name, who, tc.want, text)
			}
		} else if !strings.Contains(w.Body.String(), tc.want) || !bytes.Contains(text, []byte(`"outcome":"denied"`)) {
			t.Errorf("%s: %d %s, want %s; audit log:\n%s", name, w.Code, w.Body, tc.want, text)
		}
	}
}

// Without keys of the issuer its tokens get 503, and named tokens work. The log says why, once.
func TestOIDCIssuerAway(t *testing.T) {
	t.Parallel()
	say := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, text)
		}
	}
	keys := func(uri string) func(*servers.Issuer) http.HandlerFunc {
		return func(i *servers.Issuer) http.HandlerFunc {
			return say(200, fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, i.URL(), uri))
		}
	}
	always := func(h http.HandlerFunc) func(*servers.Issuer) http.HandlerFunc {
		return func(*servers.Issuer) http.HandlerFunc { return h }
	}
	symmetric := httptest.NewServer(say(200, `{"keys":[{"kty":"oct","kid":"1","k":"c2VjcmV0"},{"kty":"new"},7]}`))
	t.Cleanup(symmetric.Close)
	for name, tc := range map[string]struct {
		answer func(*servers.Issuer) http.HandlerFunc
		reason string
	}{
		"an error":            {always(say(500, "")), "answers 500"},
		"a page":              {always(say(200, "<html>")), "invalid character"},
		"a long answer":       {always(say(200, `{"issuer":"`+strings.Repeat("x", 2<<20)+`"}`)), "unexpected EOF"},
		"another issuer":      {always(say(200, `{"issuer":"https://evil.example","jwks_uri":"https://evil.example"}`)), "is of the issuer"},
		"keys without TLS":    {keys("http://192.0.2.1/keys"), "no https URL"},
		"keys of a file":      {keys("file:///etc/passwd"), "no https URL"},
		"keys without a host": {keys("https:///keys"), "no https URL"},
		"no public keys":      {keys(symmetric.URL), "no public key"},
		"a redirect": {always(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, symmetric.URL, http.StatusFound)
		}), "answers 302"},
		"a connection that breaks": {always(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "EOF"},
	} {
		issuer, p := servers.StartIssuer(t, false), newPeople(t)
		issuer.Discovered = tc.answer(issuer)
		s := newRecordedSite(t, oidcConfig(p, issuer))
		token := sign(issuer, nil, claims{"roles": "operator"})
		for range 3 {
			wantRefusal(t, s.read(token), 503, "keys of HTTP_OIDC_ISSUER are not known")
		}
		s.want(t, p.reader, 200)
		s.want(t, "not-a-token-of-anybody", 401)
		said := s.log.String()
		if strings.Count(said, "unreadable") != 1 || !strings.Contains(said, tc.reason) || issuer.Asked.Load() != 1 {
			t.Errorf("%s: asked %d times; log:\n%s", name, issuer.Asked.Load(), said)
		}
		if n, _ := deniedLines(t, s.audit); n != 4 {
			t.Errorf("%s: %d lines in the audit log, want 4", name, n)
		}
	}
}

// The server starts while the issuer is away, and says so before anybody sends a token.
func TestOIDCStartWithoutIssuer(t *testing.T) {
	t.Parallel()
	issuer := servers.StartIssuer(t, false)
	issuer.Discovered = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }
	s := serveDoor(t, func(c *ops.Config) { c.OIDC = oidcConfig(people{}, issuer).OIDC })
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(s.log.String(), "HTTP_OIDC_ISSUER unreadable"); {
		if time.Now().After(deadline) {
			t.Fatalf("log:\n%s", s.log)
		}
		<-time.After(10 * time.Millisecond)
	}
	if answer := s.say(t, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"); !strings.Contains(answer, "200") {
		t.Errorf("livez answers %q", answer)
	}
	s.stop()
}

// Tokens with unknown keys, from however many addresses, cause one request to the issuer.
func TestOIDCUnknownKeys(t *testing.T) {
	t.Parallel()
	issuer, p := servers.StartIssuer(t, false), newPeople(t)
	synctest.Test(t, func(t *testing.T) {
		s := newRecordedSite(t, oidcConfig(p, issuer))
		until := time.Now().Add(time.Hour).Unix()
		var all sync.WaitGroup
		for i := range 200 {
			header := claims{"kid": fmt.Sprint("unknown ", i)}
			token := sign(issuer, header, claims{"roles": "operator", "exp": until})
			all.Go(func() {
				peer := fmt.Sprintf("10.2.%d.1:1", i)
				if w := s.do(ask{line: "GET /api/v1/status", peer: peer, header: bearer(token)}); w.Code != 401 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		all.Wait()
		s.want(t, sign(issuer, nil, claims{"roles": "viewer", "exp": until}), 200)
	})
	if issuer.Asked.Load() != 1 {
		t.Errorf("the issuer was asked %d times", issuer.Asked.Load())
	}
}

// A private authority signs the issuer's certificate; its file is read again.
func TestOIDCAuthority(t *testing.T) {
	t.Parallel()
	issuer, p := servers.StartIssuer(t, true), newPeople(t)
	token := sign(issuer, nil, claims{"roles": "viewer"})
	path := filepath.Join(t.TempDir(), "ca")
	must.Do(t, os.WriteFile(path, []byte(issuer.CA()), 0o600))
	for name, tc := range map[string]struct {
		ca, file string
		code     int
	}{"trusted": {issuer.CA(), "", 200}, "by its file": {"old", path, 200}, "unknown": {"", "", 503}} {
		cfg := oidcConfig(p, issuer)
		cfg.OIDC.TLSCA, cfg.OIDC.TLSCAFile = tc.ca, tc.file
		s := newRecordedSite(t, cfg)
		if w := s.read(token); w.Code != tc.code || tc.code == 503 && !strings.Contains(s.log.String(), "certificate") {
			t.Errorf("%s: %d %s, want %d; log:\n%s", name, w.Code, w.Body, tc.code, s.log)
		}
	}
}

// Ten wrong tokens of an issuer count as guesses.
func TestOIDCGuesses(t *testing.T) {
	t.Parallel()
	issuer, p := servers.StartIssuer(t, false), newPeople(t)
	synctest.Test(t, func(t *testing.T) {
		s := newRecordedSite(t, oidcConfig(p, issuer))
		until := time.Now().Add(time.Hour).Unix()
		wrong := sign(issuer, nil, claims{"roles": "viewer", "aud": "another", "exp": until})
		for range 10 {
			s.want(t, wrong, 401)
		}
		s.want(t, wrong, 429)
		s.want(t, sign(issuer, nil, claims{"roles": "viewer", "exp": until}), 429)
	})
}

// A feed ends within the next ping after its token has expired.
func TestFeedOfAnExpiredToken(t *testing.T) {
	t.Parallel()
	issuer, p := servers.StartIssuer(t, false), newPeople(t)
	synctest.Test(t, func(t *testing.T) {
		s := newRecordedSite(t, oidcConfig(p, issuer))
		end := time.Now().Add(2 * time.Minute)
		ended, leave := openFeed(t, s.site, sign(issuer, nil, claims{"roles": "viewer", "exp": end.Unix()}))
		select {
		case at := <-ended:
			if late := at.Sub(end); late < 0 || late > time.Minute+15*time.Second {
				t.Errorf("the feed has ended %s after the token", late)
			}
		case <-time.After(time.Hour):
			leave()
			<-ended
			t.Error("the feed has ended only because its client left")
		}
	})
}

func TestOIDCConfig(t *testing.T) {
	t.Parallel()
	base := ops.Config{Addr: ":8080", OIDC: door.DefaultOIDC()}
	if err := base.Validate(); err != nil {
		t.Error(err)
	}
	base.OIDC.Issuer, base.OIDC.Audience, base.OIDC.ReadRoles = "https://login.example.com/realms/a", "bridge", []string{"viewer"}
	if err := base.Validate(); err != nil || base.Unsafe() != nil {
		t.Errorf("%v, unsafe %q", err, base.Unsafe())
	}
	for _, tc := range []struct {
		want   string
		change func(*door.OIDC)
	}{
		{"", func(c *door.OIDC) { c.Issuer = "http://127.0.0.1:1" }},
		{"HTTP_OIDC_ISSUER is not set", func(c *door.OIDC) { c.Issuer = "" }},
		{"HTTP_OIDC_ISSUER must be an https URL", func(c *door.OIDC) { c.Issuer = "http://login.example.com" }},
		{"HTTP_OIDC_ISSUER must be an https URL", func(c *door.OIDC) { c.Issuer = "login.example.com" }},
		{"HTTP_OIDC_ISSUER must be an https URL", func(c *door.OIDC) { c.Issuer = "https://a:b@login.example.com" }},
		{"HTTP_OIDC_ISSUER must be an https URL", func(c *door.OIDC) { c.Issuer = "https://login.example.com?a=b" }},
		{"HTTP_OIDC_AUDIENCE is required", func(c *door.OIDC) { c.Audience = "" }},
		{"HTTP_OIDC_ROLE_CLAIM is required", func(c *door.OIDC) { c.RoleClaim = "" }},
		{"HTTP_OIDC_NAME_CLAIM is required", func(c *door.OIDC) { c.NameClaim = "" }},
		{"HTTP_OIDC_READ_ROLES or HTTP_OIDC_ACT_ROLES is required", func(c *door.OIDC) { c.ReadRoles = nil }},
		{"HTTP_OIDC_READ_ROLES and HTTP_OIDC_ACT_ROLES must have no empty", func(c *door.OIDC) { c.ActRoles = []string{""} }},
		{"HTTP_OIDC_TLS_CA", func(c *door.OIDC) { c.TLSCA = "x" }},
	} {
		cfg := base
		tc.change(&cfg.OIDC)
		if err := cfg.Validate(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	alone := ops.Config{Addr: ":8080", OIDC: door.OIDC{RoleClaim: "groups"}}
	if alone.Validate() == nil {
		t.Error("a claim without an issuer is ignored")
	}
}
