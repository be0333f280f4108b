package exportapi_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

func TestAuthSchemes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		vars   map[string]string
		header string // of Authorization
		key    string // of X-Api-Key
	}{
		"key": {nil, "", testKey},
		"bearer": {map[string]string{"EXPORT_KEY_HEADER": "Authorization", "EXPORT_KEY_PREFIX": "SSWS"}, "SSWS " + testKey,
			""},
		"plain": {map[string]string{"EXPORT_KEY_HEADER": "authorization", "EXPORT_KEY_PREFIX": "none"}, testKey, ""},
		"other": {map[string]string{"EXPORT_KEY_HEADER": "authorization"}, "Bearer " + testKey, ""},
		"own": {map[string]string{"EXPORT_KEY_HEADER": "Authorization", "EXPORT_API_KEY": "Token t0ps3cret"},
			"Token t0ps3cret", ""},
		"prefix":       {map[string]string{"EXPORT_KEY_PREFIX": "Token"}, "", "Token " + testKey},
		"unset":        {map[string]string{"EXPORT_KEY_PREFIX": "none"}, "", testKey},
		"no parameter": {map[string]string{"EXPORT_KEY_QUERY": "none"}, "", testKey},
		"no parameter, basic": {map[string]string{"EXPORT_KEY_QUERY": "none", "EXPORT_AUTH": "basic", "EXPORT_AUTH_USER": "ann",
			"EXPORT_API_KEY": "pässwörd"}, "Basic YW5uOnDDpHNzd8O2cmQ=", ""},
		"none": {map[string]string{"EXPORT_AUTH": "none", "EXPORT_API_KEY": ""}, "", ""},
		"basic": {map[string]string{"EXPORT_AUTH": "basic", "EXPORT_AUTH_USER": "ann", "EXPORT_API_KEY": "pässwörd"},
			"Basic YW5uOnDDpHNzd8O2cmQ=", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen recorder
			c := serve(t, func(w http.ResponseWriter, r *http.Request) { seen.saw(r); answer(emptyPage)(w, r) }, tc.vars)
			mustFetch(t, c, bridge.Position{})
			h := seen.all()[0].Header
			if h.Get("Authorization") != tc.header || h.Get("X-Api-Key") != tc.key {
				t.Errorf("sent Authorization %q, X-Api-Key %q; want %q, %q", h.Get("Authorization"), h.Get("X-Api-Key"),
					tc.header, tc.key)
			}
		})
	}
}

func TestAuthProblems(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		vars map[string]string
		want []string
	}{
		"no key": {map[string]string{"EXPORT_API_KEY": ""},
			[]string{"EXPORT_API_KEY is not set", "EXPORT_AUTH=none"}},
		"key for nothing": {map[string]string{"EXPORT_AUTH": "none"},
			[]string{"EXPORT_API_KEY is set, but EXPORT_AUTH=none"}},
		"unknown":        {map[string]string{"EXPORT_AUTH": "digest"}, []string{`EXPORT_AUTH "digest" is not one of`}},
		"basic, no user": {map[string]string{"EXPORT_AUTH": "basic"}, []string{"EXPORT_AUTH_USER"}},
		"basic, colon": {map[string]string{"EXPORT_AUTH": "basic", "EXPORT_AUTH_USER": "a:b"},
			[]string{"EXPORT_AUTH_USER"}},
		"user for nothing": {map[string]string{"EXPORT_AUTH_USER": "ann"},
			[]string{"EXPORT_AUTH_USER is set without EXPORT_AUTH=basic"}},
		"oauth2, all missing": {
			map[string]string{"EXPORT_AUTH": "oauth2", "EXPORT_OAUTH2_PARAMS": "audience"},
			[]string{"EXPORT_OAUTH2_TOKEN_URL is not set", "EXPORT_OAUTH2_CLIENT_ID", "EXPORT_OAUTH2_PARAMS"},
		},
		"oauth2 in clear": {
			map[string]string{"EXPORT_AUTH": "oauth2", "EXPORT_OAUTH2_TOKEN_URL": "http://login.example.com/t",
				"EXPORT_OAUTH2_CLIENT_ID": "a"},
			[]string{"EXPORT_OAUTH2_TOKEN_URL is plain HTTP to a remote host"},
		},
		"oauth2 at the metadata server": {
			map[string]string{"EXPORT_AUTH": "oauth2", "EXPORT_OAUTH2_TOKEN_URL": "https://169.254.169.254/t",
				"EXPORT_OAUTH2_CLIENT_ID": "a"},
			[]string{"EXPORT_OAUTH2_TOKEN_URL is a link-local address"},
		},
		"oauth2 for nothing": {map[string]string{"EXPORT_OAUTH2_CLIENT_ID": "a"}, []string{"set without EXPORT_AUTH=oauth2"}},
		"half a pair": {map[string]string{"EXPORT_TLS_CERT": "x"},
			[]string{"EXPORT_TLS_KEY is not set, but EXPORT_TLS_CERT is"}},
	} {
		cfg := config(t, tc.vars)
		err := cfg.Validate()
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", name, err, want)
			}
		}
		wantClean(t, err)
	}
}

// tokens is a server that issues tokens to the client with the secret s3cret. It returns a
// page to whoever has the last token.
type tokens struct {
	issued, pages, refused atomic.Int64
	life                   string // expires_in
	answer                 func(w http.ResponseWriter, n int64) bool
	form                   atomic.Value
}

func (s *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/token" {
		if r.Header.Get("Authorization") != fmt.Sprintf("Bearer t0ken-%d", s.issued.Load()) {
			s.refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.pages.Add(1)
		_, _ = w.Write([]byte(emptyPage))
		return
	}
	_ = r.ParseForm()
	s.form.Store(r.Form)
	n := s.issued.Add(1)
	if s.answer != nil && s.answer(w, n) {
		return
	}
	if id, secret, _ := r.BasicAuth(); r.Method != http.MethodPost || id != "client" || secret != "s3cret" ||
		r.Form.Get("grant_type") != "client_credentials" {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":"invalid_client","error_description":"s3cret is wrong"}`))
		return
	}
	_, _ = fmt.Fprintf(w, `{"access_token":"t0ken-%d","token_type":"Bearer","expires_in":%s}`, n, s.life)
}

func oauth2Vars(url string) map[string]string {
	return map[string]string{
		"EXPORT_URL": url, "EXPORT_AUTH": "oauth2", "EXPORT_API_KEY": "s3cret", "EXPORT_OAUTH2_TOKEN_URL": url + "/token",
		"EXPORT_OAUTH2_CLIENT_ID": "client", "EXPORT_OAUTH2_SCOPES": "read:logs,read:more",
		"EXPORT_OAUTH2_PARAMS": "audience=https://api.example.com/",
	}
}

// TestOAuth2 uses a token until a 401. Then the client requests one more token, once.
func TestOAuth2(t *testing.T) {
	t.Parallel()
	api := &tokens{life: "3600"}
	server := listen(t, api)
	c := connect(t, config(t, oauth2Vars(server.URL)))
	fetch := func() error {
		_, err := fetchAll(t, c, bridge.Position{})
		return err
	}
	for range 3 {
		must.Do(t, fetch())
	}
	if n := api.issued.Load(); n != 1 {
		t.Errorf("%d tokens for three pages, want 1", n)
	}
	form, _ := api.form.Load().(url.Values)
	if form.Get("scope") != "read:logs read:more" || form.Get("audience") != "https://api.example.com/" {
		t.Errorf("the token request was %v", form)
	}
	api.issued.Add(1) // the token is revoked
	if err := fetch(); err != nil || api.issued.Load() != 3 || api.refused.Load() != 1 {
		t.Errorf("revoked token: %v after %d tokens and %d refusals, want success after one more token", err,
			api.issued.Load(), api.refused.Load())
	}
	api.answer = func(w http.ResponseWriter, _ int64) bool {
		_, _ = w.Write([]byte(`{"access_token":"other","token_type":"Bearer"}`))
		return true
	}
	api.issued.Add(1)
	before := api.issued.Load()
	f := wantFault(t, fetch())
	if f.Reason != bridge.ReasonAuth || f.Code != "401" || api.issued.Load() != before+1 ||
		!strings.Contains(f.Hint, "EXPORT_OAUTH2_SCOPES") {
		t.Errorf("a useless token: got %+v after %d more tokens, want auth after one", f, api.issued.Load()-before)
	}
}

// TestOAuth2Forbidden: a 403 may mean that a token has expired, even if its lifetime is
// unknown. A token without permission must not cost a second token.
func TestOAuth2Forbidden(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ lives, refused, issued int64 }{
		"ended":       {4, 1, 2},
		"not allowed": {0, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var issued, pages, refused atomic.Int64
			server := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.URL.Path == "/token":
					issued.Add(1)
					pages.Store(0)
					_, _ = w.Write([]byte(`{"access_token":"t","token_type":"Bearer"}`))
				case pages.Add(1) > tc.lives:
					refused.Add(1)
					w.WriteHeader(http.StatusForbidden)
					_, _ = w.Write([]byte(`{"code":"InvalidTokenError"}`))
				default:
					_, _ = w.Write([]byte(emptyPage))
				}
			}))
			c := connect(t, config(t, oauth2Vars(server.URL)))
			var err error
			for range 5 {
				if _, err = fetchAll(t, c, bridge.Position{}); err != nil {
					break
				}
			}
			if tc.lives > 0 && err != nil || tc.lives == 0 && wantFault(t, err).Reason != bridge.ReasonAuth {
				t.Errorf("got %v", err)
			}
			if issued.Load() != tc.issued || refused.Load() != tc.refused {
				t.Errorf("%d tokens, %d refusals; want %d, %d", issued.Load(), refused.Load(), tc.issued, tc.refused)
			}
			if tc.lives == 0 { // the second request follows at once
				_, err = fetchAll(t, c, bridge.Position{})
				if f := wantFault(t, err); f.Code != "403" || issued.Load() != tc.issued {
					t.Errorf("again: %v after %d tokens, want 403 after %d", f, issued.Load(), tc.issued)
				}
			}
		})
	}
}

func TestOAuth2Refused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer func(w http.ResponseWriter, n int64) bool
		class  bridge.Class
		wait   time.Duration
		text   string
	}{
		"wrong secret": {func(w http.ResponseWriter, _ int64) bool {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":"invalid_client","error_description":"s3cret is\u0007 wrong"}`))
			return true
		}, bridge.Permanent, 0, "401 invalid_client *** is wrong"},
		"throttled": {func(w http.ResponseWriter, _ int64) bool {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}, bridge.Throttled, 7 * time.Second, "429"},
		"failing": {func(w http.ResponseWriter, _ int64) bool {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}, bridge.Transient, 0, "502"},
		"moved": {func(w http.ResponseWriter, _ int64) bool {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}, bridge.Permanent, 0, "307"},
		"no token": {func(w http.ResponseWriter, _ int64) bool { _, _ = w.Write([]byte(`{}`)); return true },
			bridge.Permanent, 0, "access_token"},
		"broken": {func(w http.ResponseWriter, _ int64) bool {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"access_token":`))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, bridge.Transient, 0, "EOF"},
		"broken refusal": {func(w http.ResponseWriter, _ int64) bool {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusBadGateway)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, bridge.Transient, 0, "EOF"},
		"endless": {func(w http.ResponseWriter, _ int64) bool {
			for range 3 << 10 {
				_, _ = w.Write([]byte(strings.Repeat(" ", 1<<10)))
			}
			return true
		}, bridge.Permanent, 0, "oauth2"},
		"switches protocols": {func(w http.ResponseWriter, _ int64) bool { switchProtocols(t, w); return true },
			bridge.Permanent, 0, "101"},
		"no answer": {func(http.ResponseWriter, int64) bool { panic(http.ErrAbortHandler) }, bridge.Transient, 0,
			"EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := listen(t, &tokens{life: "3600", answer: tc.answer})
			_, err := fetchAll(t, connect(t, config(t, oauth2Vars(server.URL))), bridge.Position{})
			f := wantFault(t, err)
			if f.Class != tc.class || f.RetryAfter != tc.wait || !strings.Contains(f.Error(), tc.text) ||
				!strings.Contains(f.Error(), "request a token from 127.0.0.1:") {
				t.Errorf("got %v, wait %s: %v; want %v, %s, %q", f.Class, f.RetryAfter, f, tc.class, tc.wait, tc.text)
			}
			if strings.Contains(f.Error(), "s3cret") {
				t.Errorf("the secret is in %q", f)
			}
		})
	}
}

// TestClientCertificate replaces the certificate on disk between two connections.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	write := func(name string) (cert, key string) {
		cert, key = selfSigned(t, name)
		for file, text := range map[string]string{certFile: cert, keyFile: key} {
			must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		}
		return cert, key
	}
	cert, key := write("first")
	var shown atomic.Value
	server, ca := listenTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown.Store(r.TLS.PeerCertificates[0].Subject.CommonName)
		w.Header().Set("Connection", "close")
		answer(emptyPage)(w, r)
	}), &tls.Config{ClientAuth: tls.RequireAnyClientCert})
	cfg := config(t, map[string]string{
		"EXPORT_URL": server.URL, "EXPORT_TLS_CA": ca, "EXPORT_TLS_CERT": cert, "EXPORT_TLS_KEY": key,
	})
	cfg.TLSCertFile, cfg.TLSKeyFile = certFile, keyFile
	c := connect(t, cfg)
	for _, name := range []string{"first", "second"} {
		if name == "second" {
			write(name)
		}
		if _, err := fetchAll(t, c, bridge.Position{}); err != nil || shown.Load() != name {
			t.Errorf("shown %v, %v; want %s", shown.Load(), err, name)
		}
	}
	must.Do(t, os.Remove(keyFile))
	if _, err := fetchAll(t, c, bridge.Position{}); err == nil ||
		!strings.Contains(err.Error(), "reload EXPORT_TLS_KEY_FILE") {
		t.Errorf("no key file: %v", err)
	}
}

func selfSigned(t *testing.T, name string) (cert, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour)}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))(t)
	pkcs8 := must.Get(x509.MarshalPKCS8PrivateKey(private))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

// A 403 is a limit if it has a delay, else a refusal.
func TestForbiddenForAWhile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		header map[string]string
		class  bridge.Class
		code   string // of the metrics: the alert about a rejected key counts 403
		wait   time.Duration
	}{
		"refused":     {nil, bridge.Permanent, "403", 0},
		"Retry-After": {map[string]string{"Retry-After": "60"}, bridge.Throttled, "429", time.Minute},
		"no request left": {map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"},
			bridge.Throttled, "429", 30 * time.Second},
		"refused, requests left": {map[string]string{"X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "30"},
			bridge.Permanent, "403", 0},
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			for k, v := range tc.header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(http.StatusForbidden)
		}, nil)
		_, err := fetchAll(t, c, bridge.Position{})
		if f := wantFault(t, err); f.Class != tc.class || f.RetryAfter != tc.wait || f.Code != tc.code {
			t.Errorf("%s: got %v (%s) after %s, want %v (%s) after %s", name, f.Class, f.Code, f.RetryAfter, tc.class,
				tc.code, tc.wait)
		}
	}
}

// The client sends nothing after a page says that no request is left.
func TestQuotaUsedUp(t *testing.T) {
	t.Parallel()
	var seen recorder
	left := "1"
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen.saw(r)
		w.Header().Set("X-RateLimit-Remaining", left)
		w.Header().Set("X-RateLimit-Reset", "30")
		left = "0"
		answer(emptyPage)(w, r)
	}, nil)
	for range 2 {
		mustFetch(t, c, bridge.Position{})
	}
	_, err := fetchAll(t, c, bridge.Position{})
	if f := wantFault(t, err); f.Class != bridge.Throttled || f.RetryAfter < 25*time.Second || len(seen.all()) != 2 {
		t.Errorf("got %+v after %d requests, want to wait 30s after 2", f, len(seen.all()))
	}
}
