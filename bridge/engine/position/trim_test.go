package position

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// export is a reference export for Trim: a list that grows at its end and
// changes inside its last page, read by offset.
type export struct {
	items   []string
	withIDs bool
	// eager gives a full last page a next cursor before any item follows.
	eager bool
}

func (x *export) page(offset, size int) *bridge.Page {
	end := min(offset+size, len(x.items))
	p := &bridge.Page{At: bridge.Position{Cursor: fmt.Sprint(offset)}}
	for i, item := range x.items[offset:end] {
		e := bridge.Event{Raw: []byte(item), Index: i}
		if x.withIDs {
			id, _, _ := strings.Cut(item, "#")
			e.ID = []byte(id)
		}
		p.Events = append(p.Events, e)
	}
	p.Items = len(p.Events)
	if end < len(x.items) || x.eager && end == offset+size {
		p.Next = fmt.Sprint(end)
	}
	return p
}

// reader is what the engine does with Trim, and nothing else.
type reader struct {
	at        Position
	offset    int
	published []string
}

// read takes one page. A crash before the commit forgets what it did.
func (r *reader) read(x *export, size, limit int, crash bool) (advanced bool) {
	p := x.page(r.offset, size)
	next := r.at
	if err := next.trim(p, &Rules{TailLimit: limit}, new(Findings)); err != nil {
		panic(err)
	}
	if crash {
		r.at = Begin(r.at.Checkpoint)
		return false
	}
	for _, e := range p.Events {
		r.published = append(r.published, string(e.Raw))
	}
	r.at = next
	if !p.Tail() {
		fmt.Sscan(p.Next, &r.offset)
	}
	return !p.Tail()
}

// reload stores and loads the position, as a restart would.
func (r *reader) reload(t *rapid.T) {
	b, err := json.Marshal(bridge.Checkpoint{Format: 1, Stream: "s", Tail: r.at.Tail, Carried: r.at.Carried})
	if err != nil {
		t.Fatal(err)
	}
	c, err := bridge.DecodeCheckpoint(b)
	if err != nil {
		t.Fatal(err)
	}
	r.at = Begin(c)
}

// TestTrimPublishesEachItemOnce reads a changing export to its end: each item
// that was there when its page was read is published once, however the last
// page grew, was reordered, got late items, or was read with another size.
func TestTrimPublishesEachItemOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := &export{withIDs: rapid.Bool().Draw(t, "ids"), eager: rapid.Bool().Draw(t, "eager")}
		r := &reader{at: Begin(bridge.Checkpoint{})}
		const most = 8
		limit := 1 << 20 // what a carried tail outlives is tested elsewhere
		n := 0
		fresh := func() string {
			n++
			if !x.withIDs && rapid.IntRange(0, 3).Draw(t, "twin") == 0 {
				return "twin" // equal items without an id can both be real
			}
			return fmt.Sprintf("item %d", n)
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				for range rapid.IntRange(1, 2*most).Draw(t, "grow") {
					x.items = append(x.items, fresh())
				}
			case 1: // the page at the cursor comes in another order
				page := x.items[r.offset:]
				if perm := rapid.Permutation(slices.Clone(page)).Draw(t, "order"); r.atTail(x, most) {
					copy(page, perm)
				}
			case 2: // a late item inside the last page
				if r.atTail(x, most) {
					x.items = slices.Insert(x.items, rapid.IntRange(r.offset, len(x.items)).Draw(t, "late"), fresh())
				}
			case 3:
				r.reload(t)
			default:
				size := rapid.IntRange(1, most).Draw(t, "size")
				r.read(x, size, limit, rapid.IntRange(0, 4).Draw(t, "crash") == 0)
			}
		}
		for r.read(x, most, limit, false) {
		}
		want, got := slices.Sorted(slices.Values(x.items)), slices.Sorted(slices.Values(r.published))
		if !slices.Equal(got, want) {
			t.Fatalf("published %q\nwant      %q", got, want)
		}
	})
}

// TestTrimTellsItemsOfOneIDApart reads a changing export in which several items
// have one id: each is published once, however the last page grew, was
// reordered, or got another of them before the first. What tells them apart is
// in memory, so the page must not change its order over a restart.
func TestTrimTellsItemsOfOneIDApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := &export{withIDs: true, eager: rapid.Bool().Draw(t, "eager")}
		r := &reader{at: Begin(bridge.Checkpoint{})}
		const most, limit = 8, 1 << 20
		n := 0
		fresh := func() string {
			n++
			return fmt.Sprintf("item %d#%d", rapid.IntRange(0, 3).Draw(t, "id"), n)
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				for range rapid.IntRange(1, 2*most).Draw(t, "grow") {
					x.items = append(x.items, fresh())
				}
			case 1:
				page := x.items[r.offset:]
				if perm := rapid.Permutation(slices.Clone(page)).Draw(t, "order"); r.atTail(x, most) {
					copy(page, perm)
				}
			case 2:
				if r.atTail(x, most) {
					x.items = slices.Insert(x.items, rapid.IntRange(r.offset, len(x.items)).Draw(t, "late"), fresh())
					r.read(x, most, limit, false)
				}
			case 3:
				r.read(x, most, limit, false)
				r.reload(t)
				r.read(x, most, limit, rapid.Bool().Draw(t, "crash"))
				r.read(x, most, limit, false)
			default:
				r.read(x, most, limit, false)
			}
		}
		for r.read(x, most, limit, false) {
		}
		want, got := slices.Sorted(slices.Values(x.items)), slices.Sorted(slices.Values(r.published))
		if !slices.Equal(got, want) {
			t.Fatalf("published %q\nwant      %q", got, want)
		}
	})
}

// atTail reports whether nothing lies behind the page at the cursor: only
// there may an export change what it showed before.
func (r *reader) atTail(x *export, size int) bool { return len(x.items)-r.offset < size }

func TestTrim(t *testing.T) {
	t.Parallel()
	const limit = 40
	type step struct {
		ids, next                  string // one letter an item; lower case: other bytes under the same id
		published, tail            string
		repeated, vanished, change int
		shared                     int
		carried                    int
	}
	for name, steps := range map[string][]step{
		"a tail that grows in place": {
			{ids: "AB", published: "AB", tail: "AB"},
			{ids: "AB", tail: "AB"},
			{ids: "ABC", published: "C", tail: "ABC"},
			{ids: "ABCD", next: "2", published: "D"},
		},
		"reordered": {{ids: "ABC", published: "ABC", tail: "ABC"}, {ids: "CAB", tail: "CAB"}},
		"vanished and back": {
			{ids: "ABC", published: "ABC", tail: "ABC"},
			{ids: "AC", tail: "ACB", vanished: 1},
			{ids: "AC", tail: "ACB"}, // counted once
			{ids: "ACB", tail: "ACB"},
		},
		"mutated": {{ids: "AB", published: "AB", tail: "AB"}, {ids: "aB", tail: "AB", change: 1}, {ids: "aB", tail: "AB"}},
		"twice in a page": {
			{ids: "ABA", next: "2", published: "AB", repeated: 1},
		},
		"different under one id": {
			{ids: "AaBAa", next: "2", published: "AaB", repeated: 2, shared: 1},
			{ids: "AaB", published: "AaB", tail: "AAB", shared: 1},
			{ids: "BaA", tail: "BAA"},
		},
		"a twin that is listed behind": {
			{ids: "AB", published: "AB", tail: "AB"},
			{ids: "ABa", published: "a", tail: "ABA", shared: 1},
			{ids: "aBA", tail: "ABA"},
		},
		"a twin that is listed before": {
			{ids: "AB", published: "AB", tail: "AB"},
			{ids: "aAB", published: "a", tail: "AAB", shared: 1},
			{ids: "AaB", tail: "AAB"},
		},
		"changed, then both": {
			{ids: "A", published: "A", tail: "A"},
			{ids: "a", tail: "A", change: 1},
			{ids: "aA", published: "a", tail: "AA", shared: 1},
		},
		"a tail read again with a shorter page": {
			{ids: "ABCD", published: "ABCD", tail: "ABCD"},
			{ids: "AB", next: "2", tail: "CD", carried: 2},
			{ids: "CE", next: "3", published: "E", tail: "D", carried: 4},
			{ids: "DF", published: "F", tail: "DF"},
		},
		"carried items that never come are dropped at the next tail": {
			{ids: "ABC", published: "ABC", tail: "ABC"},
			{ids: "A", next: "2", tail: "BC", carried: 1},
			{ids: "E", published: "E", tail: "E", vanished: 2},
			{tail: "E", vanished: 1}, // the carried items were not of this tail
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, cursor := Begin(bridge.Checkpoint{}), "1"
			for i, s := range steps {
				p := letterPage(cursor, s.ids, s.next)
				var got Findings
				must.Do(t, at.trim(p, &Rules{TailLimit: limit}, &got))
				if pub := letters(p); pub != s.published {
					t.Errorf("step %d published %q, want %q", i, pub, s.published)
				}
				if want := letterTail(s.tail); !slices.Equal(at.Tail, want) {
					t.Errorf("step %d tail has %d items, want %d, or another order", i, len(at.Tail), len(want))
				}
				if got.Repeated != s.repeated || got.Vanished != s.vanished || got.Changed != s.change ||
					got.Shared != s.shared || at.Carried != s.carried {
					t.Errorf("step %d repeated %d vanished %d changed %d carried %d, want %+v", i, got.Repeated, got.Vanished,
						got.Changed, at.Carried, s)
				}
				if s.next != "" {
					cursor = s.next
				}
			}
		})
	}
}

// TestTrimForgetsCarriedItems: what was carried for too long is dropped, so
// that a checkpoint cannot grow for ever.
func TestTrimForgetsCarriedItems(t *testing.T) {
	t.Parallel()
	at := Begin(bridge.Checkpoint{Tail: letterTail("XYZ")})
	for i, want := range []int{3, 3, 3, 0} {
		p := letterPage(fmt.Sprint(i), string(rune('A'+2*i))+string(rune('B'+2*i)), fmt.Sprint(i+1))
		var got Findings
		if err := at.trim(p, &Rules{TailLimit: 8}, &got); err != nil || len(at.Tail) != want {
			t.Fatalf("after %d items %d are carried, want %d (%v)", 2*(i+1), len(at.Tail), want, err)
		}
		if want == 0 && got.Vanished != 3 {
			t.Errorf("%d counted as vanished, want 3", got.Vanished)
		}
	}
}

func letterPage(at, ids, next string) *bridge.Page {
	p := &bridge.Page{At: bridge.Position{Cursor: at}, Next: next, Items: len(ids)}
	for i, c := range ids {
		id := string(c)
		if c >= 'a' {
			id = string(c - 'a' + 'A')
		}
		p.Events = append(p.Events, bridge.Event{Raw: []byte(string(c)), ID: []byte(id), Index: i})
	}
	return p
}

func letters(p *bridge.Page) string {
	s := ""
	for _, e := range p.Events {
		s += string(e.Raw)
	}
	return s
}

func letterTail(ids string) bridge.Tail {
	var t bridge.Tail
	for _, c := range ids {
		t = append(t, (&bridge.Event{ID: []byte(string(c))}).Identity())
	}
	return t
}

func TestTakeAllocatesNothing(t *testing.T) {
	at, p, full := manyItems()
	if n := testing.AllocsPerRun(20, func() {
		p.Events = full
		if _, _, err := at.Take(p, &Rules{PageSize: 1000, TailLimit: 4000}, Known{}); err != nil {
			t.Fatal(err)
		}
	}); n > 1 { // the border
		t.Errorf("%v allocations a page, want one", n)
	}
}

func BenchmarkTake(b *testing.B) {
	at, p, full := manyItems()
	for b.Loop() {
		p.Events = full
		if _, _, err := at.Take(p, &Rules{PageSize: 1000, TailLimit: 4000}, Known{}); err != nil {
			b.Fatal(err)
		}
	}
}

func manyItems() (Position, *bridge.Page, []bridge.Event) {
	full := make([]bridge.Event, 1000)
	for i := range full {
		full[i] = bridge.Event{ID: fmt.Appendf(nil, "00000000-0000-7000-8000-%012d", i), Raw: []byte("x")}
	}
	return Begin(bridge.Checkpoint{RecentCursors: bridge.RecentCursors{1}}),
		&bridge.Page{At: bridge.Position{Cursor: "1"}, Next: "2", Items: len(full)}, full
}
