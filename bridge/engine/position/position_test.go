package position

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"exportbridge/bridge"
)

// somePage draws a page at a position from few ids, cursors and times, so that the
// pages of a way repeat, overlap, lead back, end, and come with other bytes.
func somePage(t *rapid.T, at *Position) *bridge.Page {
	p := &bridge.Page{At: at.Position(), RequestedAt: time.UnixMilli(1000)}
	if rapid.Bool().Draw(t, "leads on") {
		p.Next = fmt.Sprint("c", rapid.IntRange(0, 5).Draw(t, "next"))
	}
	if rapid.IntRange(0, 9).Draw(t, "names a source") == 0 {
		p.Source.Workspace = fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "workspace"))
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "items") {
		e := bridge.Event{Index: i, Raw: fmt.Appendf(nil, "%d", rapid.IntRange(0, 2).Draw(t, "bytes")),
			Time: rapid.Int64Range(1, 9).Draw(t, "time")}
		if id := rapid.IntRange(0, 6).Draw(t, "id"); id > 0 {
			e.ID = fmt.Append(nil, id)
			e.Raw = slices.Concat(e.ID, e.Raw)
		}
		if rapid.IntRange(0, 9).Draw(t, "unreadable") == 0 {
			e.Defect = bridge.DefectBadText
		}
		p.Events = append(p.Events, e)
	}
	p.Items = len(p.Events)
	return p
}

// held is what topics hold, for as many events as there are.
type held string

func (h held) Match(e *bridge.Event) bool { return strings.Contains(string(h), string(e.Raw)) }

// frozen is a position with a copy of all that it could share with another one.
func frozen(at Position) Position {
	at.forms.known, at.forms.units, at.forms.mutants = maps.Clone(at.forms.known), maps.Clone(at.forms.units),
		maps.Clone(at.forms.mutants)
	at.Tail, at.Border.Items = slices.Clone(at.Tail), slices.Clone(at.Border.Items)
	if at.Overlap != nil {
		o := *at.Overlap
		at.Overlap = &o
	}
	if at.RewindEnd != nil {
		r := *at.RewindEnd
		at.RewindEnd = &r
	}
	at.visited, at.emptyCursors, at.scratch = Visited{}, Visited{}, nil
	return at
}

// TestTakeIsAFunction: the same page at the same position leads to the same position with the
// same findings. It leaves the old position unchanged, also after other pages were taken from
// there.
func TestTakeIsAFunction(t *testing.T) {
	t.Parallel()
	cursors := func(at *Position) (known [2][]string) {
		for i := range 6 {
			c := fmt.Sprint("c", i)
			if at.visited.Has(c) {
				known[0] = append(known[0], c)
			}
			if at.emptyCursors.Has(c) {
				known[1] = append(known[1], c)
			}
		}
		return known
	}
	same := func(t *rapid.T, what string, a, b Position) {
		if !reflect.DeepEqual(frozen(a), frozen(b)) || !reflect.DeepEqual(cursors(&a), cursors(&b)) ||
			!slices.Equal(a.Recent(), b.Recent()) {
			t.Fatalf("%s:\n%+v\n%+v", what, frozen(a), frozen(b))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		rules := Rules{PageSize: 4, TailLimit: 12, EmptyPages: 2, DivertShared: rapid.Bool().Draw(t, "divert")}
		if rapid.Bool().Draw(t, "window") {
			rules.End = 5000
		}
		known := Known{Published: held("10 31"), Marks: held("20 41")}
		c := bridge.Checkpoint{}
		if rapid.Bool().Draw(t, "overlap") {
			c.Overlap = &bridge.Overlap{From: 4}
		}
		if rapid.Bool().Draw(t, "rewind") {
			c.RewindEnd = &bridge.RewindEnd{CursorHash: bridge.CursorHash("c1")}
		}
		at := Begin(c)
		for range rapid.IntRange(1, 20).Draw(t, "pages") {
			page := somePage(t, &at)
			take := func(p bridge.Page) (Position, Findings, string, []bridge.Event) {
				p.Events = slices.Clone(p.Events)
				next, found, err := at.Take(&p, &rules, known)
				if err != nil {
					return next, found, err.Error(), nil
				}
				return next, found, "", p.Events
			}
			before, beforeCursors := frozen(at), cursors(&at)
			next, found, failed, left := take(*page)
			take(*somePage(t, &at)) // another page at the same position
			again, foundAgain, failedAgain, leftAgain := take(*page)
			same(t, "the same page leads elsewhere", next, again)
			if failed != failedAgain || !reflect.DeepEqual(found, foundAgain) || !reflect.DeepEqual(left, leftAgain) {
				t.Fatalf("the same page: %+v %q %d events\nthen %+v %q %d events", found, failed, len(left), foundAgain,
					failedAgain, len(leftAgain))
			}
			if !reflect.DeepEqual(frozen(at), before) || !reflect.DeepEqual(cursors(&at), beforeCursors) {
				t.Fatalf("the position changed:\n%+v\n%+v", before, frozen(at))
			}
			if failed != "" {
				same(t, "a refused page moved the position", next, at)
				continue
			}
			if at = again; rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				at = Begin(at.Checkpoint)
			}
		}
	})
}

// TestTailTooLong: a page whose items could not be told from later ones is refused.
func TestTailTooLong(t *testing.T) {
	t.Parallel()
	_, _, err := Begin(bridge.Checkpoint{}).Take(letterPage("1", "ABC", ""), &Rules{PageSize: 3, TailLimit: 2}, Known{})
	if f, ok := errors.AsType[*bridge.Fault](err); !ok || f.Reason != bridge.ReasonTail {
		t.Errorf("%v", err)
	}
}

// TestMarksFrom: the topic is read from about the earliest of the events that a rewind may
// publish again, of the source that the page names.
func TestMarksFrom(t *testing.T) {
	t.Parallel()
	mine, other := bridge.SourceIdentity{Workspace: "mine"}, bridge.SourceIdentity{Workspace: "other"}
	page := func(source bridge.SourceIdentity, times ...int64) *bridge.Page {
		p := &bridge.Page{Source: source}
		for _, ms := range times {
			p.Events = append(p.Events, bridge.Event{Time: ms})
		}
		return p
	}
	many := []int64{1} // and one client's clock is wrong
	for ms := range int64(19) {
		many = append(many, 100-ms)
	}
	rewinds := bridge.Checkpoint{RewindEnd: &bridge.RewindEnd{Source: mine}}
	overlaps := rewinds
	overlaps.Overlap = &bridge.Overlap{From: 50}
	for name, c := range map[string]struct {
		at   bridge.Checkpoint
		page *bridge.Page
		from int64 // 0 is not at all
	}{
		"a rewind":                        {rewinds, page(mine, many...), 83},
		"no rewind":                       {bridge.Checkpoint{}, page(mine, 5), 0},
		"no event with a time":            {rewinds, page(mine, bridge.NoTime), 0},
		"another source than the topic's": {rewinds, page(other, 5), 0},
		"an overlap drops its own":        {overlaps, page(mine, 60, 40, 55), 40},
		"nothing but what it drops":       {overlaps, page(mine, 60), 0},
	} {
		from, source, ok := Begin(c.at).MarksFrom(c.page)
		if ok != (c.from > 0) || ok && (from.UnixMilli() != c.from || source != mine) {
			t.Errorf("%s: from %v, %v, %t; want %d", name, from, source, ok, c.from)
		}
	}
}

// TestKeylessIsPublished: an event that a route drops has no record, and so needs no key.
func TestKeylessIsPublished(t *testing.T) {
	t.Parallel()
	event := func(id string) bridge.Event { return bridge.Event{ID: []byte(id), Raw: []byte(id)} }
	dropped, keyed := event("b"), event("c")
	dropped.Route, keyed.Key = bridge.RouteDrop, []byte("k")
	p := &bridge.Page{Next: "d", Items: 3, Events: []bridge.Event{event("a"), dropped, keyed}}
	_, found, err := Begin(bridge.Checkpoint{}).Take(p, &Rules{PageSize: 10, TailLimit: 40}, Known{})
	if err != nil || found.Keyless != 1 {
		t.Errorf("%d events without a key, error %v; want one", found.Keyless, err)
	}
}
