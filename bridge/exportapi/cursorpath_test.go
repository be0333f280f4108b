package exportapi_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge"
)

// Requests with a cursor can have a path of their own.
func TestCursorPath(t *testing.T) {
	t.Parallel()
	window := bridge.Position{Start: 1, End: 2, Window: true, Cursor: "c"}
	for name, tc := range map[string]struct {
		vars map[string]string
		at   bridge.Position
		want string // method, URL and body
	}{
		"GET, first":  {nil, bridge.Position{}, "GET /v1/events?pageSize=7 "},
		"GET, cursor": {nil, bridge.Position{Cursor: "c"}, "GET /v1/events/continue?cursor=c&pageSize=7 "},
		"GET, window": {nil, window, "GET /v1/events/continue?cursor=c&end=2&pageSize=7&start=1 "},
		"alone": {map[string]string{"EXPORT_CURSOR_ALONE": "true"}, bridge.Position{Cursor: "c"},
			"GET /v1/events/continue?cursor=c "},
		"key": {map[string]string{"EXPORT_CURSOR_ALONE": "true", "EXPORT_KEY_QUERY": "k"}, window,
			"GET /v1/events/continue?cursor=c&k=sk-test%2FKey%2B93%3D%2541 "},
		"POST, first": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_CURSOR_ALONE": "true"}, bridge.Position{},
			`POST /v1/events {"pageSize":7}`},
		"POST, cursor": {map[string]string{"EXPORT_METHOD": "POST", "EXPORT_CURSOR_ALONE": "true"},
			bridge.Position{Cursor: "c"}, `POST /v1/events/continue {"cursor":"c"}`},
		"escaped, slash": {map[string]string{"EXPORT_CURSOR_PATH": "a%2Fb/"}, bridge.Position{Cursor: "c"},
			"GET /v1/a%2Fb/?cursor=c&pageSize=7 "},
	} {
		var got string
		server := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = r.Method + " " + r.RequestURI + " " + string(body)
			answer(emptyPage)(w, r)
		}))
		vars := map[string]string{"EXPORT_URL": server.URL + "/v1", "EXPORT_CURSOR_PATH": "/events/continue",
			"EXPORT_PAGE_SIZE": "7"}
		maps.Copy(vars, tc.vars)
		if _, err := fetchAll(t, connect(t, config(t, vars)), tc.at); err != nil || got != tc.want {
			t.Errorf("%s: %v, got %s, want %s", name, err, got, tc.want)
		}
	}
}

// A redirect on the API's own host is not followed. The hint names the path to set, without
// the query.
func TestRedirectNamesThePath(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		vars        map[string]string
		at          bridge.Position
		to          string
		error, hint string
	}{
		"a slash": {nil, bridge.Position{}, "/v1/events/?a=secret",
			"301 redirect to the path /v1/events/ on the same host", "set EXPORT_PATH=/events/"},
		"relative": {nil, bridge.Position{}, "list", "path /v1/list on", "set EXPORT_PATH=/list"},
		"with a cursor": {map[string]string{"EXPORT_CURSOR_PATH": "/events/more"}, bridge.Position{Cursor: "c"},
			"/v1/events/more/", "path /v1/events/more/", "set EXPORT_CURSOR_PATH=/events/more/"},
		"of a next URL": {map[string]string{"EXPORT_CURSOR_IN": "next-url"},
			bridge.Position{Cursor: "/v1/events?page=2"}, "/v1/events/?page=2", "path /v1/events/", "EXPORT_CURSOR_IN"},
		"the key in it": {nil, bridge.Position{}, "/v1/sk-test/Key+93=%2541/", "path /v1/***/", "EXPORT_PATH"},
		"to another host": {nil, bridge.Position{}, "https://other.example/v1/events/",
			"redirect to host other.example not followed, to keep the key", "EXPORT_URL"},
		"to no host at all": {nil, bridge.Position{}, "http:///x", "", "EXPORT_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen recorder
			server := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen.saw(r)
				w.Header().Set("Location", tc.to)
				w.WriteHeader(http.StatusMovedPermanently)
			}))
			vars := map[string]string{"EXPORT_URL": server.URL + "/v1"}
			maps.Copy(vars, tc.vars)
			_, err := fetchAll(t, connect(t, config(t, vars)), tc.at)
			f := wantFault(t, err)
			if f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig ||
				!strings.Contains(f.Error(), tc.error) || !strings.Contains(f.Hint, tc.hint) || len(seen.all()) != 1 {
				t.Errorf("got %v; %s after %d requests", f, f.Hint, len(seen.all()))
			}
			if texts := []string{f.Error(), f.Hint}; slices.ContainsFunc(texts,
				func(s string) bool { return strings.Contains(s, "secret") || strings.Contains(s, "sk-test") }) {
				t.Errorf("a secret is in %q", texts)
			}
		})
	}
}
