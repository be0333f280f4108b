package bridge_test

import (
	"fmt"
	"testing"

	"exportbridge/bridge"
)

// A repeated page is distinguished from a similar one.
func TestPageDigest(t *testing.T) {
	t.Parallel()
	page := func(next string, ids bool, items ...string) *bridge.Page {
		p := &bridge.Page{Next: next, At: bridge.Position{Cursor: "c"}}
		for i, item := range items {
			e := bridge.Event{Raw: []byte(item)}
			if ids {
				e.ID = fmt.Append(nil, i)
			}
			p.Events = append(p.Events, e)
		}
		return p
	}
	many, other := make([]string, 20), make([]string, 20)
	for i := range many {
		many[i], other[i] = fmt.Sprint("item ", i), fmt.Sprint("item ", i)
	}
	other[7] = "another"
	for name, tc := range map[string]struct {
		page, next *bridge.Page
		same       bool
	}{
		"ids":                  {page("d", true, many...), page("e", true, many...), true},
		"one id":               {page("d", true, "a"), page("e", true, "a"), true},
		"one id, changed":      {page("d", true, "a"), page("e", true, "b"), false},
		"one id at the end":    {page("d", true, "a"), page("c", true, "a"), false},
		"no ids":               {page("d", false, many...), page("e", false, many...), true},
		"no ids, one is other": {page("d", false, many...), page("e", false, other...), false},
		"few without ids":      {page("d", false, "a", "b", "c"), page("e", false, "a", "b", "c"), false},
		"none":                 {page("d", true), page("e", true), false},
		"fewer":                {page("d", true, many...), page("e", true, many[:19]...), false},
	} {
		a, b := tc.page.Digest(), tc.next.Digest()
		if same := b != 0 && a == b; same != tc.same {
			t.Errorf("%s: same %t, want %t", name, same, tc.same)
		}
	}
}
