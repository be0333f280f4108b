package exportapi_test

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi"
)

const emptyPage = `{"items":[],"nextCursor":null}`

// TestCursorByteForByte sends the cursor of a page to a real server, and compares the bytes
// on both ways.
func TestCursorByteForByte(t *testing.T) {
	t.Parallel()
	var cursor string // written before a request, read after it
	var got string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.Query().Get("cursor")
		answer(`{"items":[],"nextCursor":`+quote(cursor)+`}`)(w, r)
	}, nil)
	check := func(t interface {
		Fatalf(string, ...any)
	}, value string) {
		cursor = value
		p, err := c.Fetch(context.Background(), bridge.Position{Cursor: value})
		if err != nil {
			t.Fatalf("fetch at %q: %v", value, err)
		}
		defer p.Release()
		if err := c.Decode(p); err != nil {
			t.Fatalf("decode at %q: %v", value, err)
		}
		if got != value || p.Next != value {
			t.Fatalf("sent %q, server read %q, page names %q", value, got, p.Next)
		}
	}
	for _, value := range []string{
		testCursor, "a+b/c=d%2Be", "=", "%", "&cursor=x", "#", "?a=b", " ", "  lead and trail  ", "\t\n", "ü", "\U0001F600",
		"\u2028", `"\`,
		`\u0041`, "null", "a;b", "\u0000", "%00", strings.Repeat("x", 15<<10), "\u00e9", "e\u0301", "<>&'", "\ufeff",
	} {
		check(t, value)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.StringN(1, 200, -1).Draw(t, "cursor")) })
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var other recorder
	thief := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		other.saw(r)
		answer(emptyPage)(w, r)
	}))
	for _, code := range []int{301, 302, 303, 307, 308} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, thief.URL+"/x?cursor="+url.QueryEscape(testCursor), code)
		}, nil)
		_, err := fetchAll(t, c, bridge.Position{Cursor: testCursor})
		f := wantFault(t, err)
		host := strings.TrimPrefix(thief.URL, "http://")
		if f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig || !strings.Contains(f.Error(), host) {
			t.Errorf("%d: got %v %q %v, want a config fault that names %s", code, f.Class, f.Reason, f, host)
		}
	}
	if n := len(other.all()); n != 0 {
		t.Errorf("%d requests reached the other host", n)
	}
}

func TestKeyFileIsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	write := func(key string) {
		must.Do(t, os.WriteFile(file, []byte(key), 0o600))
	}
	write("old\n")
	var seen recorder
	server := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.saw(r)
		if r.Header.Get("X-Api-Key") != "new" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		answer(emptyPage)(w, r)
	}))
	cfg := config(t, map[string]string{"EXPORT_URL": server.URL, "EXPORT_API_KEY": "old"})
	cfg.APIKeyFile = file
	c := connect(t, cfg)
	fetch := func() *bridge.Fault {
		t.Helper()
		before := len(seen.all())
		_, err := fetchAll(t, c, bridge.Position{})
		if n := len(seen.all()) - before; n > 2 {
			t.Errorf("%d requests for one fetch", n)
		}
		if err == nil {
			return nil
		}
		return wantFault(t, err)
	}
	if f := fetch(); f == nil || f.Class != bridge.Permanent || f.Reason != bridge.ReasonAuth || f.Code != "401" {
		t.Fatalf("same key in the file: got %+v, want auth", f)
	}
	must.Do(t, os.Remove(file))
	if f := fetch(); f == nil || f.Reason != bridge.ReasonAuth || !strings.Contains(f.Error(), "reload the key") {
		t.Fatalf("no file: got %+v, want auth that says so", f)
	}
	write(" ")
	if f := fetch(); f == nil || f.Reason != bridge.ReasonAuth || !strings.Contains(f.Error(), "contains no key") {
		t.Fatalf("empty file: got %+v, want auth that says so", f)
	}
	write("new\r\n")
	if f := fetch(); f != nil {
		t.Fatalf("new key in the file: %v", f)
	}
	if f := fetch(); f != nil {
		t.Fatalf("the new key does not stay: %v", f)
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	c := serve(t, answer(emptyPage), map[string]string{"EXPORT_RATE_LIMIT": "20/s"})
	began := time.Now()
	for range 4 {
		mustFetch(t, c, bridge.Position{})
	}
	if took := time.Since(began); took < 149*time.Millisecond {
		t.Errorf("4 requests at 20/s took %v, want at least 150ms", took)
	}
}

// A 429 is for all clients with the key. They send nothing until the requested delay is
// over.
func TestThrottledKey(t *testing.T) {
	t.Parallel()
	var seen recorder
	server := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.saw(r)
		if r.Header.Get("X-Api-Key") == testKey {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answer(emptyPage)(w, r)
	}))
	var shared exportapi.Shared
	client := func(key string, beside bool) *exportapi.Client {
		cfg := config(t, map[string]string{"EXPORT_URL": server.URL, "EXPORT_API_KEY": key})
		cfg.Shared, cfg.Beside = &shared, beside
		return connect(t, cfg)
	}
	for i, c := range []*exportapi.Client{client(testKey, false), client(testKey, true), client(testKey, false)} {
		_, err := fetchAll(t, c, bridge.Position{})
		if f := wantFault(t, err); f.Class != bridge.Throttled || f.Code != "429" || f.RetryAfter <= 50*time.Second ||
			f.RetryAfter > time.Minute {
			t.Errorf("client %d: %+v", i, f)
		}
	}
	if n := len(seen.all()); n != 1 {
		t.Errorf("the API saw %d requests with a key that it throttles", n)
	}
	if _, err := fetchAll(t, client("other", false), bridge.Position{}); err != nil {
		t.Errorf("another key: %v", err)
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	var seen recorder
	proxy := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.saw(r)
		answer(emptyPage)(w, r)
	}))
	withUser := strings.Replace(proxy.URL, "http://", "http://user:sk-test@", 1)
	c := connect(t, config(t, map[string]string{"EXPORT_URL": "http://export.invalid/base",
		"EXPORT_INSECURE_HTTP": "true", "EXPORT_PROXY": withUser}))
	mustFetch(t, c, bridge.Position{})
	got := seen.all()[0]
	if got.URL.Host != "export.invalid" || got.URL.Path != "/base/events" || got.Header.Get("Proxy-Authorization") == "" {
		t.Errorf("the proxy saw %s %v", got.URL, got.Header)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	var seen recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch seen.saw(r) % 3 {
		case 0:
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(strings.Repeat("x", 10<<10)))
		case 1:
			answer(emptyPage)(w, r)
		case 2:
			compressed(w, "gzip", []byte(emptyPage))
		}
	}, nil)
	for range 9 {
		_, err := fetchAll(t, c, bridge.Position{})
		wantClean(t, err)
	}
	ports := map[string]bool{}
	for _, r := range seen.all() {
		ports[r.RemoteAddr] = true
	}
	if len(ports) != 1 {
		t.Errorf("9 requests over %d connections, want 1", len(ports))
	}
}

func TestHealthIsReported(t *testing.T) {
	t.Parallel()
	const cursor = "c"
	for _, tc := range []struct {
		code          int
		cursor, kind  string
		scheme, wants string // wants is the error; "" for none
	}{
		{code: 200}, {code: 429}, {code: 410, cursor: cursor},
		{code: 401, wants: "refuses the key"}, {code: 403, wants: "refuses the key"},
		{code: 404, wants: "refuses requests"}, {code: 302, wants: "redirects requests"},
		{code: 500, wants: "answers with errors"}, {code: 408, wants: "answers with errors"},
		{code: 200, kind: "text/html", wants: "sends no valid page"},
		{code: 200, scheme: "https", wants: "fails the TLS handshake"},
		{scheme: "closed", wants: "is down"},
	} {
		server := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if tc.code == 200 && tc.kind == "" {
				answer(emptyPage)(w, r)
				return
			}
			w.Header().Set("Content-Type", tc.kind)
			w.WriteHeader(tc.code)
		}))
		at := server.URL
		switch tc.scheme {
		case "https":
			at = strings.Replace(at, "http:", "https:", 1)
		case "closed":
			server.Close()
		}
		cfg := config(t, map[string]string{"EXPORT_URL": at})
		health, reports := new(bridge.Health), 0
		cfg.Report = func(err error) {
			reports++
			health.Reporter(bridge.DependencySource)(err)
		}
		_, _ = fetchAll(t, connect(t, cfg), bridge.Position{Cursor: tc.cursor})
		if got := health.Snapshot()[bridge.DependencySource]; reports != 1 || got.Trouble != tc.wants ||
			got.Up != (tc.wants == "") {
			t.Errorf("%+v: %d reports, the last one %+v", tc, reports, got)
		}
	}
}
