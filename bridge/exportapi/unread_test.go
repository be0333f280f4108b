package exportapi_test

import (
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// A page without a next one may say that more follow. A null cursor is the end unless a member
// says otherwise. A total says nothing if the request selects a part. On a later page the place
// of the cursor is known, and totals are those of all pages.
func TestUnread(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body string
		at   bridge.Position
		want string
	}{
		"no cursor": {`{"items":[` + one + `],"next_cursor":"c1"}`, bridge.Position{}, "/next_cursor"},
		"null":      {`{"items":[` + one + `],"nextCursor":null,"next_cursor":"c1"}`, bridge.Position{}, ""},
		"null, more follow": {`{"items":[` + one + `],"nextCursor":null,"has_next_page":true}`, bridge.Position{},
			"/has_next_page"},
		"null last, more": {`{"items":[` + one + `],"has_next_page":true,"nextCursor":null}`, bridge.Position{},
			"/has_next_page"},
		"null, in total":        {`{"items":[` + one + `],"nextCursor":null,"total":2}`, bridge.Position{}, ""},
		"in total":              {`{"items":[` + one + `],"total":2}`, bridge.Position{}, "/total"},
		"in total, from a time": {`{"items":[` + one + `],"total":2}`, bridge.Position{Start: 1}, ""},
		"pages, from a time": {`{"items":[` + one + `],"page":1,"total_pages":2}`, bridge.Position{Start: 1},
			"/total_pages"},
		"a later page": {`{"items":[` + one + `],"total":2,"pages":2,"next_cursor":"c2"}`, bridge.Position{Cursor: "c1"},
			""},
		"a later page, more follow": {`{"items":[` + one + `],"pages":2,"next_cursor":"c2","has_more":true}`,
			bridge.Position{Cursor: "c1"}, "/has_more"},
		"a later page, null last, more": {`{"items":[],"meta":{"truncated":true},"nextCursor":null}`,
			bridge.Position{Cursor: "c1"}, "/meta/truncated"},
		"a later page, done": {`{"items":[` + one + `],"has_more":true,"done":true,"nextCursor":null}`,
			bridge.Position{Cursor: "c1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := must.Get(fetchAll(t, serve(t, answer(tc.body), nil), tc.at))(t)
			if p.Unread.Where != tc.want || p.Next != "" {
				t.Errorf("next %q, unread %+v, want %q", p.Next, p.Unread, tc.want)
			}
		})
	}
}
