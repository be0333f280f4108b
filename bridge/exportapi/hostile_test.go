package exportapi_test

import (
	"net/http"
	"strings"
	"testing"

	"exportbridge/bridge"
)

// A page that does not clearly name a next page is a fault that names the setting. It never
// ends the results.
func TestHostilePages(t *testing.T) {
	t.Parallel()
	nested := map[string]string{"EXPORT_ITEMS_FIELD": "/data/items", "EXPORT_CURSOR_FIELD": "/meta/next"}
	more := map[string]string{"EXPORT_MORE_FIELD": "/meta/more", "EXPORT_CURSOR_FIELD": "next"}
	last := map[string]string{"EXPORT_CURSOR_IN": "last-item", "EXPORT_CURSOR_FIELD": "/p/id"}
	next := map[string]string{"EXPORT_CURSOR_IN": "next-url", "EXPORT_CURSOR_FIELD": "next"}
	root := map[string]string{"EXPORT_CURSOR_IN": "link", "EXPORT_ITEMS_FIELD": "root"}
	for name, tc := range map[string]struct {
		vars map[string]string
		body string
		want string // in the error
	}{
		"items twice": {nested, `{"data":{"items":[],"items":[{}]}}`,
			`member "/data/items" occurs twice (EXPORT_ITEMS_FIELD)`},
		"the parent of items twice": {nested, `{"data":{"items":[]},"data":{"items":[{}]}}`,
			`member "/data" occurs twice (EXPORT_ITEMS_FIELD)`},
		"twice, one null": {nested, `{"data":null,"data":{"items":[]}}`, `member "/data" occurs twice`},
		"cursor twice": {nested, `{"data":{"items":[]},"meta":{"next":null,"n\u0065xt":"a"}}`,
			`member "/meta/next" occurs twice (EXPORT_CURSOR_FIELD)`},
		"the parent of cursor twice": {nested, `{"meta":{},"data":{"items":[]},"meta":{"next":"a"}}`,
			`member "/meta" occurs twice (EXPORT_CURSOR_FIELD)`},
		"through an array": {nested, `{"data":{"items":[]},"meta":[{"next":"a"}]}`,
			`member "/meta" is an array, not an object (EXPORT_CURSOR_FIELD)`},
		"items through an array": {nested, `{"data":[{"items":[]}]}`,
			`member "/data" is an array, not an object (EXPORT_ITEMS_FIELD)`},
		"through a string": {nested, `{"data":{"items":[]},"meta":"next"}`,
			`member "/meta" is a string, not an object (EXPORT_CURSOR_FIELD)`},
		"no parent of items": {nested, `{"items":[]}`, `it has no member "/data/items" (EXPORT_ITEMS_FIELD)`},
		"an array":           {nested, `[{"data":{"items":[]}}]`, `it is an array, not an object`},
		"an object as root":  {root, `{"items":[]}`, `it is an object, not an array (EXPORT_ITEMS_FIELD)`},
		"two roots":          {root, `[][]`, "unexpected data after the array"},
		"a fraction":         {nested, `{"data":{"items":[]},"meta":{"next":1.0}}`, `a fraction or exponent`},
		"an exponent":        {nested, `{"data":{"items":[]},"meta":{"next":1e3}}`, `a fraction or exponent`},
		"minus zero":         {nested, `{"data":{"items":[]},"meta":{"next":-0}}`, `minus zero`},
		"more, no cursor": {more, `{"items":[],"meta":{"more":true}}`,
			`member "/meta/more" says that more results follow, but the page names no other cursor (EXPORT_MORE_FIELD)`},
		"more, empty cursor": {more, `{"items":[],"next":"","meta":{"more":true}}`,
			`names no other cursor (EXPORT_MORE_FIELD)`},
		"more, the cursor sent": {more, `{"items":[],"next":` + quote(testCursor) + `,"meta":{"more":true}}`,
			`names no other cursor`},
		"more a string": {more, `{"items":[],"next":"a","meta":{"more":"true"}}`,
			`member "/meta/more" is a string, not a boolean (EXPORT_MORE_FIELD)`},
		"more twice": {more, `{"items":[],"next":"a","meta":{"more":true,"more":false}}`,
			`occurs twice (EXPORT_MORE_FIELD)`},
		"last item without cursor": {last, `{"items":[{"p":{"id":"a"}},{"p":{}}]}`,
			`the last item has no member "/p/id" (EXPORT_CURSOR_FIELD)`},
		"last item, null on the way": {last, `{"items":[{"p":null}]}`, `the last item has no`},
		"last item, empty cursor":    {last, `{"items":[{"p":{"id":""}}]}`, `the last item has no`},
		"last item no object": {last, `{"items":[{"p":{"id":"a"}},7]}`,
			`is a number, not an object (EXPORT_CURSOR_FIELD)`},
		"last item, cursor twice": {last, `{"items":[{"p":{"id":"a","id":"b"}}]}`,
			`member "/p/id" occurs twice (EXPORT_CURSOR_FIELD)`},
		"last item, parent twice":     {last, `{"items":[{"p":{"id":"a"},"p":{}}]}`, `member "/p" occurs twice`},
		"last item, through an array": {last, `{"items":[{"p":[{"id":"a"}]}]}`, `is an array, not an object`},
		"last item, a boolean":        {last, `{"items":[{"p":{"id":true}}]}`, `is a boolean`},
		"last item, half a character": {last, `{"items":[{"p":{"id":"\ud800"}}]}`, `does not decode exactly`},
		"next URL a number": {next, `{"items":[],"next":7}`,
			`is a number, not a string or null (EXPORT_CURSOR_FIELD)`},
		"next URL an object": {next, `{"items":[],"next":{"href":"/events"}}`,
			`is an object, not a string or null`},
		"next URL, half a character": {next, `{"items":[],"next":"/events?a=\ud800"}`, `does not decode exactly`},
		"more than one document": {nested, `{"data":{"items":[]}}{"data":{"items":[]}}`,
			`unexpected data after the object`},
		"items an object, nested": {nested, `{"data":{"items":{}}}`, `member "/data/items" is an object, not an array`},
		"a pointer that goes too deep": {nested, `{"data":{"items":[]},"meta":{"next":{"next":"a"}}}`,
			`member "/meta/next" is an object, not a string`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 { // the first response must not change the second result
				_, err := fetchAll(t, serve(t, answer(tc.body), tc.vars), bridge.Position{Cursor: cursorFor(tc.vars)})
				f := wantFault(t, err)
				if f.Class != bridge.Malformed || f.Reason != bridge.ReasonSchema || !strings.Contains(f.Error(), tc.want) {
					t.Errorf("got %v %q %v, want %s", f.Class, f.Reason, f, tc.want)
				}
			}
		})
	}
}

// cursorFor returns a cursor that requests with these settings can have.
func cursorFor(vars map[string]string) string {
	if in := vars["EXPORT_CURSOR_IN"]; in == "link" || in == "next-url" {
		return "/events?after=1"
	}
	return testCursor
}

// A next URL is followed only below EXPORT_URL on the same server.
func TestHostileNextURL(t *testing.T) {
	t.Parallel()
	const self = "http://SELF"                // the API's own host
	for ref, want := range map[string]string{ // want is the cursor, or what the fault says after "!"
		self + "/v1/events?after=2":               "/v1/events?after=2#",
		self + "/v1/events/page/2":                "/v1/events/page/2#",
		self + "/v1?x=%2F..%2f&y=a+b%20c&z=ü#f":   "/v1?x=%2F..%2f&y=a+b%20c&z=ü#",
		"HTTP://SELF/v1/x":                        "/v1/x#",
		self + "/v1/%C3%BC/a%20b?":                "/v1/%C3%BC/a%20b#",
		self + "/v1/events/":                      "/v1/events/#",
		"?after=2":                                "/v1/events?after=2#",
		"/v1/other?a=b":                           "/v1/other?a=b#",
		"more?a=b":                                "/v1/more?a=b#",
		"//SELF/v1/x":                             "/v1/x#",
		"?api_key=sk-test%2FKey&after=2&tenant=t": "/v1/events?after=2&tenant=#1",
		"?after=2&api%5Fkey=x&api_key&&tenant=":   "/v1/events?after=2&tenant=#",
		"?%zz=1&after=2":                          "/v1/events?%zz=1&after=2#",
		"?after=1":                                "/v1/events?after=1", // the page itself: a tail
		"?api_key=other&after=1":                  "/v1/events?after=1",

		"https://SELF/v1/events":                 "!changes from http",
		"http://evil.example/v1/events?a=secret": "!next URL to host evil.example is not on 127.0.0.1",
		"http://SELF.evil.example/v1/events":     "!is not",
		"http://127.0.0.1/v1/events":             "!next URL to host 127.0.0.1 is not on",
		"http://127.0.0.1:1/v1/events":           "!next URL to host 127.0.0.1:1 is not on",
		"//evil.example/v1/events":               "!next URL to host evil.example is not on",
		"http://user@SELF/v1/events":             "!has a user or password",
		"http://user:pass@evil.example/v1":       "!has a user or password",
		"http://SELF@evil.example/v1":            "!host evil.example",
		"file:///etc/passwd":                     "!changes from http to \"file\"",
		"file:/etc/passwd":                       "!changes from http to \"file\"",
		"javascript:alert(1)":                    "!it has no host and path",
		"http:SELF":                              "!it has no host and path",
		"http:///v1/events":                      "!is not on",
		"/v2/events":                             "!not below the path of EXPORT_URL",
		"/v10/events":                            "!not below",
		"/V1/events":                             "!not below",
		"/":                                      "!not below",
		"../admin":                               "!has . or ..",
		"/v1/../admin":                           "!has . or ..",
		"/v1/./x":                                "!has . or ..",
		"/v1/%2e%2e/admin":                       "!has . or ..",
		"/v1/%2E./admin":                         "!has . or ..",
		"/v1/%252e%252e/admin":                   "!has . or ..",
		"/v1/..;x/admin":                         "!has . or ..",
		"/v1/..%20/admin":                        "!has . or ..",
		"/v1/%" + strings.Repeat("25", 10_000):   "!escaped more than 4 times",
		"/v1?a=" + strings.Repeat("a", 32<<10):   "!has 32774 bytes, the limit is 32768",
		"/v1/%2e%2e%2fadmin":                     "!encoded slash",
		"/v1/a%2fb":                              "!encoded slash",
		"/v1/a%5cb":                              "!encoded slash",
		"/v1/a%255Cb":                            "!encoded slash",
		"/v1/a%00b":                              "!encoded slash",
		`/v1\events`:                             "!must be escaped",
		`\\evil.example/v1`:                      "!must be escaped",
		"http:\\\\evil.example":                  "!must be escaped",
		"/v1/a b":                                "!must be escaped",
		" /v1/a":                                 "!must be escaped",
		"/v1/a\r\nX-Evil: 1":                     "!it is not a URL",
		"/v1//evil.example/x":                    "!empty segment",
		"///evil.example/v1":                     "!empty segment",
		"http://SELF:99999999999/v1":             "!it is not a URL",
		"http://[::1/v1":                         "!it is not a URL",
		"http://169.254.169.254/v1":              "!host 169.254.169.254",
	} {
		t.Run(ref, func(t *testing.T) {
			t.Parallel()
			for _, in := range []string{"next-url", "link"} {
				if in == "link" && strings.ContainsAny(ref, "\r\n") {
					continue // no header can have it
				}
				c := serve(t, func(w http.ResponseWriter, r *http.Request) {
					to := strings.ReplaceAll(ref, "SELF", r.Host)
					if in == "link" {
						w.Header().Set("Link", "<"+to+`>; rel="next"`)
					}
					answer(`{"items":[],"nextCursor":`+quote(to)+`}`)(w, r)
				}, map[string]string{"EXPORT_CURSOR_IN": in, "EXPORT_KEY_QUERY": "api_key", "EXPORT_PARAMS": "tenant=t"})
				host, _ := c.Endpoint()
				// EXPORT_URL with a path: /v1.
				cfg := config(t, map[string]string{"EXPORT_CURSOR_IN": in, "EXPORT_KEY_QUERY": "api_key",
					"EXPORT_PARAMS": "tenant=t", "EXPORT_URL": "http://" + host + "/v1/"})
				p, err := fetchAll(t, connect(t, cfg), bridge.Position{Cursor: "/v1/events?after=1"})
				says, refused := strings.CutPrefix(want, "!")
				switch {
				case !refused && err != nil:
					t.Errorf("%s: %v", in, err)
				case !refused && p.Next != want:
					t.Errorf("%s: cursor %q, want %q", in, p.Next, want)
				case refused:
					f := wantFault(t, err)
					if f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig || !strings.Contains(f.Error(), says) ||
						strings.Contains(f.Error(), "secret") ||
						strings.Contains(f.Error(), "pass") && !strings.Contains(f.Error(), "password") {
						t.Errorf("%s: got %v %q %v, want %s", in, f.Class, f.Reason, f, says)
					}
				}
			}
		})
	}
}

// The cursor of a next URL is checked too: an operator may have set it, or it belongs to
// another EXPORT_URL.
func TestCursorIsChecked(t *testing.T) {
	t.Parallel()
	var seen recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen.saw(r)
		answer(`{"items":[],"nextCursor":null}`)(w, r)
	}, map[string]string{"EXPORT_CURSOR_IN": "next-url", "EXPORT_KEY_QUERY": "api_key"})
	host, _ := c.Endpoint()
	c = connect(t, config(t, map[string]string{"EXPORT_CURSOR_IN": "next-url", "EXPORT_KEY_QUERY": "api_key",
		"EXPORT_URL": "http://" + host + "/v1"}))
	for _, cursor := range []string{"x", "eyJ0", "http://evil.example/v1", "//evil.example/v1", "/v1/../x",
		"/v1/%2e%2e/x", "/v2", "/v1 x", "/v1\r\nA: b", `\v1`, "?a=b", "*", "/v1/..%20/x", "/v1/x#y", "/v1?a=b#c"} {
		_, err := fetchAll(t, c, bridge.Position{Cursor: cursor})
		if f := wantFault(t, err); f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig {
			t.Errorf("%q: %v %q %v", cursor, f.Class, f.Reason, f)
		}
	}
	if n := len(seen.all()); n != 0 {
		t.Errorf("%d requests", n)
	}
	at := bridge.Position{Cursor: "/v1/%C3%BC/x?b=%2F+%20&a=1&a=2&c", Start: 5, End: 6, Window: true}
	mustFetch(t, c, at)
	if got := seen.all()[0].RequestURI; got != at.Cursor+"&api_key=sk-test%2FKey%2B93%3D%2541" {
		t.Errorf("requested %s", got)
	}
}

// TestLinkHeaders has what RFC 8288 allows.
func TestLinkHeaders(t *testing.T) {
	t.Parallel()
	const schema, none = "!", ""
	for name, tc := range map[string]struct {
		links []string
		want  string
	}{
		"none":                  {nil, none},
		"another relation":      {[]string{`</a>; rel="prev"`}, none},
		"one":                   {[]string{`</a>; rel="next"`}, "/a"},
		"a token":               {[]string{`</a>;rel=next`}, "/a"},
		"upper case":            {[]string{`</a>;REL="NEXT"`}, "/a"},
		"several values":        {[]string{`</a>; rel="prefetch  next last"`}, "/a"},
		"not a part of a value": {[]string{`</a>; rel="nextish x-next"`}, none},
		"two headers":           {[]string{`</a>; rel="self"`, `</b>; rel="next"`}, "/b"},
		"several links":         {[]string{`</a>; rel="self", </b>; rel="next" , </c>; rel=last`}, "/b"},
		"quoted comma":          {[]string{`</a>; title="x, </evil>; rel=next"; rel="self", </b>; rel="next"`}, "/b"},
		"quoted escapes": {[]string{
			`</a>; title="\"; rel=next, </c>; rel=\"next"; rel=self,</b>;rel=n\ext;rel=next`}, none},
		"escaped relation":        {[]string{`</a>; rel="n\ext"`}, "/a"},
		"comma in the URL":        {[]string{`</a?x=1,2;3>; rel="next"`}, "/a?x=1,2;3"},
		"empty elements":          {[]string{`, ,</a>; rel="next",,`}, "/a"},
		"spaces":                  {[]string{"  </a>  ;\trel = \"next\" ; "}, "/a"},
		"parameter without value": {[]string{`</a>; crossorigin; rel=next`}, "/a"},
		"the first rel counts":    {[]string{`</a>; rel=prev; rel=next`}, none},
		"about another page":      {[]string{`</a>; rel=next; anchor="/x"`}, none},
		"the same twice":          {[]string{`</a>; rel=next`, `</a>; rel=next`}, "/a"},
		"extended parameter":      {[]string{`</a>; title*=UTF-8''x%2c; rel=next`}, "/a"},
		"two targets":             {[]string{`</a>; rel=next, </b>; rel=next`}, schema},
		"two targets, headers":    {[]string{`</a>; rel=next`, `</b>; rel=next`}, schema},
		"no target":               {[]string{`<>; rel=next`}, schema},
		"no brackets":             {[]string{`/a; rel=next`}, schema},
		"open bracket":            {[]string{`</a; rel=next`}, schema},
		"open quote":              {[]string{`</a>; rel="next`}, schema},
		"open escape":             {[]string{`</a>; rel="next\`}, schema},
		"no semicolon":            {[]string{`</a> rel=next`}, schema},
		"garbage behind":          {[]string{`</a>; rel="next" x`}, schema},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				for _, link := range tc.links {
					w.Header().Add("Link", link)
				}
				answer(`[]`)(w, r)
			}, map[string]string{"EXPORT_CURSOR_IN": "link", "EXPORT_ITEMS_FIELD": "root"})
			p, err := fetchAll(t, c, bridge.Position{})
			if tc.want == schema {
				if f := wantFault(t, err); f.Reason != bridge.ReasonSchema || !strings.Contains(f.Error(), "EXPORT_CURSOR_IN") {
					t.Errorf("got %q %v", f.Reason, f)
				}
				return
			}
			if err != nil || p.Next != tc.want {
				t.Errorf("got %+v, %v, want %q", p, err, tc.want)
			}
		})
	}
}

// Some APIs name a next page always, and say in the link whether that page has results. Without
// results it is the end, except behind a full page, which gets no more items, and in a window behind
// the first page: there it shows that the API has other pages.
func TestLinkToNoResults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		cursor, results string
		size            int
		window          bool
		want            string
	}{
		{"", "false", 3, false, ""}, {"/a", "false", 3, false, ""}, {"/a", "true", 3, false, "/b"},
		{"/a", "false", 2, false, "/b"}, {"", "false", 3, true, "/b"}, {"/a", "false", 3, true, ""},
	} {
		cfg := config(t, map[string]string{"EXPORT_CURSOR_IN": "link", "EXPORT_ITEMS_FIELD": "root"})
		cfg.PageSize, cfg.AnyOrder = tc.size, tc.window
		c := serveWith(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", `</0>; rel="previous"; results="false"; cursor="0:0:1", </b>; rel="next"; results="`+
				tc.results+`"; cursor="0:100:0"`)
			answer(`[{"timestamp":1},{"timestamp":2}]`)(w, r)
		}, cfg)
		if p := mustFetch(t, c, bridge.Position{Cursor: tc.cursor}); p.Next != tc.want || p.Unread.Where != "" {
			t.Errorf("%+v leads to %q, %+v", tc, p.Next, p.Unread)
		}
	}
}

// A header's value is the cursor, unchanged, and may occur once only.
func TestCursorHeaders(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		values []string
		want   string
	}{
		"none": {nil, ""}, "empty": {[]string{""}, ""}, "a value": {[]string{"a, b=\"c\";"}, "a, b=\"c\";"},
		"the same twice": {[]string{"a", "a"}, "a"},
		"two":            {[]string{"a", "b"}, "!"}, "two, one empty": {[]string{"a", ""}, "!"},
		"not UTF-8": {[]string{"a\xff"}, "!"},
	} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["X-Next"] = tc.values
			answer(`{"items":[],"nextCursor":"decoy"}`)(w, r)
		}, map[string]string{"EXPORT_CURSOR_IN": "header", "EXPORT_CURSOR_FIELD": "X-NEXT"})
		p, err := fetchAll(t, c, bridge.Position{})
		if tc.want == "!" {
			if f := wantFault(t, err); f.Reason != bridge.ReasonSchema || !strings.Contains(f.Error(), "EXPORT_CURSOR_FIELD") {
				t.Errorf("%s: got %q %v", name, f.Reason, f)
			}
		} else if err != nil || p.Next != tc.want {
			t.Errorf("%s: got %+v, %v, want %q", name, p, err, tc.want)
		}
	}
}
