package timeline_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/timeline"
)

// backwards lists times on pages of a size. It reports whether a page was refused, and how
// many pages were accepted before.
func backwards(times []int64, size int) (refused bool, accepted int) {
	var o timeline.Order
	for at := 0; at < len(times); at += size {
		p := &bridge.Page{Next: fmt.Sprint(at + size)}
		if at > 0 {
			p.At.Cursor = fmt.Sprint(at)
		}
		for _, ms := range times[at:min(at+size, len(times))] {
			p.Events = append(p.Events, bridge.Event{Time: ms})
		}
		for range 3 { // a refused page is refused again
			if o.Backwards(p) {
				refused = true
			} else if refused {
				return false, -1
			}
		}
		if refused {
			return true, accepted
		}
		accepted++
	}
	return false, accepted
}

func TestOrder(t *testing.T) {
	t.Parallel()
	up, down, same := make([]int64, 100), make([]int64, 100), make([]int64, 100)
	for i := range up {
		up[i], down[i], same[i] = int64(1000*i), int64(1000*(100-i)), 7
	}
	swapped := func(times []int64, at int) []int64 {
		times = append([]int64(nil), times...)
		times[at], times[at+1] = times[at+1], times[at]
		return times
	}
	gaps := append([]int64(nil), down...)
	for i := range gaps {
		if i%2 == 1 {
			gaps[i] = bridge.NoTime
		}
	}
	for name, test := range map[string]struct {
		times   []int64
		refused bool
	}{
		"ascending":                {up, false},
		"descending":               {down, true},
		"ascending, one swap":      {swapped(up, 50), false},
		"descending, one swap":     {swapped(down, 50), true},
		"descending, a swap early": {swapped(down, 2), true},
		"equal":                    {same, false},
		"equal, the last is older": {append(same[:99:99], 6), false},
		"every other has a time":   {gaps, true},
		"few":                      {down[:9], false},
	} {
		for _, size := range []int{1, 2, 5, 7, 100} {
			if refused, accepted := backwards(test.times, size); refused != test.refused || accepted < 0 {
				t.Errorf("%s, pages of %d: refused %t after %d pages", name, size, refused, accepted)
			}
		}
	}
	if _, accepted := backwards(down, 5); accepted != 1 {
		t.Errorf("%d pages of 5 were accepted", accepted)
	}
}

// Events within 5 s come in any order.
func TestOrderOfTheSlightlyUnordered(t *testing.T) {
	t.Parallel()
	const tries = 2000
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not secret
	for _, step := range []int64{1, 50, 1000} {
		false10, false200, missed := 0, 0, 0
		for range tries {
			late := make([]int64, 200)
			early := make([]int64, 200)
			for i := range late {
				jitter := random.Int64N(5000) / step * step
				late[i] = int64(i)*20 + jitter
				early[i] = int64(len(late)-i)*1000 + jitter
			}
			if refused, _ := backwards(late[:10], 10); refused {
				false10++
			}
			if refused, _ := backwards(late, 5); refused {
				false200++
			}
			if refused, _ := backwards(early, 5); !refused {
				missed++
			}
		}
		if false10 > tries/500 || false200 > tries/200 || missed > tries/10 {
			t.Errorf("steps of %d ms: of %d, %d first tens and %d lists were refused, %d backward ones accepted", step, tries,
				false10, false200, missed)
		}
	}
}

// A page that does not follow the ones before is ignored.
func TestOrderOfOtherPages(t *testing.T) {
	t.Parallel()
	page := func(cursor, next string, from int64) *bridge.Page {
		p := &bridge.Page{At: bridge.Position{Cursor: cursor}, Next: next}
		for i := range int64(6) {
			p.Events = append(p.Events, bridge.Event{Time: from - i})
		}
		return p
	}
	for name, test := range map[string]struct {
		pages []*bridge.Page
		last  bool
	}{
		"followed":         {[]*bridge.Page{page("", "a", 100), page("a", "b", 90)}, true},
		"without a first":  {[]*bridge.Page{page("a", "b", 100), page("b", "c", 90)}, false},
		"elsewhere":        {[]*bridge.Page{page("", "a", 100), page("x", "y", 90)}, false},
		"two first":        {[]*bridge.Page{page("", "a", 100), page("", "a", 90)}, false},
		"first after last": {[]*bridge.Page{page("", "", 100), page("", "", 90)}, false},
	} {
		var o timeline.Order
		got := false
		for _, p := range test.pages {
			got = o.Backwards(p)
		}
		if got != test.last {
			t.Errorf("%s: backwards %t", name, got)
		}
	}
}
