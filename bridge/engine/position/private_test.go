package position

import (
	"crypto/sha256"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// TestTurningRulesOn: items of a tail and of a border from before there were rules for
// private data are not published again, nor are they once they have new identities.
func TestTurningRulesOn(t *testing.T) {
	t.Parallel()
	page := func(rules, ids bool) *bridge.Page {
		p := &bridge.Page{At: bridge.Position{Cursor: "c"}}
		for _, raw := range []string{"a", "b", "b"} {
			e := bridge.Event{Raw: []byte(raw), Index: len(p.Events)}
			if ids {
				e.ID = []byte{byte('x' + len(p.Events))}
			}
			if rules {
				keyed := func(text []byte) [sha256.Size]byte { return sha256.Sum256([]byte("key" + string(text))) }
				s := bridge.NewSums(keyed, e.Raw, e.ID, true)
				e.Raw, e.Sums = []byte("same"), &s
			}
			p.Events = append(p.Events, e)
		}
		p.Items = len(p.Events)
		return p
	}
	for _, ids := range []bool{false, true} {
		var at Position
		at.scratch = Begin(bridge.Checkpoint{}).scratch
		for _, rules := range []bool{false, true, true} {
			before := len(at.Tail)
			p := page(rules, ids)
			if shows := at.Shows(p); shows != (before > 0) {
				t.Errorf("ids %v, rules %v: the page shows the tail: %v", ids, rules, shows)
			}
			must.Do(t, at.trim(p, &Rules{TailLimit: 100}, new(Findings)))
			if published := len(p.Events); published != 3-before || len(at.Tail) != 3 {
				t.Errorf("ids %v, rules %v: %d published, a tail of %d", ids, rules, published, len(at.Tail))
			}
		}
		last := page(true, ids)
		for i := range last.Events {
			if at.Tail[i] != last.Events[i].Identity() {
				t.Errorf("ids %v: item %d of the tail is not the identity with a key", ids, i)
			}
		}
	}
	var b bridge.Border
	KeepItems(&b, page(false, true), 16)
	if r := MarkBorder(page(true, true), &b); r.Items != 3 {
		t.Errorf("%d of 3 items found in a border from before", r.Items)
	}
	KeepItems(&b, page(true, true), 16)
	if r := MarkBorder(page(true, true), &b); r.Items != 3 {
		t.Errorf("%d of 3 items found in a border", r.Items)
	}
}
