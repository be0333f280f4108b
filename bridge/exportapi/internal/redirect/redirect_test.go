package redirect

import (
	"net/url"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		asked, to, setting string
		text, hint         string // parts of the result
	}{
		"a slash": {"https://a.example/v1/items?x=1", "https://a.example/v1/items/?x=1", "EXPORT_PATH",
			"301 redirect to the path /v1/items/ on the same host", "set EXPORT_PATH=/items/"},
		"a slash less": {"https://a.example/v1/items/", "https://A.example:443/v1/items", "EXPORT_PATH",
			"path /v1/items on", "set EXPORT_PATH=/items"},
		"another path": {"https://a.example/v1/items", "https://a.example/v1/all/items", "EXPORT_PATH",
			"path /v1/all/items", "set EXPORT_PATH=/all/items"},
		"with a cursor": {"https://a.example/v1/items/next", "https://a.example/v1/items/next/",
			"EXPORT_CURSOR_PATH", "path", "set EXPORT_CURSOR_PATH=/items/next/"},
		"escapes": {"https://a.example/v1/a%2Fb", "https://a.example/v1/a%2Fb/", "EXPORT_PATH",
			"path /v1/a%2Fb/", "set EXPORT_PATH=/a%2Fb/"},
		"not below EXPORT_URL": {"https://a.example/v1/items", "https://a.example/v2/items", "EXPORT_PATH",
			"path /v2/items", "set EXPORT_URL and EXPORT_PATH to that path"},
		"a next URL": {"https://a.example/v1/items?page=2", "https://a.example/v1/items/?page=2", "",
			"path /v1/items/", "a next URL is redirected"},
		"the same path": {"https://a.example/v1/items", "https://a.example/v1/items?session=s3cret",
			"EXPORT_PATH", "301 redirect to the same path", "EXPORT_API_KEY"},
		"to https": {"http://a.example/v1/items", "https://a.example/v1/items", "EXPORT_PATH",
			"301 redirect to https on the same host", "set EXPORT_URL to its https:// address"},
		"to https and a slash": {"http://a.example:80/v1/items", "https://a.example/v1/items/", "EXPORT_PATH",
			"path /v1/items/", "set EXPORT_URL to its https:// address, and if the API's pages are there, set " +
				"EXPORT_PATH=/items/"},
		"a slash, behind a TLS proxy": {"https://a.example/v1/items", "http://a.example/v1/items/", "EXPORT_PATH",
			"path /v1/items/", "set EXPORT_PATH=/items/"},
		"to http": {"https://a.example/v1/items", "http://a.example/v1/items", "EXPORT_PATH",
			"plain HTTP", "check EXPORT_URL"},
		"another host": {"https://a.example/v1/items", "https://b.example:99/v1/s3cret", "EXPORT_PATH",
			"redirect to host b.example:99 not followed, to keep the key from that host", "set EXPORT_URL"},
		"another port": {"https://a.example/v1/items", "https://a.example:99/v1/s3cret", "EXPORT_PATH",
			"host a.example:99", "set EXPORT_URL"},
		"another host, http": {"https://a.example/v1/items", "http://b.example/v1/items/", "EXPORT_PATH",
			"host b.example", "set EXPORT_URL"},
		"another scheme": {"https://a.example/v1/items", "ftp://a.example/v1/items/", "EXPORT_PATH",
			"host a.example", "set EXPORT_URL"},
	} {
		asked, _ := url.Parse(tc.asked)
		to, _ := url.Parse(tc.to)
		r := Redirect{Status: 301, To: to, Asked: asked, Base: "/v1/", Setting: tc.setting,
			Clean: func(s string) string { return s }}
		text, hint := r.Explain()
		if !strings.Contains(text, tc.text) || !strings.Contains(hint, tc.hint) || strings.Contains(text+hint, "?") ||
			strings.Contains(text+hint, "s3cret") {
			t.Errorf("%s: %s; %s", name, text, hint)
		}
	}
}
