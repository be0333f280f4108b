package exportapi_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
)

// reply is the answer of an API: JSON with status 200 unless it has others.
type reply struct {
	body string
	code int
	kind string
	next string // header X-Next
}

// replies sends the answers one after the other, and the last one from then on.
func replies(all ...reply) http.HandlerFunc {
	n := 0 // requests come one at a time
	return func(w http.ResponseWriter, _ *http.Request) {
		r := all[min(n, len(all)-1)]
		n++
		w.Header().Set("Content-Type", "application/json")
		if r.kind != "" {
			w.Header().Set("Content-Type", r.kind)
		}
		if r.next != "" {
			w.Header().Set("X-Next", r.next)
		}
		if r.code != 0 {
			w.WriteHeader(r.code)
		}
		_, _ = io.WriteString(w, r.body)
	}
}

// drain follows the cursors up to the end of the results or a fault. It returns the ids of
// the events, or their defects, with a | after each page.
func drain(t *testing.T, c *exportapi.Client, at bridge.Position) (seen string, err error) {
	t.Helper()
	for range 10 {
		p, err := fetchAll(t, c, at)
		if err != nil {
			return seen, err
		}
		for i := range p.Events {
			if e := &p.Events[i]; e.Defect != bridge.DefectNone {
				seen += fmt.Sprintf("<%d %s>", e.Index, e.Defect)
			} else {
				seen += string(e.ID) + " "
			}
		}
		seen += "|"
		next, tail := p.Next, p.Tail()
		p.Release()
		if tail {
			return seen, nil
		}
		at.Cursor = next
	}
	return seen, fmt.Errorf("no end after 10 pages")
}

const (
	one = `{"id":"1","timestamp":1}`
	two = `{"id":"2","timestamp":2}`
)

// TestAnswers has the ways in which APIs omit what is empty, and answers that only look
// like them.
func TestAnswers(t *testing.T) {
	t.Parallel()
	nested := map[string]string{"EXPORT_ITEMS_FIELD": "/data/items", "EXPORT_CURSOR_FIELD": "/paging/cursors/after"}
	more := map[string]string{"EXPORT_MORE_FIELD": "has_more"}
	done := map[string]string{"EXPORT_MORE_FIELD": "!done"}
	last := map[string]string{"EXPORT_CURSOR_IN": "last-item", "EXPORT_CURSOR_FIELD": "/id",
		"EXPORT_MORE_FIELD": "has_more"}
	header := map[string]string{"EXPORT_CURSOR_IN": "header", "EXPORT_CURSOR_FIELD": "X-Next"}
	root := map[string]string{"EXPORT_CURSOR_IN": "header", "EXPORT_CURSOR_FIELD": "X-Next", "EXPORT_ITEMS_FIELD": "root"}
	empty := map[string]string{"EXPORT_EMPTY_BODY_ENDS": "true"}
	first := reply{body: `{"items":[` + one + `],"nextCursor":"c1"}`}
	end := reply{body: `{"items":[` + two + `],"nextCursor":null}`}
	of := func(bodies ...string) (all []reply) {
		for _, body := range bodies {
			all = append(all, reply{body: body})
		}
		return all
	}
	for name, tc := range map[string]struct {
		vars map[string]string
		api  []reply
		from string // the cursor of the first request
		want string // the result of drain, then a part of the fault
	}{
		"no items in the middle":       {nil, []reply{first, {body: `{"nextCursor":"c2"}`}, end}, "", "1 ||2 |"},
		"no items at the end":          {nil, of(first.body, `{}`), "", "1 ||"},
		"no items but the end mark":    {nil, of(`{"nextCursor":null}`), "", "|"},
		"no items but an empty cursor": {nil, of(`{"nextCursor":""}`), "", "|"},
		"no items on the first page":   {nil, of(`{"nextCursor":"c1"}`, end.body), "", "|2 |"},
		"metadata alone at the end":    {nil, of(first.body, `{"metadata":{"organization":"o"}}`), "", "1 ||"},
		"an empty object at a cursor":  {nil, of(`{}`), "c1", "|"},
		"an empty object at first":     {nil, of(`{}`), "", `it has no member "items" (EXPORT_ITEMS_FIELD)`},
		"other members at first":       {nil, of(`{"total":0}`), "", `it has no member "items" (EXPORT_ITEMS_FIELD)`},
		"other members at the end": {nil, of(first.body, `{"total":0}`), "",
			`1 |it has no member "items" (EXPORT_ITEMS_FIELD)`},
		"other members and a cursor": {nil, of(`{"total":2,"nextCursor":"c1"}`, end.body), "", "|2 |"},
		"items elsewhere": {nil, of(`{"data":[` + one + `],"nextCursor":"c1"}`), "",
			"it has no member \"items\", but a list at /data (EXPORT_ITEMS_FIELD)"},
		"items further down": {nil, of(`{"data":{"list":[` + one + `]},"nextCursor":"c1"}`), "c0",
			"but a list at /data/list"},
		"items in another case": {nil, of(`{"Items":[],"nextCursor":"c1"}`), "c0", "but a list at /Items"},
		"items at once elsewhere": {nil, of(first.body, `{"data":[`+two+`],"nextCursor":"c2"}`), "",
			"1 |it has no member \"items\", but a list at /data"},
		"no items beside a header": {header, []reply{{body: `{}`, next: "a"}, {body: `{"items":[` + one + `]}`}}, "",
			"|1 |"},

		"items null": {nil, of(`{"items":null,"nextCursor":"c1"}`, `{"items":null,"nextCursor":null}`), "",
			"||"},
		"items null, alone":        {nil, of(`{"items":null}`), "", "|"},
		"a null page":              {root, of(`null`), "", "|"},
		"a null page without root": {nil, of(`null`), "c1", "it is null, not an object"},
		"null on the way at the end": {nested,
			of(`{"data":{"items":[`+one+`]},"paging":{"cursors":{"after":"a"}}}`, `{"data":null}`), "", "1 ||"},
		"null on the way at first":   {nested, of(`{"data":null}`), "", `it has no member "/data/items"`},
		"null on the way and an end": {nested, of(`{"data":null,"paging":{"cursors":{"after":null}}}`), "", "|"},
		"array for the items' object": {nested,
			of(`{"data":{"items":[`+one+`]},"paging":{"cursors":{"after":"a"}}}`, `{"data":[]}`), "", "1 ||"},
		"array for the cursor's":       {nested, of(`{"data":{"items":[` + one + `]},"paging":[ ]}`), "", "1 |"},
		"array for the cursor's, deep": {nested, of(`{"data":{"items":[` + one + `]},"paging":{"cursors":[]}}`), "", "1 |"},
		"array with a value": {nested, of(`{"data":{"items":[` + one + `]},"paging":[{}]}`), "",
			`member "/paging" is an array, not an object`},

		"false left out": {more,
			of(`{"items":[`+one+`],"has_more":true,"nextCursor":"c1"}`, `{"items":[`+two+`],"nextCursor":"c2"}`), "", "1 |2 |"},
		"false left out, all empty": {more, of(`{"items":[`+one+`],"has_more":true,"nextCursor":"c1"}`, `{}`), "", "1 ||"},
		"false null": {more,
			of(`{"items":[`+one+`],"has_more":true,"nextCursor":"c1"}`, `{"items":[`+two+`],"has_more":null}`), "", "1 |2 |"},
		"false left out after a start": {more, of(`{"items":[`+two+`],"nextCursor":"c2"}`, `{}`), "c1", "2 ||"},
		"false left out, last item": {last, of(`{"items":[`+one+`],"has_more":true}`, `{"items":[`+two+`]}`), "",
			"1 |2 |"},
		"done left out": {done,
			of(`{"items":[`+one+`],"nextCursor":"c1"}`, `{"items":[`+two+`],"done":true}`), "", "1 |2 |"},
		"more alone":       {more, of(`{"has_more":false}`), "", "|"},
		"more never there": {more, of(first.body), "", `it has no member "has_more" (EXPORT_MORE_FIELD)`},
		"more null at first": {more, of(`{"items":[],"nextCursor":"a","has_more":null}`), "",
			`is null, not a boolean (EXPORT_MORE_FIELD)`},
		"more without a cursor": {more, of(`{"items":[` + one + `],"has_more":true}`), "",
			"names no other cursor (EXPORT_MORE_FIELD)"},

		"204":             {nil, []reply{{code: 204}}, "", "|"},
		"204 at a cursor": {nil, []reply{{code: 204}}, "c1", "|"},
		"204 after items": {nil, []reply{first, {code: 204}}, "", "1 ||"},
		"204, nested":     {nested, []reply{{code: 204}}, "", "|"},
		"204, root":       {root, []reply{{code: 204}}, "", "|"},
		"204, more":       {more, []reply{{code: 204}}, "", "|"},
		"204 with a cursor": {header, []reply{{code: 204, next: "a"}, {body: `{"items":[` + one + `]}`}}, "",
			"|1 |"},
		"empty body, allowed":    {empty, of(first.body, ""), "", "1 ||"},
		"white space, allowed":   {empty, of(" \n"), "", "|"},
		"no items, allowed":      {empty, of(`{"kind":"list","etag":"x"}`), "", "|"},
		"other members, allowed": {empty, of(first.body, `{"kind":"list"}`), "", "1 ||"},
		"an error, allowed": {empty, of(`{"kind":"list","error":{"message":"try later"}}`), "",
			"try later: 200 with"},
		"a message, allowed":         {empty, of(`{"message":"try later"}`), "", "try later: 200 with"},
		"items elsewhere, allowed":   {empty, of(`{"kind":"list","data":[` + one + `]}`), "", "but a list at /data"},
		"empty body":                 {nil, of(first.body, ""), "", "1 |the body is empty"},
		"empty body of no JSON type": {empty, []reply{{kind: "text/plain"}}, "c1", "|"},
		"205 is no empty page":       {nil, []reply{{code: 205}}, "", "205"},

		"text/plain": {nil, []reply{{kind: "text/plain", body: first.body}, {kind: "text/html", body: end.body}}, "",
			"1 |2 |"},
		"text/plain, padded": {nil, []reply{{kind: "text/plain; charset=utf-8", body: "\n" + end.body}}, "", "2 |"},
		"octets, root":       {root, []reply{{kind: "application/octet-stream", body: "[" + one + "]"}}, "", "1 |"},
		"a byte order mark":  {nil, of("\ufeff"+first.body, "\ufeff"+end.body), "", "1 |2 |"},
		"a mark, text/plain": {nil, []reply{{kind: "text/plain", body: "\ufeff" + end.body}}, "", "2 |"},
		"HTML": {nil, []reply{{kind: "text/html", body: "<html>"}}, "",
			`6 bytes of type "text/html", which is not JSON`},
		"HTML as text": {nil, []reply{{kind: "text/plain", body: " <html>"}}, "",
			`7 bytes of type "text/plain", which is not JSON`},
		"a sentence": {nil, []reply{{kind: "text/plain", body: "no healthy upstream"}}, "",
			`"text/plain", which is not JSON`},

		"a bad byte": {nil,
			of(`{"items":[`+one+`,{"id":"x","msg":"before-`+"\xff\xfe"+`-after","timestamp":2},`+two+`],"nextCursor":"c1"}`,
				end.body), "", "1 <1 bad-text>2 |2 |"},
		"a bad byte in the id": {nil, of("{\"items\":[{\"id\":\"\xff\",\"timestamp\":1}," + two + "]}"), "",
			"<0 bad-text>2 |"},
		"a bad byte in the key": {nil, of("{\"items\":[{\"id\":\"a\",\"userId\":\"\xc3\",\"timestamp\":1}]}"), "",
			"<0 bad-text>|"},
		"a bad byte in the time": {nil, of("{\"items\":[{\"id\":\"a\",\"timestamp\":\"\xc3\"}," + two + "]}"), "",
			"<0 bad-text>2 |"},
		"a bad byte in a name": {nil, of("{\"items\":[{\"i\xffd\":\"a\",\"timestamp\":1}," + two + "]}"), "",
			"<0 bad-text>2 |"},
		"a control character": {nil, of("{\"items\":[{\"a\":\"\x00\t\n\",\"timestamp\":1}," + two + "]}"), "",
			"<0 bad-text>2 |"},
		"an unknown escape": {nil, of(`{"items":[{"a":"\x41\'","timestamp":1},` + two + "]}"), "", "<0 bad-text>2 |"},
		"half an escape":    {nil, of(`{"items":[{"a":"\u12"},` + two + "]}"), "", "<0 bad-text>2 |"},
		"NaN": {nil, of(`{"items":[{"a":NaN,"b":[-Infinity,{"c":inf}],"timestamp":1},` + two + "]}"),
			"", "<0 bad-text>2 |"},
		"NaN for the time": {nil, of(`{"items":[{"id":"a","timestamp":NaN},NaN,` + two + "]}"), "",
			"<0 bad-text><1 bad-text>2 |"},
		"a bad string for an item": {nil, of("{\"items\":[\"\xff\"," + two + "]}"), "", "<0 bad-text>2 |"},
		"a bad byte, root":         {root, of("[{\"a\":\"\xff\"}," + two + "]"), "", "<0 bad-text>2 |"},
		"a bad byte, last item": {last,
			of("{\"items\":[{\"id\":\"a\",\"x\":\"\xff\",\"timestamp\":1}],\"has_more\":true}", `{"items":[`+two+
				`],"has_more":false}`), "", "<0 bad-text>|2 |"},
		"a bad cursor, last item": {last, of("{\"items\":[{\"id\":\"\xff\",\"timestamp\":1}],\"has_more\":true}"), "",
			"member \"/id\" is not text"},
		"a line separator": {nil,
			of("{\"items\":[{\"id\":\"1\",\"a\":\"\u2028\u2029\ufeff\x7f\",\"timestamp\":1}]}"), "", "1 |"},
		"half a character":         {nil, of(`{"items":[{"id":"1","a":"\ud83d","timestamp":1}]}`), "", "1 |"},
		"a bad byte in the cursor": {nil, of("{\"items\":[" + one + "],\"nextCursor\":\"\xff\"}"), "", "invalid UTF-8"},
		"a bad byte in metadata":   {nil, of("{\"metadata\":{\"x\":\"\xff\"},\"items\":[" + one + "]}"), "", "invalid UTF-8"},
		"a bad byte elsewhere":     {nil, of("{\"x\":\"\xff\",\"items\":[" + one + "]}"), "", "invalid UTF-8"},
		"a broken item, bad bytes": {nil, of("{\"items\":[{\"a\":\"\xff\" 1}]}"), "", "invalid UTF-8"},
		"a cut behind a bad byte":  {nil, of("{\"items\":[{\"a\":\"\xff\",\"b\":\"SECRET"), "", "body is truncated"},

		"an error in a page": {nil, of(first.body, `{"ok":false,"error":"ratelimited"}`), "",
			"1 |ratelimited: 200 with an error in place of a page"},
		"an error object":        {nil, of(`{"error":{"code":"x","message":"try later"}}`), "", "try later: 200 with"},
		"errors, items null":     {nil, of(`{"items":null,"errors":[{"message":"boom"}]}`), "", "boom: 200 with"},
		"errors, data null":      {nested, of(`{"data":null,"errors":[{"message":"boom"}]}`), "c1", "boom: 200 with"},
		"an error with a cursor": {nil, of(`{"error":"ratelimited","nextCursor":"c1"}`), "", "ratelimited: 200 with"},
		"a message":              {nil, of(`{"message":"Too many requests"}`), "c1", "Too many requests: 200 with"},
		"failed, no text":        {nil, of(`{"success":false}`), "", "200 with an error in place of a page"},
		"a status of an error": {nil, of(`{"items":[],"nextCursor":null,"status":"error","message":"quota exceeded"}`),
			"", "quota exceeded: 200 with"},
		"a code of an error": {nil, of(`{"items":[],"nextCursor":null,"statusCode":403,"message":"forbidden"}`), "c1",
			"forbidden: 200 with"},
		"an error code": {nil, of(`{"items":[],"nextCursor":null,"error_code":"E17","errorMessage":"try later"}`),
			"", "try later: 200 with"},
		"a code of success": {nil, of(`{"items":[],"nextCursor":null,"status":"ok","code":200,"errorCode":0}`), "",
			"|"},
		"texts of success, a cursor": {nil,
			of(`{"items":[],"nextCursor":"c2","errorCode":"0","errorMessage":"Success"}`, end.body), "c1", "|2 |"},
		"no error as a text":      {nil, of(`{"items":[],"nextCursor":"c2","error":"none"}`, end.body), "c1", "|2 |"},
		"an error, an empty list": {nil, of(`{"items":[],"ok":false,"error":"timeout"}`), "c1", "timeout: 200 with"},
		"an error, empty, a cursor": {nil, of(first.body, `{"items":[],"nextCursor":"c2","errors":["shard 3"]}`), "",
			"1 |shard 3: 200 with"},
		"no error, empty, a cursor": {nil, of(`{"items":[],"nextCursor":"c2","errors":[],"ok":true}`, end.body), "c1",
			"|2 |"},
		"large, empty, a cursor": {nil,
			of(`{"items":[],"pad":"`+strings.Repeat("x", 1<<20)+`","nextCursor":"c2"}`, end.body), "c1", "|2 |"},
		"no error, an empty list": {nil, of(`{"items":[],"ok":true,"error":null}`), "c1", "|"},
		"no error":                {nil, of(`{"ok":true,"error":null,"errors":[],"nextCursor":""}`), "", "|"},
		"an error beside items":   {nil, of(`{"items":[` + one + `],"error":"partial"}`), "", "partial: 200 with an error beside"},
		"errors beside items": {nested, of(`{"data":{"items":[` + one + `]},"errors":[{"message":"shard 3"}]}`), "",
			"shard 3: 200 with an error beside"},
		"errors beside items, a cursor": {nil, of(first.body, `{"errors":[{"message":"shard 3"}],"items":[`+two+`],"nextCursor":"c2"}`),
			"", "1 |shard 3: 200 with an error beside"},
		"errors beside items, ignored": {map[string]string{"EXPORT_ON_PARTIAL": "ignore"},
			of(`{"items":[` + one + `],"errors":[{"message":"shard 3"}],"error":"partial"}`), "", "1 |"},
		"incomplete": {nil, of(`{"incomplete_results":true,"items":[` + one + `]}`), "", "200 with an error beside"},
		"timed out":  {nil, of(`{"items":[` + one + `],"timed_out":true,"nextCursor":"c2"}`), "", "200 with an error beside"},
		"timed out, ignored": {map[string]string{"EXPORT_ON_PARTIAL": "ignore"},
			of(`{"items":[` + one + `],"timed_out":true}`), "", "1 |"},
		"timed out, empty": {nil, of(`{"items":[],"timed_out":true}`), "", "200 with an error"},
		"complete": {nil, of(`{"items":[`+one+`],"timed_out":false,"incomplete_results":false,"nextCursor":"c2"}`,
			`{"items":[],"timed_out":false}`), "", "1 ||"},
		"timed out, counted": {nil, of(`{"items":[`+one+`],"timed_out":2,"incomplete_results":"no","nextCursor":"c2"}`,
			`{"items":[],"timed_out":0}`), "", "1 ||"},
		"no error beside items": {nil, of(`{"error":null,"items":[`+one+`],"errors":[],"nextCursor":"c2"}`,
			`{"items":[`+two+`],"error":false,"errors":{}}`), "", "1 |2 |"},
		"a success beside items": {nil, of(`{"items":[` + one + `],"error":"none","errors":null}`), "", "1 |"},
		"an object of success": {nil, of(`{"items":[`+one+`],"nextCursor":"c2","error":{"code":0,"message":"Success","details":null}}`,
			`{"items":[],"error":{"code":0,"message":null}}`), "", "1 ||"},
		"an error within items": {nil, of(`{"items":[{"id":"1","timestamp":1,"errors":["x"]}],"meta":{"error":"x"}}`), "", "1 |"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen, err := drain(t, serve(t, replies(tc.api...), tc.vars), bridge.Position{Cursor: tc.from})
			want, says := tc.want, ""
			if i := strings.LastIndexByte(want, '|') + 1; i < len(want) {
				want, says = want[:i], want[i:]
			}
			if seen != want || (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Fatalf("got %q %v, want %q", seen, err, tc.want)
			}
			if err != nil && strings.Contains(says, "200 with") {
				if f := wantFault(t, err); f.Class != bridge.Transient || f.Code != "decode" {
					t.Errorf("got class %v code %q, want one that is retried", f.Class, f.Code)
				}
			}
		})
	}
}
