package exportapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// quote writes s as a JSON string.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestNextCursor has the places of a cursor, and what may look like one. Fetch must find
// the cursor, and Decode must agree or refuse the page.
func TestNextCursor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body string
		want string // "schema" or "cut" for a fault
		next string
	}{
		"last":                     {body: `{"items":[],"nextCursor":"abc"}`, next: "abc"},
		"last, spaced":             {body: "{ \"items\" : [ ] , \"nextCursor\" :\t\"abc\" \r\n} \n", next: "abc"},
		"last, null":               {body: `{"items":[],"nextCursor":null}`},
		"last, empty":              {body: `{"items":[],"nextCursor":""}`},
		"first":                    {body: `{"nextCursor":"abc","items":[]}`, next: "abc"},
		"first, null":              {body: `{"nextCursor":null,"items":[]}`},
		"middle":                   {body: `{"items":[],"nextCursor":"abc","metadata":{}}`, next: "abc"},
		"absent":                   {body: `{"items":[]}`},
		"absent, last is a string": {body: `{"items":[],"x":"abc"}`},
		"absent, last is null":     {body: `{"items":[],"x":null}`},
		"escapes": {body: `{"items":[],"nextCursor":"\u003d\/\u00fc\ud83d\ude00\"\\"}`,
			next: "=/ü\U0001F600\"\\"},
		"escapes, first":             {body: `{"nextCursor":"\u003d\/\"\\","items":[]}`, next: "=/\"\\"},
		"ends in a backslash":        {body: `{"items":[],"nextCursor":"a\\"}`, next: `a\`},
		"ends in an escaped quote":   {body: `{"items":[],"nextCursor":"a\\\""}`, next: `a\"`},
		"quotes inside":              {body: `{"items":[],"nextCursor":"\",\"nextCursor\":\"x"}`, next: `","nextCursor":"x`},
		"escaped name":               {body: `{"items":[],"next\u0043ursor":"abc"}`, next: "abc"},
		"escaped name, first":        {body: `{"next\u0043ursor":"abc","it\u0065ms":[]}`, next: "abc"},
		"other case is another name": {body: `{"items":[],"nextcursor":"abc"}`},
		"decoy in metadata, last": {body: `{"items":[],"nextCursor":"abc","metadata":{"nextCursor":"decoy"}}`,
			next: "abc"},
		"decoy in metadata, no other": {body: `{"items":[],"metadata":{"nextCursor":"decoy"}}`},
		"decoy in an item":            {body: `{"nextCursor":"abc","items":[{"nextCursor":"decoy"}]}`, next: "abc"},
		"decoy in a string":           {body: `{"items":[],"nextCursor":"abc","x":"\"nextCursor\":\"decoy\"}"}`, next: "abc"},
		"decoy as a value":            {body: `{"items":[],"nextCursor":"abc","x":["nextCursor"]}`, next: "abc"},
		"an integer":                  {body: `{"items":[],"nextCursor":17}`, next: "17"},
		"an integer, first":           {body: `{"nextCursor":0,"items":[]}`, next: "0"},
		"an integer below zero":       {body: `{"items":[],"nextCursor":-1}`, next: "-1"},
		"an integer beyond 2^53": {body: `{"items":[],"nextCursor":90071992547409931234567890}`,
			next: "90071992547409931234567890"},
		"decoy as the last value": {body: `{"nextCursor":"abc","items":[],"x":"nextCursor"}`, next: "abc"},

		"twice":                     {body: `{"nextCursor":"a","items":[],"nextCursor":"b"}`, want: "schema"},
		"twice, the same":           {body: `{"nextCursor":"a","items":[],"nextCursor":"a"}`, want: "schema"},
		"twice, the last null":      {body: `{"nextCursor":"a","items":[],"nextCursor":null}`, want: "schema"},
		"twice, one escaped":        {body: `{"next\u0043ursor":"a","items":[],"nextCursor":"b"}`, want: "schema"},
		"twice, not last":           {body: `{"nextCursor":"a","nextCursor":"b","items":[]}`, want: "schema"},
		"a fraction":                {body: `{"items":[],"nextCursor":1.0}`, want: "schema"},
		"an exponent":               {body: `{"items":[],"nextCursor":1e3}`, want: "schema"},
		"minus zero":                {body: `{"items":[],"nextCursor":-0}`, want: "schema"},
		"a boolean":                 {body: `{"items":[],"nextCursor":false}`, want: "schema"},
		"an object":                 {body: `{"items":[],"nextCursor":{"nextCursor":"a"}}`, want: "schema"},
		"an array":                  {body: `{"nextCursor":["a"],"items":[]}`, want: "schema"},
		"lone surrogate":            {body: `{"items":[],"nextCursor":"a\ud800"}`, want: "schema"},
		"lone surrogate, first":     {body: `{"nextCursor":"\udc00a","items":[]}`, want: "schema"},
		"invalid UTF-8":             {body: "{\"items\":[],\"nextCursor\":\"a\xff\"}", want: "schema"},
		"invalid UTF-8, first":      {body: "{\"nextCursor\":\"a\xff\",\"items\":[]}", want: "schema"},
		"control character":         {body: "{\"items\":[],\"nextCursor\":\"a\x01\"}", want: "schema"},
		"bad escape":                {body: `{"items":[],"nextCursor":"a\x41"}`, want: "schema"},
		"items absent":              {body: `{"nextCursor":"abc"}`, next: "abc"},
		"items null":                {body: `{"items":null,"nextCursor":"abc"}`, next: "abc"},
		"items elsewhere":           {body: `{"data":[{}],"nextCursor":"abc"}`, want: "schema"},
		"items an object":           {body: `{"items":{},"nextCursor":"abc"}`, want: "schema"},
		"items a string":            {body: `{"items":"[]","nextCursor":"abc"}`, want: "schema"},
		"items twice":               {body: `{"items":[{}],"items":[],"nextCursor":"abc"}`, want: "schema"},
		"items in capitals":         {body: `{"ITEMS":[],"nextCursor":"abc"}`, want: "schema"},
		"metadata twice":            {body: `{"metadata":{},"metadata":{},"items":[]}`, want: "schema"},
		"trailing garbage":          {body: `{"items":[],"nextCursor":"abc"}x`, want: "schema"},
		"trailing brace":            {body: `{"items":[],"nextCursor":"abc"}}`, want: "schema"},
		"two documents":             {body: `{"items":[],"nextCursor":"a"} {"items":[],"nextCursor":"abc"}`, want: "schema"},
		"byte order mark":           {body: "\ufeff" + `{"items":[],"nextCursor":"abc"}`, next: "abc"},
		"null":                      {body: `null`, want: "schema"},
		"an array of items":         {body: `[{"nextCursor":"abc"}]`, want: "schema"},
		"bad literal inside items":  {body: `{"items":[{"a":nul}],"nextCursor":"abc"}`, want: "schema"},
		"leading zero in an item":   {body: `{"items":[{"a":01}],"nextCursor":"abc"}`, want: "schema"},
		"single quotes in an item":  {body: `{"items":[{'a':1}],"nextCursor":"abc"}`, want: "schema"},
		"trailing comma":            {body: `{"items":[{},],"nextCursor":"abc"}`, want: "schema"},
		"missing colon":             {body: `{"items" [],"nextCursor":"abc"}`, want: "schema"},
		"brace missing before it":   {body: `{"items":[{"nextCursor":"abc"}`, want: "cut"},
		"looks ended inside a page": {body: `{"items":[],"x":{"nextCursor":"decoy"}`, want: "cut"},
		"invalid UTF-8 in an item":  {body: "{\"items\":[{\"a\":\"\xff\"}],\"nextCursor\":\"abc\"}", next: "abc"},
		"too deep": {body: `{"items":[` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) +
			`],"nextCursor":"abc"}`, want: "schema"},
		"empty":              {body: ``, want: "schema"},
		"white space":        {body: " \n", want: "schema"},
		"cut in an item":     {body: `{"items":[{"a":"b`, want: "cut"},
		"cut before the end": {body: `{"items":[],"nextCursor":"abc"`, want: "cut"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, answer(tc.body), nil)
			p, err := fetchAll(t, c, bridge.Position{Cursor: testCursor})
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if p.Next != tc.next {
					t.Errorf("next %q, want %q", p.Next, tc.next)
				}
				return
			}
			f := wantFault(t, err)
			wantClass, wantCode := bridge.Malformed, "schema"
			if tc.want == "cut" {
				wantClass, wantCode = bridge.Transient, "decode"
			}
			if f.Class != wantClass || f.Code != wantCode || p != nil && len(p.Events) > 0 {
				t.Errorf("got class %v code %q (%v), want %v %q and no events", f.Class, f.Code, f, wantClass, wantCode)
			}
		})
	}
}

// TestEvents has what is read from items, whose bytes stay as they are.
func TestEvents(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		resource, pointer string
		item              string
		want              event
	}{
		"newest schema": {item: `{"eventId":"e","id":"x","userId":"u","timestamp":17,"payload":{"type":"t","@type":"x"},` +
			`"context":null}`, want: event{"e", "u", "t", "u", 17, ""}},
		"older schema": {item: `{"id":"x","userId":"u","timestamp":17,"payload":{"@type":"t"}}`,
			want: event{"x", "u", "t", "u", 17, ""}},
		"oldest schema": {item: `{"userId":"u","timestamp":-17,"payload":{}}`,
			want: event{absent, "u", absent, "u", -17, ""}},
		"untouched": {item: `{ "b":1e400, "a":9007199254740993.0, "d":"\ud800", "d":1, "timestamp":9223372036854775807 ,` +
			`"e":{"f":[{"timestamp":1}]} }`,
			want: event{absent, absent, absent, absent, 9223372036854775807, ""}},
		"empty ids": {item: `{"eventId":"","id":"","timestamp":1}`,
			want: event{absent, absent, absent, absent, 1, ""}},
		"empty id, then another": {item: `{"eventId":"","id":"x","timestamp":1}`,
			want: event{"x", absent, absent, absent, 1, ""}},
		"null id": {item: `{"eventId":null,"timestamp":1}`,
			want: event{absent, absent, absent, absent, 1, ""}},
		"number as id": {item: `{"eventId":12345678901234567890,"timestamp":1}`,
			want: event{"12345678901234567890", absent, absent, absent, 1, ""}},
		"boolean as id": {item: `{"eventId":true,"timestamp":1}`,
			want: event{absent, absent, absent, absent, 1, ""}},
		"id with half a char": {item: `{"eventId":"a\ud800","timestamp":1}`,
			want: event{absent, absent, absent, absent, 1, ""}},
		"escapes": {item: `{"event\u0049d":"\u0041","user\u0049d":"\n\ud83d\ude00","timestamp":1}`,
			want: event{"A", "\n\U0001F600", absent, absent, 1, ""}},
		"empty key": {item: `{"userId":"","timestamp":1}`, want: event{absent, "", absent, absent, 1, ""}},
		"null key": {item: `{"userId":null,"timestamp":1}`,
			want: event{absent, absent, absent, absent, 1, ""}},
		"object as key": {item: `{"userId":{},"timestamp":1}`, want: event{absent, absent, absent, absent, 1, ""}},
		"number as key": {item: `{"userId":1.50,"timestamp":1}`,
			want: event{absent, "1.50", absent, "1.50", 1, ""}},
		"boolean as key": {item: `{"userId":false,"timestamp":1}`,
			want: event{absent, "false", absent, "false", 1, ""}},
		"last of two counts": {item: `{"userId":"a","userId":"b","timestamp":1,"timestamp":2}`,
			want: event{absent, "b", absent, "b", 2, ""}},
		"last of two is null": {item: `{"userId":"a","userId":null,"timestamp":1}`,
			want: event{absent, absent, absent, absent, 1, ""}},
		"last of two payloads": {item: `{"payload":{"type":"t"},"payload":{},"timestamp":1}`,
			want: event{absent, absent, absent, absent, 1, ""}},
		"payload of another kind": {item: `{"payload":["type"],"timestamp":1}`,
			want: event{absent, absent, absent, absent, 1, ""}},
		"other case": {item: `{"USERID":"a","Timestamp":1}`,
			want: event{absent, absent, absent, absent, 0, bridge.DefectTime}},
		"time absent": {item: `{"userId":"u"}`, want: event{absent, "u", absent, "u", 0, bridge.DefectTime}},
		"time null": {item: `{"timestamp":null}`,
			want: event{absent, absent, absent, absent, 0, bridge.DefectTime}},
		"time in a string":     {item: `{"timestamp":"17"}`, want: event{absent, absent, absent, absent, 17, ""}},
		"time with a fraction": {item: `{"timestamp":17.9}`, want: event{absent, absent, absent, absent, 17, ""}},
		"time a text": {item: `{"timestamp":"2026-11-22T10:57:00Z"}`,
			want: event{absent, absent, absent, absent, 0, bridge.DefectTime}},
		"time with an exponent": {item: `{"timestamp":1e3}`,
			want: event{absent, absent, absent, absent, 0, bridge.DefectTime}},
		"time too large": {item: `{"timestamp":9223372036854775808}`,
			want: event{absent, absent, absent, absent, 0, bridge.DefectTime}},
		"a string as item": {item: `"x"`, want: event{absent, absent, absent, absent, 0, bridge.DefectNotObject}},
		"null as item":     {item: `null`, want: event{absent, absent, absent, absent, 0, bridge.DefectNotObject}},
		"an array as item": {item: `[{"timestamp":1}]`,
			want: event{absent, absent, absent, absent, 0, bridge.DefectNotObject}},
		"session": {resource: "sessions", item: `{"id":"s","userId":"u","closeTime":3,"timestamp":1}`,
			want: event{absent, "u", absent, "u", 3, ""}},
		"user": {resource: "users", item: `{"id":"s","userId":"u","lastModifiedTime":3}`,
			want: event{absent, "u", absent, "u", 3, ""}},
		"session still open": {resource: "sessions", item: `{"userId":"u","timestamp":1}`,
			want: event{absent, "u", absent, "u", bridge.NoTime, ""}},
		"session still open, null": {resource: "sessions", item: `{"closeTime":null}`,
			want: event{absent, absent, absent, absent, bridge.NoTime, ""}},
		"session closed in words": {resource: "sessions", item: `{"closeTime":"2026-11-01T00:00:00Z"}`,
			want: event{absent, absent, absent, absent, 0, bridge.DefectTime}},
		"session closed then open": {resource: "sessions", item: `{"closeTime":3,"closeTime":null}`,
			want: event{absent, absent, absent, absent, bridge.NoTime, ""}},
		"user never changed": {resource: "users", item: `{"userId":"u"}`,
			want: event{absent, "u", absent, "u", bridge.NoTime, ""}},
		"user changed at noon": {resource: "users", item: `{"lastModifiedTime":"noon"}`,
			want: event{absent, absent, absent, absent, 0, bridge.DefectTime}},
		"no key": {pointer: "none", item: `{"userId":"u","timestamp":1}`,
			want: event{absent, absent, absent, "u", 1, ""}},
		"nested key": {pointer: "/payload/a~1b/m~0n",
			item: `{"userId":"u","timestamp":1,"payload":{"type":"t","a/b":{"m~n":"k"}}}`,
			want: event{absent, "k", "t", "u", 1, ""}},
		"key in an array": {pointer: "/tags/1", item: `{"timestamp":1,"tags":["a",{"b":1},"c"]}`,
			want: event{absent, absent, absent, absent, 1, ""}},
		"key in an array, text": {pointer: "/tags/2", item: `{"timestamp":1,"tags":["a",{"b":1},"c"]}`,
			want: event{absent, "c", absent, absent, 1, ""}},
		"key equal to the id": {pointer: "/eventId", item: `{"timestamp":1,"eventId":"e"}`,
			want: event{"e", "e", absent, absent, 1, ""}},
		"key is the payload": {pointer: "/payload", item: `{"timestamp":1,"payload":{"type":"t"}}`,
			want: event{absent, absent, "t", absent, 1, ""}},
	} {
		for _, layout := range []string{`{"items":[%s,%s],"nextCursor":"c"}`, `{"nextCursor":"c","items":[%s , %s ]}`} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				body := fmt.Sprintf(layout, `{"timestamp":0,"userId":"before","eventId":"before","payload":{"type":"before"}}`,
					tc.item)
				resource := tc.resource
				if resource == "" {
					resource = "events"
				}
				cfg := config(t, map[string]string{"EXPORT_RESOURCE": resource})
				cfg.KeyPointer = tc.pointer
				p := must.Get(fetchAll(t, serveWith(t, answer(body), cfg), bridge.Position{}))(t)
				if p.Items != 2 || len(p.Events) != 2 {
					t.Fatalf("%d items, %d events, want 2", p.Items, len(p.Events))
				}
				e := p.Events[1]
				if diff := cmp.Diff(tc.want, eventOf(&e)); diff != "" {
					t.Errorf("event (-want +got):\n%s", diff)
				}
				if string(e.Raw) != tc.item || e.Index != 1 || cap(e.Raw) != len(e.Raw) || cap(e.Key) != len(e.Key) {
					t.Errorf("raw %q cap %d, index %d, want %q", e.Raw, cap(e.Raw), e.Index, tc.item)
				}
			})
		}
	}
}

func TestSourceIdentity(t *testing.T) {
	t.Parallel()
	acme := bridge.SourceIdentity{Organization: "acme", Workspace: "main", Application: "web"}
	for metadata, want := range map[string]bridge.SourceIdentity{
		`{"organization":{"name":"A","slug":"acme"},"workspace":{"slug":"main"},"application":{"name":"web",` +
			`"slug":""}}`: acme,
		`{"organizationName":"A","organizationSlug":"acme","workspaceSlug":"main","applicationSlug":"web",` +
			`"applicationName":"W"}`: acme,
		`{"organization":"acme","workspace":"main",` +
			`"application":"web"}`: acme,
		`{}`: {}, `null`: {}, `["organization"]`: {}, `{"organization":null}`: {},
		`{"organization":5,"workspace":true,"application":["web"]}`:      {},
		`{"organization":{"slug":7,"name":{"a":1}},"workspaceName":1e3}`: {}, `"acme"`: {}, `17`: {},
		`{"organization":5,"organizationName":"acme"}`: {Organization: "acme"},
	} {
		c := serve(t, answer(`{"items":[],"metadata":`+metadata+`,"nextCursor":""}`), nil)
		for range 2 {
			p := mustFetch(t, c, bridge.Position{})
			if diff := cmp.Diff(want, p.Source); diff != "" {
				t.Errorf("%s (-want +got):\n%s", metadata, diff)
			}
		}
	}
}

// Metadata with another meaning gives no identity, whatever it is.
func TestForeignMetadata(t *testing.T) {
	t.Parallel()
	const whose = `{"organization":{"slug":"acme"},"workspace":"main","application":"web"}`
	acme := bridge.SourceIdentity{Organization: "acme", Workspace: "main", Application: "web"}
	for name, tc := range map[string]struct {
		field, body string
		want        bridge.SourceIdentity
	}{
		"none": {"none", `{"metadata":` + whose + `,"items":[],"nextCursor":""}`, bridge.SourceIdentity{}},
		"none, twice": {"none", `{"metadata":` + whose + `,"items":[],"metadata":7,"nextCursor":""}`,
			bridge.SourceIdentity{}},
		"none, cursor in it": {"none", `{"items":[],"nextCursor":"","metadata":[[1]]}`, bridge.SourceIdentity{}},
		"elsewhere": {"context", `{"metadata":{"organization":"x"},"context":` + whose +
			`,"items":[],"nextCursor":""}`, acme},
		"absent": {"context", `{"metadata":{"organization":"x"},"items":[],"nextCursor":""}`,
			bridge.SourceIdentity{}},
		"a member of this name": {"a/b", `{"a/b":` + whose + `,"items":[],"nextCursor":""}`, acme},
	} {
		p, err := fetchAll(t, serve(t, answer(tc.body), map[string]string{"EXPORT_METADATA_FIELD": tc.field}),
			bridge.Position{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(tc.want, p.Source); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestPagesInFlight decodes and releases pages on another goroutine than Fetch, as the
// engine does. No memory may be reused too early.
func TestPagesInFlight(t *testing.T) {
	t.Parallel()
	const pages = 60
	body := func(n int) []byte {
		item := fmt.Sprintf(`{"eventId":"e%d","userId":"\u0041%d","timestamp":%d,"pad":%q}`, n, n, n,
			strings.Repeat("x", n*100))
		items := strings.TrimSuffix(strings.Repeat(item+",", 20), ",")
		if n%3 == 0 {
			return fmt.Appendf(nil, `{"nextCursor":"c%d","items":[%s]}`, n+1, items)
		}
		return fmt.Appendf(nil, `{"items":[%s],"nextCursor":"c%d"}`, items, n+1)
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Query().Get("cursor"), "c%d", &n)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		switch n % 4 {
		case 0:
			compressed(w, "gzip", body(n))
		case 1:
			compressed(w, "zstd", body(n))
		default:
			_, _ = w.Write(body(n))
		}
	}, nil)
	queue := make(chan *bridge.Page, 4)
	var group sync.WaitGroup
	group.Go(func() {
		n := 0
		for p := range queue {
			if err := c.Decode(p); err != nil {
				t.Errorf("page %d: %v", n, err)
			}
			if !bytes.Equal(p.Body, body(n)) || p.Items != 20 {
				t.Errorf("page %d: another body, %d items", n, p.Items)
			}
			for _, e := range p.Events {
				if string(e.ID) != fmt.Sprintf("e%d", n) || string(e.Key) != fmt.Sprintf("A%d", n) || e.Time != int64(n) {
					t.Errorf("page %d: event %q %q %d", n, e.ID, e.Key, e.Time)
				}
			}
			p.Release()
			p.Release()
			n++
		}
	})
	at := bridge.Position{}
	for range pages {
		p, err := c.Fetch(t.Context(), at)
		if err != nil {
			t.Error(err)
			break
		}
		at.Cursor = p.Next
		queue <- p
	}
	close(queue)
	group.Wait()
}
