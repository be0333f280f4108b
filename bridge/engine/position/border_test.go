package position

import (
	"fmt"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

func borderPage(at string, from, to int, bytes string) *bridge.Page {
	p := &bridge.Page{At: bridge.Position{Cursor: at}, Next: "n"}
	for i := from; i < to; i++ {
		p.Events = append(p.Events, bridge.Event{ID: fmt.Appendf(nil, "id-%d", i), Raw: fmt.Appendf(nil, "%d%s", i, bytes)})
	}
	p.Items = len(p.Events)
	return p
}

func TestBorder(t *testing.T) {
	t.Parallel()
	before := borderPage("", 0, 100, "")
	for name, tc := range map[string]struct {
		page *bridge.Page
		hold int
		want Repeats
		left int
		next int // to hold
	}{
		"one item":              {borderPage("c", 99, 150, ""), 16, Repeats{Items: 1}, 50, 16},
		"the same id, changed":  {borderPage("c", 99, 150, "x"), 16, Repeats{}, 51, 16},
		"nothing else":          {borderPage("c", 98, 100, ""), 16, Repeats{Items: 2, Whole: true}, 0, 16},
		"more than held":        {borderPage("c", 60, 120, ""), 16, Repeats{Items: 16, Full: true}, 44, 32},
		"after it has grown":    {borderPage("c", 60, 120, ""), 64, Repeats{Items: 40}, 20, 80},
		"at most a page":        {borderPage("c", 1, 101, ""), 100, Repeats{Items: 99}, 1, 100},
		"all, and another":      {borderPage("c", 0, 101, ""), 100, Repeats{Items: 100}, 1, 100},
		"the same page":         {borderPage("c", 0, 100, ""), 100, Repeats{Items: 100, Same: true}, 0, 100},
		"its end was held":      {borderPage("c", 0, 100, ""), 16, Repeats{Items: 16, Same: true, Full: true}, 84, 32},
		"as long, and newer":    {borderPage("c", 84, 184, ""), 16, Repeats{Items: 16, Full: true}, 84, 32},
		"before what was held":  {borderPage("c", 0, 80, ""), 16, Repeats{}, 80, 16},
		"not the last, between": {borderPage("c", 90, 91, ""), 16, Repeats{Items: 1, Whole: true}, 0, 16},
	} {
		var border bridge.Border
		KeepItems(&border, before, tc.hold)
		got := MarkBorder(tc.page, &border)
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		if n := Hold(tc.hold, got, 100); n != tc.next {
			t.Errorf("%s: %d are held next, want %d", name, n, tc.next)
		}
		if dropBorder(tc.page); len(tc.page.Events) != tc.left {
			t.Errorf("%s: %d items are left, want %d", name, len(tc.page.Events), tc.left)
		}
	}
	for _, n := range []int{2, 15, 16, 17, 40} {
		var border bridge.Border
		small := borderPage("", 0, n, "")
		if KeepItems(&border, small, 40); !MarkBorder(borderPage("c", 0, n, ""), &border).Same {
			t.Errorf("all %d items of a page again are not the same page", n)
		}
		if border.Of = 0; MarkBorder(borderPage("c", 0, n, ""), &border).Same {
			t.Errorf("%d items of an unknown page are the same page", n)
		}
		for i := range small.Events {
			small.Events[i].ID = nil
		}
		if KeepItems(&border, small, 40); border.Items != nil || MarkBorder(borderPage("c", 0, n, ""), &border).Same {
			t.Error("items without an id are in the border")
		}
	}
}

// TestListingHasNoBorder: a list that is followed by windows is read again after a reset,
// and its pages may be alike: nothing of them is a repetition.
func TestListingHasNoBorder(t *testing.T) {
	t.Parallel()
	at := Begin(bridge.Checkpoint{Listing: bridge.BeginListing(0, nil)})
	rules := Rules{PageSize: 3, TailLimit: 100, Listing: true}
	for _, to := range []int64{1000, 1000, 2000} {
		p := borderPage(bridge.Watermark{}.Cursor(), 0, 3, "")
		p.Next = bridge.Watermark{At: to}.Cursor()
		next, found, err := at.Take(p, &rules, Known{})
		if err != nil || len(p.Events) != 3 || found.Items != 0 {
			t.Fatalf("to %d: %v, %d of 3 items are left, %d are of the page before", to, err, len(p.Events), found.Items)
		}
		next.visited = Visited{} // as a reset does
		at = next
	}
}

func TestBorderAllocates(t *testing.T) {
	p := borderPage("c", 0, 1000, "")
	var border bridge.Border
	KeepItems(&border, borderPage("", 2000, 3000, ""), leastHold)
	if n := testing.AllocsPerRun(20, func() { MarkBorder(p, &border); dropBorder(p) }); n > 0 {
		t.Errorf("%v allocations to look at a page, want none", n)
	}
	if n := testing.AllocsPerRun(20, func() { KeepItems(&border, p, leastHold) }); n > 1 {
		t.Errorf("%v allocations to keep a border, want one", n)
	}
}

// TestCarriedBesideBorder: an item of the border is not one of the carried tail, though
// it has the id of one: the page before listed it.
func TestCarriedBesideBorder(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"in the process that published them": true, "after a restart": false} {
		at, rules := Begin(bridge.Checkpoint{}), &Rules{TailLimit: 10}
		item := func(raw string) bridge.Event { return bridge.Event{ID: []byte("x"), Raw: []byte(raw)} }
		if known {
			last := &bridge.Page{Events: []bridge.Event{item("a"), item("b")}, Items: 2}
			must.Do(t, at.trim(last, rules, new(Findings)))
		} else {
			e := item("a")
			at.Tail = bridge.Tail{e.Identity(), e.Identity()}
		}
		short := &bridge.Page{Events: []bridge.Event{item("a")}, Items: 1, Next: "c"}
		var border bridge.Border
		KeepItems(&border, short, leastHold)
		if err := at.trim(short, rules, new(Findings)); err != nil || len(short.Events) != 0 || len(at.Tail) != 1 {
			t.Fatalf("%s: %d events, %d items carried, %v", name, len(short.Events), len(at.Tail), err)
		}
		next := &bridge.Page{At: bridge.Position{Cursor: "c"}, Events: []bridge.Event{item("a"), item("b")}, Items: 2,
			Next: "d"}
		MarkBorder(next, &border)
		err := at.trim(next, rules, new(Findings))
		if dropBorder(next); err != nil || len(next.Events) != 0 || len(at.Tail) != 0 {
			t.Errorf("%s: %d items are published again, %d carried, %v", name, len(next.Events), len(at.Tail), err)
		}
	}
}

// TestEndAtTheSameTime: a cursor that is a time lists the items of that time again. A later item
// of that time may be listed before them. It is news, although the page is as long as the page
// before, and ends with the same items.
func TestEndAtTheSameTime(t *testing.T) {
	t.Parallel()
	rules := &Rules{PageSize: 100, TailLimit: 400}
	page := func(at string, first int) *bridge.Page {
		p := borderPage(at, 100, 100+leastHold, "")
		p.Events, p.Next = append(borderPage(at, first, first+1, "").Events, p.Events...), "time"
		p.Items = len(p.Events)
		return p
	}
	for name, polls := range map[string]struct {
		restart bool
		firsts  []int // the first item of each page at the cursor
		news    []int
	}{
		"at once":                  {false, []int{2}, []int{1}},
		"the same page, then news": {false, []int{1, 2}, []int{0, 1}},
		"after a restart":          {true, []int{1, 2}, []int{0, 1}},
	} {
		at, _, err := Begin(bridge.Checkpoint{}).Take(page("", 1), rules, Known{})
		must.Do(t, err)
		for i, first := range polls.firsts {
			p := page("time", first)
			if at, _, err = at.Take(p, rules, Known{}); err != nil || len(p.Events) != polls.news[i] {
				t.Errorf("%s: page %d: %d items are published, want %d (%v)", name, i, len(p.Events), polls.news[i], err)
			}
			if polls.restart {
				at = Begin(at.Checkpoint)
			}
		}
	}
}

// TestFirstPageGrows: an API that names the cursor of the page itself while that is not full names
// a cursor for the first page too, which was requested without one. All items of the first page are
// listed there again.
func TestFirstPageGrows(t *testing.T) {
	t.Parallel()
	rules := &Rules{PageSize: 100, TailLimit: 400}
	for name, restart := range map[string]bool{"at once": false, "after a restart": true} {
		at, _, err := Begin(bridge.Checkpoint{}).Take(borderPage("", 0, 60, ""), rules, Known{})
		must.Do(t, err)
		for _, polls := range []struct {
			items, news int
			again       bool
		}{{60, 0, true}, {60, 0, true}, {70, 10, false}, {70, 0, false}, {75, 5, false}} {
			if restart {
				at = Begin(at.Checkpoint)
			}
			p := borderPage("n", 0, polls.items, "")
			var found Findings
			at, found, err = at.Take(p, rules, Known{})
			if err != nil || len(p.Events) != polls.news || found.Widened != 0 || found.FirstAgain != polls.again {
				t.Errorf("%s: %d items are listed: %d are published, want %d (%+v, %v)", name, polls.items,
					len(p.Events), polls.news, found, err)
			}
		}
	}
}

// TestFirstPageBound: an API without a page size may list its whole past on the first page. The checkpoint keeps
// no more items of it than the bridge asks for.
func TestFirstPageBound(t *testing.T) {
	t.Parallel()
	at, _, err := Begin(bridge.Checkpoint{}).Take(borderPage("", 0, 2000, ""), &Rules{PageSize: 100, TailLimit: 400}, Known{})
	if n := len(at.Border.Items); n != 100 || err != nil {
		t.Errorf("%d items are kept, want 100 (%v)", n, err)
	}
}

// TestFirstPageAgainEnds: a page that has the items of the first page, but names no next one, is the answer to
// another request than the first page: the API heeds the cursor.
func TestFirstPageAgainEnds(t *testing.T) {
	t.Parallel()
	rules := &Rules{PageSize: 100, TailLimit: 400}
	at, _, err := Begin(bridge.Checkpoint{}).Take(borderPage("", 0, 60, ""), rules, Known{})
	must.Do(t, err)
	p := borderPage("n", 0, 60, "")
	p.Next = ""
	at, found, err := at.Take(p, rules, Known{})
	if err != nil || found.FirstAgain || !at.Drained || len(p.Events) != 0 {
		t.Errorf("drained %t, %d items are published, found %+v, %v", at.Drained, len(p.Events), found, err)
	}
}
