package nextlink

import (
	"net/http"
	"strings"
	"testing"
)

// TestUnread has pages with something that looks like a next cursor, and pages without.
func TestUnread(t *testing.T) {
	t.Parallel()
	const items = `"items":[{"id":"1","next":"in an item"}],`
	for name, tc := range map[string]struct {
		body, header, want, hint, says string
		part                           bool // the request selects some items
	}{
		"a member": {body: `{` + items + `"next_cursor":"c2"}`, want: "/next_cursor",
			hint: "EXPORT_CURSOR_FIELD=/next_cursor"},
		"nested": {body: `{` + items + `"paging":{"cursors":{"after":"c2","before":"c0"}}}`,
			want: "/paging/cursors/after"},
		"a number": {body: `{` + items + `"nextPage":2}`, want: "/nextPage"},
		"a URL": {body: `{` + items + `"links":{"self":"/a","next":"\/a?page=2"}}`, want: "/links/next",
			hint: "EXPORT_CURSOR_IN=next-url and EXPORT_CURSOR_FIELD=/links/next"},
		"HAL": {body: `{"_links":{"next":{"href":"https://api/x?c=2"}},` + items + `"n":1}`,
			want: "/_links/next/href"},
		"HAL with a type": {body: `{"_links":{"next":{"href":"/x?c=2","type":"application/json","rel":"next"}},` +
			items + `"n":1}`, want: "/_links/next/href", hint: "next-url"},
		"OData":                    {body: `{` + items + `"@odata.nextLink":"https://api/x"}`, want: "/@odata.nextLink"},
		"a token":                  {body: `{` + items + `"pageToken":"t"}`, want: "/pageToken"},
		"escaped names":            {body: `{` + items + `"a/b":{"nextToken":"t"}}`, want: "/a~1b/nextToken"},
		"more is true":             {body: `{` + items + `"has_more":true}`, want: "/has_more", says: "is true"},
		"more is true, and cursor": {body: `{` + items + `"has_more":true,"continuation":"c"}`, want: "/continuation"},
		"header Link": {body: `[]`, header: `Link: <https://api/x?page=2>; rel="next"`,
			want: "header Link with rel=next", hint: "EXPORT_CURSOR_IN=link"},
		"a header": {body: `[]`, header: `X-Next-Cursor: c2`, want: "header X-Next-Cursor",
			hint: "EXPORT_CURSOR_FIELD=X-Next-Cursor"},
		"a next number": {body: `{` + items + `"next_page":2}`, want: "/next_page",
			hint: "EXPORT_CURSOR_IN=page-number"},
		"more pages": {body: `{` + items + `"page":1,"totalPages":10}`, want: "/totalPages", says: "is 10",
			hint: "only numbers its pages"},
		"more items": {body: `{` + items + `"meta":{"total_count":60000}}`, want: "/meta/total_count",
			says: "is 60000, and it has 3 items"},
		"more items, and cursor": {body: `{` + items + `"total":60000,"continuation":"c"}`, want: "/continuation"},
		"more items in a header": {body: `[]`, header: `X-Total-Count: 4`, want: "header X-Total-Count",
			says: "is 4, and it has 3 items"},
		"more pages in a header": {body: `[]`, header: `X-Total-Pages: 2`, want: "header X-Total-Pages", says: "is 2"},

		"a header of one word": {body: `[]`, header: `X-Ms-Continuationtoken: c2`,
			want: "header X-Ms-Continuationtoken"},
		"a count in another word": {body: `{` + items + `"account":{"nextCursor":"c2"}}`, want: "/account/nextCursor"},
		"a capital word":          {body: `{` + items + `"URLNext":"https://api/x"}`, want: "/URLNext"},
		"a time as a cursor":      {body: `{` + items + `"next":"2026-11-30T00:00:00Z"}`, want: "/next"},
		"a word as a token":       {body: `{` + items + `"next_token":"abc"}`, want: "/next_token"},
		"an unknown name":         {body: `{` + items + `"next_batch":"s72594_4483"}`, want: "/next_batch"},

		"a part of a word":       {body: `[]`, header: `X-Nextjs-Cache: c2`},
		"a cache":                {body: `[]`, header: `X-Next-Cache-Tags: _N_T_/layout`},
		"a part of a member":     {body: `{` + items + `"nextjs":"c2","contextId":"c2","discontinued":"c2"}`},
		"a time":                 {body: `{` + items + `"next_update":"2026-11-30T00:00:00Z","nextRun":"2026-11-30"}`},
		"a time in seconds":      {body: `{` + items + `"next_update":1795996800}`},
		"a word, and a truth":    {body: `{` + items + `"nextState":"open","next_step_required":"true"}`},
		"a way back in one word": {body: `{` + items + `"startcursor":"c2","prevcursor":"c2"}`},
		"all items":              {body: `{` + items + `"total":3,"count":3,"pages":1,"request":"abc"}`},
		"more items, but over":   {body: `{` + items + `"total":60000,"hasMore":false}`},
		"a part":                 {body: `{` + items + `"total":60000}`, header: `X-Total-Count: 60000`, part: true},
		"null":                   {body: `{` + items + `"next_cursor":null,"paging":{"next":""}}`},
		"more is false":          {body: `{` + items + `"endCursor":"c9","hasNextPage":false}`},
		"done":                   {body: `{` + items + `"cursor":"c9","done":true}`},
		"a way back":             {body: `{` + items + `"prev_cursor":"c0","links":{"self":"/a","first":"/a","prev":"/b"}}`},
		"a way to later times":   {body: `{` + items + `"nextSyncToken":"s","@odata.deltaLink":"https://api/x"}`},
		"a page number":          {body: `{` + items + `"page":1,"pages":1,"offset":0,"next_offset":0}`},
		"inside items":           {body: `{"items":[{"next_cursor":"c2"}]}`},
		"a preflight's header":   {body: `[]`, header: `Access-Control-Expose-Headers: X-Next-Cursor`},
		"a last page's Link":     {body: `[]`, header: `Link: <https://api/x?page=1>; rel="first"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			if field, value, ok := strings.Cut(tc.header, ": "); ok {
				h.Set(field, value)
			}
			n := 3
			if tc.part {
				n = 0
			}
			got := Unread([]byte(tc.body), h, n)
			if got.Where != tc.want || got.Says != tc.says || !strings.Contains(got.Hint, tc.hint) ||
				(got.Hint == "") != (tc.want == "") {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
}
