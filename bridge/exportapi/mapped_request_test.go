package exportapi_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
)

// TestRequests has what is sent as the query of a GET and as the body of a POST.
func TestRequests(t *testing.T) {
	t.Parallel()
	window := bridge.Position{Start: 1_700_000_000_001, End: 1_700_000_001_002, Window: true}
	named := map[string]string{"EXPORT_START_PARAM": "from", "EXPORT_END_PARAM": "to", "EXPORT_PAGE_SIZE_PARAM": "n",
		"EXPORT_CURSOR_PARAM": "after", "EXPORT_PAGE_SIZE": "7", "EXPORT_RESOURCE": "users"}
	with := func(pairs ...string) map[string]string {
		vars := maps.Clone(named)
		for i := 0; i < len(pairs); i += 2 {
			vars[pairs[i]] = pairs[i+1]
		}
		return vars
	}
	alone := func(pairs ...string) map[string]string {
		return with(append(pairs, "EXPORT_CURSOR_ALONE", "true", "EXPORT_PARAMS", "a=1")...)
	}
	paths := map[string]string{"": "/events", "events": "/events", "sessions": "/session", "users": "/user"}
	at := func(cursor string) bridge.Position {
		w := window
		w.Cursor = cursor
		return w
	}
	for name, tc := range map[string]struct {
		vars  map[string]string
		at    bridge.Position
		query string
		body  string // of a POST
		path  string // "" for that of the resource
	}{
		"nothing set": {query: "pageSize=1000"},
		"bounds":      {at: bridge.Position{Start: 1000, End: 2000}, query: "end=2000&pageSize=1000&start=1000"},
		"no window, no bounds": {at: bridge.Position{Cursor: testCursor, Start: 1000, End: 2000},
			query: "cursor=" + strings.ReplaceAll(url.QueryEscape(testCursor), "+", "%20") + "&pageSize=1000"},
		"event types": {vars: map[string]string{"EXPORT_EVENTS": "orderPlaced, a b&c"}, at: bridge.Position{Cursor: "c"},
			query: "cursor=c&events=orderPlaced&events=a%20b%26c&pageSize=1000"},
		"sessions": {vars: with("EXPORT_RESOURCE", "sessions", "EXPORT_EVENTS", "orderPlaced"), query: "n=7"},
		"a path":   {vars: with("EXPORT_PATH", "v2/log"), query: "n=7", path: "/v2/log"},
		"no key in a header": {vars: with("EXPORT_KEY_QUERY", "k", "EXPORT_KEY_HEADER", "Authorization"),
			query: "k=sk-test%2FKey%2B93%3D%2541&n=7"},

		"milliseconds": {vars: with(), at: window, query: "from=1700000000001&n=7&to=1700000001002"},
		"seconds": {vars: with("EXPORT_TIME_FORMAT", "s", "EXPORT_RESOURCE", "events"), at: window,
			query: "from=1700000000&n=7&to=1700000002"},
		"whole seconds": {vars: with("EXPORT_TIME_FORMAT", "s", "EXPORT_RESOURCE", "events"),
			at: bridge.Position{Start: 1000, End: 2000, Window: true}, query: "from=1&n=7&to=2"},
		"before 1970": {vars: with("EXPORT_TIME_FORMAT", "s", "EXPORT_RESOURCE", "events"),
			at: bridge.Position{Start: -1, End: -1, Window: true}, query: "from=-1&n=7&to=0"},
		"microseconds": {vars: with("EXPORT_TIME_FORMAT", "us"), at: window,
			query: "from=1700000000001000&n=7&to=1700000001002000"},
		"microseconds, the largest": {vars: with("EXPORT_TIME_FORMAT", "us"), at: bridge.Position{Start: bridge.MaxNumber},
			query: "from=72057594037927936000&n=7"},
		"RFC 3339": {vars: with("EXPORT_TIME_FORMAT", "rfc3339"), at: window,
			query: "from=2023-11-14T22%3A13%3A20.001Z&n=7&to=2023-11-14T22%3A13%3A21.002Z"},
		"RFC 3339, whole seconds": {vars: with("EXPORT_TIME_FORMAT", "rfc3339-seconds", "EXPORT_RESOURCE", "events"),
			at: window, query: "from=2023-11-14T22%3A13%3A20Z&n=7&to=2023-11-14T22%3A13%3A22Z"},
		"no page size": {vars: with("EXPORT_PAGE_SIZE_PARAM", "none"), at: at("c"),
			query: "after=c&from=1700000000001&to=1700000001002"},
		"static": {vars: with("EXPORT_PARAMS", "a=b%2Cc%26,a=2\nd="), at: bridge.Position{Cursor: "c"},
			query: "after=c&a=b%2Cc%26&a=2&d=&n=7"},
		"static, key": {vars: with("EXPORT_PARAMS", "z=1", "EXPORT_KEY_QUERY", "k"),
			at: bridge.Position{Cursor: "c"}, query: "after=c&k=sk-test%2FKey%2B93%3D%2541&n=7&z=1"},

		"POST": {vars: with("EXPORT_METHOD", "POST"), at: at("c<&>"),
			body: `{"after":"c<&>","from":1700000000001,"to":1700000001002,"n":7}`},
		"POST, key in query": {vars: with("EXPORT_METHOD", "POST", "EXPORT_KEY_QUERY", "k", "EXPORT_PARAMS", "z=1"),
			at: bridge.Position{}, query: "k=sk-test%2FKey%2B93%3D%2541", body: `{"n":7,"z":"1"}`},
		"POST, RFC 3339": {vars: with("EXPORT_METHOD", "POST", "EXPORT_TIME_FORMAT", "rfc3339"), at: window,
			body: `{"from":"2023-11-14T22:13:20.001Z","to":"2023-11-14T22:13:21.002Z","n":7}`},
		"POST, RFC 3339, seconds": {
			vars: with("EXPORT_METHOD", "POST", "EXPORT_TIME_FORMAT", "rfc3339-seconds", "EXPORT_RESOURCE", "events"),
			at:   window, body: `{"from":"2023-11-14T22:13:20Z","to":"2023-11-14T22:13:22Z","n":7}`},
		"POST, seconds": {
			vars: with("EXPORT_METHOD", "POST", "EXPORT_TIME_FORMAT", "s", "EXPORT_RESOURCE", "events"), at: window,
			body: `{"from":1700000000,"to":1700000002,"n":7}`},
		"POST, integer": {vars: with("EXPORT_METHOD", "POST"),
			at: bridge.Position{Cursor: "90071992547409931234567890"}, body: `{"after":90071992547409931234567890,"n":7}`},
		"POST, repeated": {vars: with("EXPORT_METHOD", "POST", "EXPORT_PARAMS", "type=b,x=1,type=a"),
			body: `{"type":["b","a"],"x":"1","n":7}`},
		"POST, zero": {vars: with("EXPORT_METHOD", "POST"), at: bridge.Position{Cursor: "0"},
			body: `{"after":0,"n":7}`},
		"POST, digits": {vars: with("EXPORT_METHOD", "POST"), at: bridge.Position{Cursor: `"17"`},
			body: `{"after":"17","n":7}`},
		"POST, zeros": {vars: with("EXPORT_METHOD", "POST"), at: bridge.Position{Cursor: "007"},
			body: `{"after":"007","n":7}`},
		"POST, a lone quote": {vars: with("EXPORT_METHOD", "POST"), at: bridge.Position{Cursor: `"`},
			body: `{"after":"\"","n":7}`},
		"POST, no page size": {vars: with("EXPORT_METHOD", "POST", "EXPORT_PAGE_SIZE_PARAM", "none"), body: `{}`},
		"POST, event types": {
			vars: with("EXPORT_METHOD", "POST", "EXPORT_RESOURCE", "events", "EXPORT_EVENTS", "a,b"),
			body: `{"n":7,"events":["a","b"]}`},
		"cursor alone":            {vars: alone(), at: at("c&"), query: "after=c%26"},
		"cursor alone, no window": {vars: alone(), at: bridge.Position{Cursor: "c&", Start: 1}, query: "after=c%26"},
		"cursor alone, first":     {vars: alone(), at: window, query: "a=1&from=1700000000001&n=7&to=1700000001002"},
		"cursor alone, key": {vars: alone("EXPORT_KEY_QUERY", "k"), at: bridge.Position{Cursor: "c"},
			query: "after=c&k=sk-test%2FKey%2B93%3D%2541"},
		"cursor alone, key, bounds": {vars: alone("EXPORT_KEY_QUERY", "k"), at: at("c"),
			query: "after=c&k=sk-test%2FKey%2B93%3D%2541"},
		"cursor alone, event types": {vars: alone("EXPORT_RESOURCE", "events", "EXPORT_EVENTS", "a,b"), at: at("c"),
			query: "after=c"},
		"nothing but the cursor": {vars: with("EXPORT_PAGE_SIZE_PARAM", "none"), at: bridge.Position{Cursor: "c"},
			query: "after=c"},
		"cursor alone, POST": {vars: alone("EXPORT_METHOD", "POST"), at: at("c"), body: `{"after":"c"}`},
		"cursor alone, POST, first": {vars: alone("EXPORT_METHOD", "POST"), at: window,
			body: `{"a":"1","from":1700000000001,"to":1700000001002,"n":7}`},
		"cursor alone, POST, digits": {vars: alone("EXPORT_METHOD", "POST"),
			at: bridge.Position{Cursor: "90071992547409931234567890"}, body: `{"after":90071992547409931234567890}`},

		"a blank": {vars: with("EXPORT_PARAMS", "$orderby=created_at asc,q=a+b"),
			at: bridge.Position{Cursor: "c d+"}, query: "after=c%20d%2B&%24orderby=created_at%20asc&n=7&q=a%2Bb"},
		"a blank, first page": {vars: with("EXPORT_PARAMS", "order by=created_at asc"), at: window,
			query: "from=1700000000001&n=7&order%20by=created_at%20asc&to=1700000001002"},
		"a blank in names": {vars: with("EXPORT_CURSOR_PARAM", "next page"), at: bridge.Position{Cursor: " "},
			query: "next%20page=%20&n=7"},
		"a blank in the key": {vars: with("EXPORT_KEY_QUERY", "k", "EXPORT_API_KEY", "a b"), query: "k=a%20b&n=7"},
		"POST, places": {
			vars: with("EXPORT_METHOD", "POST", "EXPORT_START_PARAM", "/filter/from", "EXPORT_END_PARAM", "/filter/to",
				"EXPORT_PAGE_SIZE_PARAM", "/page/limit", "EXPORT_CURSOR_PARAM", "/page/cursor", "EXPORT_PARAMS",
				"sort=timestamp,/filter/kind=a"), at: at("c"),
			body: `{"filter":{"from":1700000000001,"kind":"a","to":1700000001002},"page":{"cursor":"c","limit":7},` +
				`"sort":"timestamp"}`},
		"POST, places, first": {
			vars: with("EXPORT_METHOD", "POST", "EXPORT_PAGE_SIZE_PARAM", "/page/limit", "EXPORT_CURSOR_PARAM", "/page/cursor"),
			body: `{"page":{"limit":7}}`},
		"POST, places, cursor alone": {vars: alone("EXPORT_METHOD", "POST", "EXPORT_CURSOR_PARAM", "/page/cursor"),
			at: at("17"), body: `{"page":{"cursor":17}}`},
		"POST, an array of places": {
			vars: with("EXPORT_METHOD", "POST", "EXPORT_CURSOR_PARAM", "/search_after/0", "EXPORT_PAGE_SIZE_PARAM", "none"),
			at:   bridge.Position{Cursor: "c"}, body: `{"search_after":["c"]}`},
		"POST, a place repeated": {vars: with("EXPORT_METHOD", "POST", "EXPORT_PARAMS", "/f/t=b,/f/t=a"),
			body: `{"f":{"t":["b","a"]},"n":7}`},
		"POST, names with a slash": {vars: with("EXPORT_METHOD", "POST", "EXPORT_PARAMS", "a/b=1,/c~1d/~0=2"),
			body: `{"a/b":"1","c/d":{"~":"2"},"n":7}`},
		"POST, typed": {
			vars: with("EXPORT_METHOD", "POST", "EXPORT_PARAMS", `include:=true,ids:=[7,8],/f/n:=1.50,o:={"a":null},x=true`),
			body: `{"f":{"n":1.50},"ids":[7,8],"include":true,"n":7,"o":{"a":null},"x":"true"}`},
		"POST, typed, repeated": {vars: with("EXPORT_METHOD", "POST", "EXPORT_PARAMS", "ids:=7,ids=8"),
			body: `{"ids":[7,"8"],"n":7}`},
		"POST, typed, percent-encoded": {vars: with("EXPORT_METHOD", "POST", "EXPORT_PARAMS", "ids:=%5B7%2C8%5D"),
			body: `{"ids":[7,8],"n":7}`},

		"bounds in a value": {
			vars: with("EXPORT_TIME_FORMAT", "rfc3339", "EXPORT_START_PARAM", "none", "EXPORT_END_PARAM", "none",
				"EXPORT_PARAMS", "$filter=at ge {start} and at le {end},q=%7Bend%7D,a=b"), at: window,
			query: "%24filter=at%20ge%202023-11-14T22%3A13%3A20.001Z%20and%20at%20le%202023-11-14T22%3A13%3A21.002Z&a=b&n=7&" +
				"q=%7Bend%7D"},
		"bounds in a value, next page": {
			vars: with("EXPORT_TIME_FORMAT", "s", "EXPORT_RESOURCE", "events", "EXPORT_START_PARAM", "none", "EXPORT_END_PARAM",
				"none", "EXPORT_PARAMS", "t={start}..{end}"), at: at("c"), query: "after=c&n=7&t=1700000000..1700000002"},
		"a start in a value": {vars: with("EXPORT_START_PARAM", "none", "EXPORT_PARAMS", "q=at>{start}"),
			at: window, query: "n=7&q=at%3E1700000000001&to=1700000001002"},
		"a start in a value, no window": {vars: with("EXPORT_START_PARAM", "none", "EXPORT_PARAMS", "q=at>{start}"),
			at: bridge.Position{Start: 1, Cursor: "c"}, query: "after=c&n=7&q=at%3E1"},
		"bounds as values": {
			vars: with("EXPORT_START_PARAM", "start", "EXPORT_END_PARAM", "end", "EXPORT_PARAMS",
				"created[gte]={start},created[lt]={end}"), at: window,
			query: "created%5Bgte%5D=1700000000001&created%5Blt%5D=1700000001002&n=7"},
		"bounds as values, not given": {
			vars:  with("EXPORT_START_PARAM", "none", "EXPORT_END_PARAM", "none", "EXPORT_PARAMS", "from={start},to={end},a=b"),
			query: "a=b&n=7"},
		"POST, bounds in values": {
			vars: with("EXPORT_METHOD", "POST", "EXPORT_START_PARAM", "none", "EXPORT_END_PARAM", "none", "EXPORT_PARAMS",
				`/q/range:={"gte":{start},"lt":{end}},/q/text="{start}"`), at: window,
			body: `{"n":7,"q":{"range":{"gte":1700000000001,"lt":1700000001002},"text":"\"1700000000001\""}}`},
		"POST, bounds in values, quoted": {
			vars: with("EXPORT_METHOD", "POST", "EXPORT_TIME_FORMAT", "rfc3339", "EXPORT_START_PARAM", "none", "EXPORT_PARAMS",
				`f:={"gte":"{start}"}`), at: at("c"),
			body: `{"after":"c","n":7,"f":{"gte":"2023-11-14T22:13:20.001Z"},"to":"2023-11-14T22:13:21.002Z"}`},

		"a start named events": {vars: with("EXPORT_RESOURCE", "events", "EXPORT_START_PARAM", "events"), at: window,
			query: "events=1700000000001&n=7&to=1700000001002"},
		"POST, no type named": {vars: with("EXPORT_METHOD", "POST", "EXPORT_RESOURCE", "events"), body: `{"n":7}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen recorder
			var body string
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				seen.saw(r)
				text, _ := io.ReadAll(r.Body)
				body = string(text)
				answer(emptyPage)(w, r)
			}, tc.vars)
			mustFetch(t, c, tc.at)
			r := seen.all()[0]
			path := paths[tc.vars["EXPORT_RESOURCE"]]
			if tc.path != "" {
				path = tc.path
			}
			head := http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"zstd, gzip"}}
			if tc.vars["EXPORT_KEY_QUERY"] == "" {
				head.Set("X-Api-Key", testKey)
			}
			for _, name := range []string{"Accept", "Accept-Encoding", "Authorization", "Cookie", "X-Api-Key"} {
				if got, want := r.Header.Get(name), head.Get(name); got != want {
					t.Errorf("header %s is %q, want %q", name, got, want)
				}
			}
			method, kind := http.MethodGet, ""
			if tc.body != "" {
				method, kind = http.MethodPost, "application/json"
			}
			if r.Method != method || r.URL.Path != path || r.URL.RawQuery != tc.query || r.Header.Get("Content-Type") != kind ||
				r.Header.Get("Idempotency-Key") != "" {
				t.Errorf("got %s %s, want %s %s?%s", r.Method, r.RequestURI, method, path, tc.query)
			}
			if tc.body == "" && body == "" {
				return
			}
			var got, want map[string]json.RawMessage
			if json.Unmarshal([]byte(body), &got) != nil || json.Unmarshal([]byte(tc.body), &want) != nil {
				t.Fatalf("body %s", body)
			}
			plain := cmp.Transformer("plain", func(m json.RawMessage) string {
				var text string
				if json.Unmarshal(m, &text) == nil {
					return "text " + text
				}
				return string(m)
			})
			if diff := cmp.Diff(want, got, plain); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

// Static headers replace those of the program, except the key's. No error shows them.
func TestStaticHeaders(t *testing.T) {
	t.Parallel()
	var seen recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen.saw(r)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"title":"tenant `+r.Header.Get("X-Tenant")+` and `+r.URL.Query().Get("secret")+
			` are wrong"}`)
	}, map[string]string{"EXPORT_HEADERS": "Accept: application/vnd.x+json, text/x\nX-Tenant: " +
		"sk-test-tenant\nUser-Agent: me", "EXPORT_PARAMS": "secret=sk-test%2C1"})
	_, err := fetchAll(t, c, bridge.Position{})
	f := wantFault(t, err)
	if !strings.Contains(f.Error(), "tenant") || strings.Contains(f.Error(), "sk-test") {
		t.Errorf("got %v", f)
	}
	h := seen.all()[0].Header
	if h.Get("Accept") != "application/vnd.x+json, text/x" || h.Get("X-Tenant") != "sk-test-tenant" ||
		h.Get("User-Agent") != "me" || h.Get("X-Api-Key") != testKey {
		t.Errorf("got %v", h)
	}
}

// No text inside a JSON value is shown.
func TestStaticBody(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"title":"tenant sk-test-tenant of 123456 is wrong"}`)
	}, map[string]string{"EXPORT_METHOD": "POST", "EXPORT_PARAMS": `of:={"tenant":["sk-test-tenant"],"id":123456}`})
	_, err := fetchAll(t, c, bridge.Position{})
	if f := wantFault(t, err); !strings.Contains(f.Error(), "tenant") || strings.Contains(f.Error(), "sk-test") ||
		strings.Contains(f.Error(), "123456") {
		t.Errorf("got %v", f)
	}
}

// A status rejects the cursor only if a cursor was sent.
func TestCursorStatuses(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bridge.Class{400: bridge.Permanent, 409: bridge.BadCursor, 410: bridge.BadCursor,
		404: bridge.Permanent, 500: bridge.Transient} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) },
			map[string]string{"EXPORT_CURSOR_STATUSES": "409,410"})
		_, err := fetchAll(t, c, bridge.Position{Cursor: testCursor})
		if f := wantFault(t, err); f.Class != want {
			t.Errorf("%d: %v", status, f.Class)
		}
		_, err = fetchAll(t, c, bridge.Position{})
		if f := wantFault(t, err); f.Class == bridge.BadCursor {
			t.Errorf("%d without a cursor: %v", status, f.Class)
		}
	}
}

// A connection that the server closes while it is idle causes no error.
func TestPostIsRepeated(t *testing.T) {
	t.Parallel()
	n := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n++
		body, _ := io.ReadAll(r.Body)
		if n == 2 && len(body) > 0 {
			panic(http.ErrAbortHandler) // before any byte of the answer
		}
		w.Header().Set("X-Body", strconv.Itoa(len(body)))
		answer(emptyPage)(w, r)
	}, map[string]string{"EXPORT_METHOD": "POST"})
	for range 2 {
		mustFetch(t, c, bridge.Position{Cursor: "c"})
	}
	if n != 3 {
		t.Errorf("%d requests", n)
	}
}
