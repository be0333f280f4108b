package exportapi_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
)

// If a next URL lacks parameters of the first request, the client warns, or adds them if
// EXPORT_NEXT_PARAMS says so.
func TestParametersOfNextURL(t *testing.T) {
	t.Parallel()
	window := bridge.Position{Start: 1000, End: 2000, Window: true}
	for name, tc := range map[string]struct {
		vars       map[string]string
		at         bridge.Position
		next, want string // want is the request with add-missing
		lacking    string
	}{
		"none":         {nil, bridge.Position{}, "?include=all&limit=7&page=2", "?include=all&limit=7&page=2", ""},
		"one":          {nil, bridge.Position{}, "?page=2&limit=7", "?page=2&limit=7&include=all", "include"},
		"all":          {nil, bridge.Position{}, "?page=2", "?page=2&include=all&limit=7", "include, limit"},
		"the query":    {nil, bridge.Position{}, "/v1/items/2", "/v1/items/2?include=all&limit=7", "include, limit"},
		"other values": {nil, bridge.Position{}, "?include=some&limit=50", "?include=some&limit=50", ""},
		"emptied":      {nil, bridge.Position{}, "?include=&limit=7", "?include=&limit=7", ""},
		"a start, followed": {nil, bridge.Position{Start: 1000}, "?include=all&limit=7&page=2",
			"?include=all&limit=7&page=2", ""},
		"the end of a window": {nil, window, "?include=all&limit=7&start=1000&page=2",
			"?include=all&limit=7&start=1000&page=2&end=2000", "end"},
		"one of two values": {map[string]string{"EXPORT_PARAMS": "type=a,type=b"}, bridge.Position{},
			"?limit=7&type=b&page=2", "?limit=7&type=b&page=2&type=a", "type"},
		"two values replaced": {map[string]string{"EXPORT_PARAMS": "type=a,type=b"}, bridge.Position{},
			"?limit=7&type=a%2Cb&page=2", "?limit=7&type=a%2Cb&page=2", ""},
		"event types": {map[string]string{"EXPORT_EVENTS": "x,y", "EXPORT_RESOURCE": "events",
			"EXPORT_PARAMS": ""}, bridge.Position{}, "?limit=7&page=2", "?limit=7&page=2&events=x&events=y", "events"},
		"a tenant and a sort": {map[string]string{"EXPORT_PARAMS": "tenant=acme,sort=created at"}, bridge.Position{},
			"?limit=7&page=2", "?limit=7&page=2&sort=created%20at&tenant=acme", "sort, tenant"},
		"a key is none of them": {map[string]string{"EXPORT_KEY_QUERY": "k"}, bridge.Position{},
			"?limit=7&include=all&page=2", "?limit=7&include=all&page=2&k=sk-test%2FKey%2B93%3D%2541", ""},
	} {
		for _, in := range []string{"next-url", "link"} {
			for _, mode := range []string{"", "warn", "keep", "add-missing"} {
				t.Run(name+" "+in+" "+mode, func(t *testing.T) {
					t.Parallel()
					vars := map[string]string{"EXPORT_CURSOR_IN": in, "EXPORT_PATH": "/v1/items", "EXPORT_PARAMS": "include=all",
						"EXPORT_PAGE_SIZE": "7", "EXPORT_PAGE_SIZE_PARAM": "limit", "EXPORT_RESOURCE": "users"}
					maps.Copy(vars, tc.vars)
					if vars["EXPORT_PARAMS"] == "" {
						delete(vars, "EXPORT_PARAMS")
					}
					if mode != "" {
						vars["EXPORT_NEXT_PARAMS"] = mode
					}
					var seen recorder
					serveNext := func(w http.ResponseWriter, r *http.Request) {
						seen.saw(r)
						w.Header().Set("Link", "<"+tc.next+`>; rel="next"`)
						answer(`{"items":[],"nextCursor":`+quote(tc.next)+`}`)(w, r)
					}
					var warnings []string
					cfg := config(t, vars)
					cfg.Warn = func(text, hint string) {
						if !strings.Contains(hint, "EXPORT_NEXT_PARAMS=add-missing") {
							t.Errorf("hint %q", hint)
						}
						warnings = append(warnings, text)
					}
					c := serveWith(t, serveNext, cfg)
					at := tc.at
					for range 3 {
						p := mustFetch(t, c, at)
						if at.Cursor != "" && p.Next != at.Cursor {
							t.Errorf("a page that names itself has the cursor %s, want %s", p.Next, at.Cursor)
						}
						at.Cursor = p.Next
					}
					want, lacking := tc.want, tc.lacking
					if lacking != "" && mode != "add-missing" {
						want = tc.next
					}
					if !strings.HasPrefix(want, "/") {
						want = "/v1/items" + want
					}
					if got := seen.all()[1].RequestURI; got != want {
						t.Errorf("requested %s, want %s", got, want)
					}
					if mode == "keep" || mode == "add-missing" {
						lacking = ""
					}
					if got := strings.Join(exportapi.Inspector{Client: c}.Lacking(), ", "); got != lacking {
						t.Errorf("lacking %q, want %q", got, lacking)
					}
					if lacking != "" != (len(warnings) == 1) || lacking != "" && !strings.HasSuffix(warnings[0], ": "+lacking) {
						t.Errorf("warned of %q, want %q once", warnings, lacking)
					}
				})
			}
		}
	}
}

// With EXPORT_NEXT_URL=path the request goes to the server of EXPORT_URL, whatever server
// the URL names.
func TestPathOfNextURL(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{ // want is the request, or what the fault says after "!"
		"https://SELF/v1/events?after=2":      "/v1/events?after=2",
		"http://internal:8080/v1/events?a=2":  "/v1/events?a=2",
		"HTTPS://evil.example/v1/x":           "/v1/x",
		"//evil.example/v1/x?y=z":             "/v1/x?y=z",
		"?after=2":                            "/v1/events?after=2",
		"https://user:pw@SELF/v1/events":      "!has a user or password",
		"file:///v1/events":                   "!changes from http to \"file\"",
		"javascript:alert(1)":                 "!it has no host and path",
		"https://internal/v2/events":          "!not below the path of EXPORT_URL",
		"https://internal/v1/../admin":        "!has . or ..",
		"https://internal/v1//evil.example/x": "!empty segment",
		"https://internal/v1/a%2fb":           "!encoded slash",
	} {
		t.Run(next, func(t *testing.T) {
			t.Parallel()
			var seen recorder
			api := func(w http.ResponseWriter, r *http.Request) {
				seen.saw(r)
				answer(`{"items":[],"nextCursor":`+quote(strings.ReplaceAll(next, "SELF", r.Host))+`}`)(w, r)
			}
			host, _ := serve(t, api, nil).Endpoint()
			c := connect(t, config(t, map[string]string{"EXPORT_URL": "http://" + host + "/v1", "EXPORT_CURSOR_IN": "next-url",
				"EXPORT_NEXT_URL": "path", "EXPORT_NEXT_PARAMS": "keep"}))
			p, err := fetchAll(t, c, bridge.Position{})
			if says, refused := strings.CutPrefix(want, "!"); refused {
				if f := wantFault(t, err); !strings.Contains(f.Error(), says) {
					t.Errorf("got %v, want %s", f, says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			again := mustFetch(t, c, bridge.Position{Cursor: p.Next})
			if got := seen.all()[1]; got.RequestURI != want || got.Header.Get("X-Api-Key") != testKey || again.Next != p.Next {
				t.Errorf("requested %s, want %s; next %s after %s", got.RequestURI, want, again.Next, p.Next)
			}
		})
	}
}

// The hint depends on the reason.
func TestHintsOfNextURL(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"https://SELF/v1/x":    "where a proxy in front of the API ends TLS, EXPORT_NEXT_URL=path",
		"http://internal/v1/x": "the key is only sent to the host of EXPORT_URL",
		"/v2/x":                "move what the paths do not share from EXPORT_URL to EXPORT_PATH",
		"/v1/../x":             "check EXPORT_CURSOR_IN",
	} {
		api := func(w http.ResponseWriter, r *http.Request) {
			answer(`{"items":[],"nextCursor":`+quote(strings.ReplaceAll(next, "SELF", r.Host))+`}`)(w, r)
		}
		host, _ := serve(t, api, nil).Endpoint()
		c := connect(t, config(t, map[string]string{"EXPORT_URL": "http://" + host + "/v1", "EXPORT_CURSOR_IN": "next-url"}))
		_, err := fetchAll(t, c, bridge.Position{})
		if f := wantFault(t, err); !strings.Contains(f.Hint, want) {
			t.Errorf("%s: hint %q, want %s", next, f.Hint, want)
		}
	}
}

// A next URL may have an encoded slash if the configured path has it.
func TestEncodedSlash(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{ // want is what the fault says, or empty
		"/groups/acme%2Fsec/audit_events?cursor=2": "",
		"/groups/acme%2fsec/audit_events?cursor=2": "",
		"/groups/acme%2Fsec/other":                 "",
		"?cursor=2":                                "",
		"/groups/acme%2Fother/audit_events":        "encoded slash",
		"/groups/acme%252Fsec/audit_events":        "encoded slash",
		"/groups/acme%2Fsec%2F..%2F/audit_events":  "encoded slash",
		"/groups/acme%2Fsec/..%2Fx":                "encoded slash",
		"/groups/acme%2Fsec/../x":                  "has . or ..",
	} {
		for _, in := range []string{"link", "next-url"} {
			var seen recorder
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				seen.saw(r)
				w.Header().Set("Link", "<"+next+`>; rel="next"`)
				answer(`{"items":[],"nextCursor":`+quote(next)+`}`)(w, r)
			}, map[string]string{"EXPORT_CURSOR_IN": in, "EXPORT_PATH": "/groups/acme%2Fsec/audit_events",
				"EXPORT_NEXT_PARAMS": "keep"})
			p, err := fetchAll(t, c, bridge.Position{})
			if want != "" {
				if f := wantFault(t, err); !strings.Contains(f.Error(), want) {
					t.Errorf("%s in %s: got %v, want %s", next, in, f, want)
				}
				continue
			}
			if err == nil {
				_, err = fetchAll(t, c, bridge.Position{Cursor: p.Next})
			}
			if err != nil {
				t.Errorf("%s in %s: %v", next, in, err)
				continue
			}
			full := next
			if strings.HasPrefix(next, "?") {
				full = "/groups/acme%2Fsec/audit_events" + next
			}
			if paths := []string{seen.all()[0].URL.EscapedPath(), seen.all()[1].RequestURI}; !slices.Equal(paths,
				[]string{"/groups/acme%2Fsec/audit_events", full}) {
				t.Errorf("%s in %s: requested %s", next, in, paths)
			}
		}
	}
	// If EXPORT_URL has an encoded slash, a next URL is below it only with that slash.
	for next, below := range map[string]bool{"/a%2Fb/c": true, "/a/b/c": false, "/a%2Fb": true, "/a%2Fbc": false} {
		host, _ := serve(t, answer(`{"items":[],"nextCursor":`+quote(next)+`}`), nil).Endpoint()
		c := connect(t, config(t, map[string]string{"EXPORT_URL": "http://" + host + "/a%2Fb/",
			"EXPORT_CURSOR_IN": "next-url", "EXPORT_NEXT_PARAMS": "keep"}))
		if _, err := fetchAll(t, c, bridge.Position{}); (err == nil) != below {
			t.Errorf("%s: %v", next, err)
		}
	}
}
