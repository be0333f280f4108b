package ui_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops/ui"
)

func get(t *testing.T, method, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	maps.Copy(r.Header, header)
	w := httptest.NewRecorder()
	ui.Handler().ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, method, path string
		code               int
		kind, holds        string
	}{
		{"the page", "GET", "/", 200, "text/html; charset=utf-8", "<title>exportbridge</title>"},
		{"by name", "GET", "/index.html", 200, "text/html; charset=utf-8", "<title>exportbridge</title>"},
		{"script", "GET", "/app.js", 200, "text/javascript; charset=utf-8", "import"},
		{"style", "GET", "/style.css", 200, "text/css; charset=utf-8", ":root"},
		{"image", "GET", "/favicon.svg", 200, "image/svg+xml", "<svg"},
		{"licence", "GET", "/uplot.LICENSE.txt", 200, "text/plain; charset=utf-8", "MIT License"},
		{"head", "HEAD", "/", 200, "text/html; charset=utf-8", ""},
		{"nothing else", "GET", "/page.go", 404, "text/plain; charset=utf-8", "not found"},
		{"no folder", "GET", "/static/", 404, "text/plain; charset=utf-8", "not found"},
		{"not above", "GET", "/../page.go", 404, "text/plain; charset=utf-8", "not found"},
		{"not above, written otherwise", "GET", "/%2e%2e/page.go", 404, "text/plain; charset=utf-8", "not found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := get(t, tc.method, tc.path, nil)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.holds) {
				t.Errorf("%s %s = %d %.80q, want %d with %q", tc.method, tc.path, w.Code, w.Body, tc.code, tc.holds)
			}
			if got := w.Header().Get("Content-Type"); got != tc.kind {
				t.Errorf("Content-Type %q, want %q", got, tc.kind)
			}
		})
	}
}

// A browser revalidates a file that it has.
func TestETag(t *testing.T) {
	t.Parallel()
	first := get(t, "GET", "/app.js", nil)
	tag := first.Header().Get("ETag")
	if tag == "" || first.Header().Get("Cache-Control") != "no-cache" {
		t.Fatalf("ETag %q, Cache-Control %q", tag, first.Header().Get("Cache-Control"))
	}
	if w := get(t, "GET", "/app.js", http.Header{"If-None-Match": {tag}}); w.Code != http.StatusNotModified ||
		w.Body.Len() > 0 {
		t.Errorf("with its tag: %d and %d bytes, want 304 and none", w.Code, w.Body.Len())
	}
	if w := get(t, "GET", "/style.css", http.Header{"If-None-Match": {tag}}); w.Code != http.StatusOK {
		t.Errorf("with the tag of another file: %d, want 200", w.Code)
	}
}

// Every file has a known type, and every referenced file exists: the page works without any
// other server.
func TestFiles(t *testing.T) {
	t.Parallel()
	entries := must.Get(os.ReadDir("static"))(t)
	refers := regexp.MustCompile(`(?:from|src=|href=|url\() ?['"]?\.?/?([\w.-]+\.(?:js|css|svg|html|txt))['"]?`)
	outside := regexp.MustCompile(`(?:src|href)="https?:|@import|url\(`)
	inline := regexp.MustCompile(`<script>| style="| on\w+="|innerHTML|insertAdjacentHTML|eval\(`)
	for _, e := range entries {
		w := get(t, "GET", "/"+e.Name(), nil)
		if w.Code != 200 || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d, Content-Type %q", e.Name(), w.Code, w.Header().Get("Content-Type"))
		}
		if strings.HasPrefix(e.Name(), "uplot.") {
			continue
		}
		text := w.Body.String()
		for _, found := range refers.FindAllStringSubmatch(text, -1) {
			if other := get(t, "GET", "/"+found[1], nil); other.Code != 200 {
				t.Errorf("%s refers to %s: %d", e.Name(), found[1], other.Code)
			}
		}
		for _, bad := range []*regexp.Regexp{outside, inline} {
			if found := bad.FindString(text); found != "" {
				t.Errorf("%s holds %q, which the policy forbids", e.Name(), found)
			}
		}
	}
}
