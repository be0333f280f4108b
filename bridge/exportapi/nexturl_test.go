package exportapi_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"exportbridge/bridge"
)

// The next request is the next URL, with the key. The cursor between them contains no
// secret.
func TestNextURLIsRequested(t *testing.T) {
	t.Parallel()
	const key = "&api_key=sk-test%2FKey%2B93%3D%2541"
	inQuery := func(params string) map[string]string {
		return map[string]string{"EXPORT_PARAMS": params, "EXPORT_KEY_QUERY": "api_key"}
	}
	inHeader := func(params string) map[string]string { return map[string]string{"EXPORT_PARAMS": params} }
	for name, tc := range map[string]struct {
		vars       map[string]string
		next, want string
		secret     string // must be in no cursor
	}{
		"repeated, in order": {inHeader("type=a,type=b"), "?type=a&type=b&type=c&after=1",
			"?type=a&type=b&type=c&after=1", "type=a"},
		"repeated, other order":   {inHeader("type=a,type=b"), "?type=b&after=1&type=a", "?type=b&after=1&type=a", "type=b"},
		"only in the first":       {inHeader("from=log1"), "?page_token=xyz", "?page_token=xyz", "log1"},
		"only in the first, path": {inHeader("from=log1"), "/v1/events/2", "", "log1"},
		"only in the first, key":  {inQuery("from=log1"), "?page_token=xyz", "?page_token=xyz" + key, "log1"},
		"emptied":                 {inHeader("from=log1"), "?from=&after=1", "?from=&after=1", "log1"},
		"replaced":                {inHeader("from=log1"), "?from=log2&after=1", "?from=log2&after=1", "log1"},
		"kept": {inHeader("tenant=a%2Cc"), "?x=1&tenant=a%2cc&after=1", "?x=1&tenant=a%2Cc&after=1",
			"a%2"},
		"no name":            {inHeader("tenant=t"), "?=x&after=1", "?=x&after=1", "tenant=t"},
		"no name, no params": {nil, "?=x&after=1", "?=x&after=1", testKey},
		"own key dropped":    {inQuery(""), "?api_key=mine&after=1&api_key", "?after=1" + key, "mine"},

		"key under another name": {inQuery(""), "?after=1&access_token=sk-test%2FKey%2B93%3D%2541&x=2",
			"?after=1&access_token=sk-test%2FKey%2B93%3D%2541&x=2" + key, "sk-test"},
		"key in other escapes": {inQuery(""), "?t=%73k-test/Key%2b93=%2541", "?t=sk-test%2FKey%2B93%3D%2541" + key,
			"k-test"},
		"key under its name": {inQuery(""), "?after=1&api_key=sk-test%2FKey%2B93%3D%2541", "?after=1" + key, "sk-test"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen recorder
			vars := map[string]string{"EXPORT_CURSOR_IN": "link", "EXPORT_PATH": "/v1/events"}
			for k, v := range tc.vars {
				if v != "" {
					vars[k] = v
				}
			}
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				seen.saw(r)
				w.Header().Set("Link", "<"+tc.next+`>; rel="next"`)
				answer(emptyPage)(w, r)
			}, vars)
			p := mustFetch(t, c, bridge.Position{})
			if strings.Contains(p.Next, tc.secret) {
				t.Errorf("the cursor %s has %s", p.Next, tc.secret)
			}
			again := mustFetch(t, c, bridge.Position{Cursor: p.Next})
			want := tc.want
			if !strings.HasPrefix(want, "/") {
				want = "/v1/events" + want
			}
			if tc.want == "" {
				want = tc.next
			}
			if got := seen.all()[1].RequestURI; got != want {
				t.Errorf("requested %s for %s, want %s", got, p.Next, want)
			}
			if again.Next != p.Next {
				t.Errorf("a page that names itself has the cursor %s, want %s", again.Next, p.Next)
			}
		})
	}
}

// A cursor that no page named gets the static parameters that it lacks. If a page names it,
// the page is the tail.
func TestCursorOfAnOperator(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ cursor, want, next string }{
		"none named":  {"/events?after=1", "/events?after=1&from=log1&tenant=t", "/events?after=1&tenant=t&from=log1"},
		"none echoed": {"/events?after=1", "/events?after=1&from=log1&tenant=t", "/events?after=1"},
		"one named": {"/events?from=log2&after=1", "/events?from=log2&after=1&tenant=t",
			"/events?from=log2&after=1&tenant=t"},
		"one of the API":     {"/events?from=&after=1", "/events?from=&after=1&tenant=t", "/events?from=&after=1&tenant=t"},
		"no longer set":      {"/events?after=1&from=#2&tenant=#1", "/events?after=1&tenant=t", "/events?after=1&tenant=t"},
		"the one of a page":  {"/events?from=#1&after=1&", "/events?from=log1&after=1", "/events?after=1&from=log1"},
		"a page without any": {"/events?after=1#", "/events?after=1", "/events?after=1"},
	} {
		var seen recorder
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			seen.saw(r)
			answer(`{"items":[],"nextCursor":`+quote(tc.next)+`}`)(w, r)
		}, map[string]string{"EXPORT_CURSOR_IN": "next-url", "EXPORT_PARAMS": "from=log1,tenant=t"})
		p, err := fetchAll(t, c, bridge.Position{Cursor: tc.cursor})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := seen.all()[0].RequestURI; got != tc.want || p.Next != tc.cursor {
			t.Errorf("%s: requested %s, want %s; next %s, want a tail", name, got, tc.want, p.Next)
		}
	}
}

// The start of a stream fills EXPORT_PARAMS in each request, also in one for a next URL. No
// cursor shows the filled parameter.
func TestNextURLWithStart(t *testing.T) {
	t.Parallel()
	const start = 1_700_000_000_001
	for name, tc := range map[string]struct {
		params, next string
		cursor       string // of an operator, "" for that of the page
		want         string
	}{
		"lacks it": {"q=at>{start}", "?after=1", "", "?after=1&pageSize=1000&q=at%3E1700000000001"},
		"has it": {"q=t:s3cret at>{start}", "?q=t%3As3cret%20at%3E1700000000001&pageSize=9&after=1", "",
			"?q=t%3As3cret%20at%3E1700000000001&pageSize=9&after=1"},
		"of an operator": {"q=at>{start}", "?after=1", "/events?pageSize=9&after=1",
			"?pageSize=9&after=1&q=at%3E1700000000001"},
		"stored with its value": {"q=at>{start}", "?after=1", "/events?q=at%3E1700000000000&pageSize=9&after=1#",
			"?q=at%3E1700000000000&pageSize=9&after=1"},
		"only a bound":                 {"from={start}", "?after=1", "", "?after=1&pageSize=1000"},
		"only a bound, of an operator": {"from={start}", "?after=1", "/events?after=1", "?after=1&pageSize=1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen recorder
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				seen.saw(r)
				w.Header().Set("Link", "<"+tc.next+`>; rel="next"`)
				answer(emptyPage)(w, r)
			}, map[string]string{"EXPORT_CURSOR_IN": "link", "EXPORT_START_PARAM": "none", "EXPORT_PARAMS": tc.params,
				"EXPORT_NEXT_PARAMS": "add-missing"})
			cursor := tc.cursor
			if cursor == "" {
				cursor = mustFetch(t, c, bridge.Position{Start: start}).Next
			}
			if strings.Contains(cursor, "s3cret") {
				t.Errorf("the cursor %s has the parameter", cursor)
			}
			mustFetch(t, c, bridge.Position{Start: start, Cursor: cursor})
			all := seen.all()
			if got := all[len(all)-1].RequestURI; got != "/events"+tc.want {
				t.Errorf("requested %s for %s, want %s", got, cursor, tc.want)
			}
		})
	}
}

// A position without a start is refused where EXPORT_PARAMS requires one, also if it has a
// cursor. A cursor that is sent alone requires none.
func TestCursorWithoutStart(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"EXPORT_START_PARAM": "none", "EXPORT_PARAMS": "q=at>{start}"}
	for in, cursor := range map[string]string{"body": "c", "link": "/events?after=1"} {
		vars["EXPORT_CURSOR_IN"] = in
		_, err := fetchAll(t, serve(t, answer(emptyPage), vars), bridge.Position{Cursor: cursor})
		if f := wantFault(t, err); f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig ||
			!strings.Contains(f.Error(), `no start for {start} in "q" of EXPORT_PARAMS`) ||
			!strings.HasPrefix(f.Hint, "reset the stream to a time") {
			t.Errorf("%s: %v, hint %q", in, f, f.Hint)
		}
	}
	vars["EXPORT_CURSOR_IN"], vars["EXPORT_CURSOR_ALONE"] = "body", "true"
	mustFetch(t, serve(t, answer(emptyPage), vars), bridge.Position{Cursor: "c"})
}

// The host of a next URL is not used as a format.
func TestStrayHostIsText(t *testing.T) {
	t.Parallel()
	c := serve(t, answer(`{"items":[],"nextCursor":"http://a%25sb%25d.example/x"}`),
		map[string]string{"EXPORT_CURSOR_IN": "next-url"})
	_, err := fetchAll(t, c, bridge.Position{})
	if f := wantFault(t, err); !strings.Contains(f.Error(), "next URL to host a%sb%d.example is not on 127.0.0.1") {
		t.Errorf("got %v", f)
	}
}

// A cursor that contains a credential in any form is neither followed nor stored.
func TestSecretInCursor(t *testing.T) {
	t.Parallel()
	const escaped = "sk-test%2FKey%2B93%3D%2541"
	inLink := func(vars ...string) map[string]string {
		all := map[string]string{"EXPORT_CURSOR_IN": "next-url", "EXPORT_PATH": "/v1/events"}
		for i := 0; i < len(vars); i += 2 {
			all[vars[i]] = vars[i+1]
		}
		return all
	}
	static := inLink("EXPORT_HEADERS", "X-Token: Bearer st4tic-token")
	basic := inLink("EXPORT_AUTH", "basic", "EXPORT_AUTH_USER", "ann", "EXPORT_API_KEY", "pa55word")
	for name, tc := range map[string]struct {
		vars       map[string]string
		next, want string // in the error
	}{
		"key as a parameter": {inLink(), "?access_token=" + escaped, "contains EXPORT_API_KEY or"},
		"key inside a parameter": {inLink(), "?q=token%3D" + url.QueryEscape(escaped) + "%26a%3Db",
			"contains EXPORT_API_KEY or"},
		"key in a path": {inLink(), "/v1/events/" + strings.Replace(escaped, "%2F", "-", 1) + "/x?t=x-" +
			escaped, "contains EXPORT_API_KEY or"},
		"key in other escapes": {inLink(), "?t=%73k-test/Key%2b93=%2541", "contains EXPORT_API_KEY or"},
		"key in base64": {inLink(), "?t=" + base64.URLEncoding.EncodeToString([]byte(`{"k":"`+testKey+`"}`)),
			"contains EXPORT_API_KEY or"},
		"key inside, sent in a URL": {inLink("EXPORT_KEY_QUERY", "api_key"), "?q=token%3D" + url.QueryEscape(escaped),
			"contains EXPORT_API_KEY or"},
		"key with its prefix": {inLink("EXPORT_KEY_PREFIX", "Token"), "?t=Token+" + escaped,
			"contains EXPORT_API_KEY or"},
		"password":                   {basic, "?t=pa55word", "contains EXPORT_API_KEY or"},
		"user and password":          {basic, "?t=YW5uOnBhNTV3b3Jk", "contains EXPORT_API_KEY or"},
		"a static header":            {static, "?t=Bearer+st4tic-token", "contains the header X-Token of EXPORT_HEADERS"},
		"the end of a static header": {static, "?t=st4tic-token&after=1", "contains the header X-Token of EXPORT_HEADERS"},
		"a static header in a path":  {static, "/v1/events/st4tic-token", "contains the header X-Token of EXPORT_HEADERS"},
		"a static parameter": {inLink("EXPORT_PARAMS", "api_key=st4tic-key"), "?api_key=st4tic-key&q=st4tic-key",
			"contains the parameter api_key of EXPORT_PARAMS"},
		"a plain cursor": {nil, "a." + testKey + ".b", "contains EXPORT_API_KEY or"},
		"a nested cursor": {map[string]string{"EXPORT_CURSOR_FIELD": "/meta/next"}, testKey,
			"contains EXPORT_API_KEY or"},
		"a header": {map[string]string{"EXPORT_CURSOR_IN": "header", "EXPORT_CURSOR_FIELD": "X-Next"},
			testKey, "contains EXPORT_API_KEY or"},
		"the scheme of a header":   {static, "?t=Bearer", ""},
		"a part of the key":        {inLink(), "?t=sk-test", ""},
		"a parameter of no secret": {inLink("EXPORT_PARAMS", "actor=somebody"), "?q=somebody", ""},
		"the key under its name":   {inLink("EXPORT_KEY_QUERY", "api_key"), "?after=1&api_key=" + escaped, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Next", tc.next)
				answer(`{"items":[],"nextCursor":`+quote(tc.next)+`,"meta":{"next":`+quote(tc.next)+`}}`)(w, r)
			}, tc.vars)
			_, err := fetchAll(t, c, bridge.Position{})
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if f := wantFault(t, err); f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig || f.Hint == "" ||
				!strings.Contains(f.Error(), tc.want) {
				t.Errorf("%v %s %v, want %s", f.Class, f.Reason, f, tc.want)
			}
		})
	}
}

// A stored cursor that contains a credential is not requested.
func TestSecretInStoredCursor(t *testing.T) {
	t.Parallel()
	for name, vars := range map[string]map[string]string{"plain": nil, "next URL": {"EXPORT_CURSOR_IN": "next-url"},
		"POST": {"EXPORT_METHOD": "POST"}} {
		var seen recorder
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			seen.saw(r)
			answer(emptyPage)(w, r)
		}, vars)
		for range 2 {
			_, err := fetchAll(t, c, bridge.Position{Cursor: "/events?t=" + url.QueryEscape(testKey)})
			if f := wantFault(t, err); f.Class != bridge.Permanent || f.HintCode != bridge.HintCursorRejected ||
				!strings.Contains(f.Error(), "contains EXPORT_API_KEY or") {
				t.Errorf("%s: %v", name, f)
			}
		}
		if n := len(seen.all()); n != 0 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

// LeakInCursor finds the credentials of all settings.
func TestLeakInCursor(t *testing.T) {
	t.Parallel()
	cfg := config(t, map[string]string{
		"EXPORT_AUTH": "oauth2", "EXPORT_OAUTH2_CLIENT_ID": "client", "EXPORT_OAUTH2_TOKEN_URL": "http://127.0.0.1:1",
		"EXPORT_API_KEY":       "cl1ent-secret",
		"EXPORT_OAUTH2_PARAMS": "client_assertion=4ssertion-01,audience=https://api",
		"EXPORT_HEADERS":       "X-Token: Bearer st4tic-token", "EXPORT_PARAMS": "api_key=st4tic-key,actor=somebody",
	})
	for cursor, want := range map[string]string{
		"a.cl1ent-secret.b": "EXPORT_API_KEY or its token",
		"?t=4ssertion-01":   "the parameter client_assertion of EXPORT_OAUTH2_PARAMS",
		"st4tic-token":      "the header X-Token of EXPORT_HEADERS",
		"?a=st4tic-key":     "the parameter api_key of EXPORT_PARAMS",
		"":                  "", "https://api": "", "somebody": "", "client": "",
	} {
		if got := cfg.LeakInCursor(cursor); got != want {
			t.Errorf("%s: %q, want %q", cursor, got, want)
		}
	}
}

// No cursor puts the credential of a header into a URL: anybody with access to Redis can
// store one.
func TestCredentialIsInNoURL(t *testing.T) {
	t.Parallel()
	var seen recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen.saw(r)
		answer(emptyPage)(w, r)
	}, map[string]string{"EXPORT_CURSOR_IN": "link", "EXPORT_HEADERS": "X-Token: Bearer st4tic-token",
		"EXPORT_PARAMS": "tenant=t"})
	for _, name := range []string{"auth.0", "auth.1", "X-Token.0", "X-Token.1", "auth", "x", "1"} {
		for _, cursor := range []string{"/events?x=#" + name, "/events/#" + name, "/events?tenant=#1&x=#" + name + "#",
			"/events?%78=#" + name} {
			_, err := fetchAll(t, c, bridge.Position{Cursor: cursor})
			if name == "1" && strings.Contains(cursor, "=#1") {
				continue // the number of a static parameter that is no longer set
			}
			if f := wantFault(t, err); f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig ||
				!strings.Contains(f.Error(), "names a credential") {
				t.Errorf("%s: %v", cursor, f)
			}
		}
	}
	for _, r := range seen.all() {
		if strings.Contains(r.RequestURI, "sk-test") || strings.Contains(r.RequestURI, "st4tic") {
			t.Errorf("requested %s", r.RequestURI)
		}
	}
}
