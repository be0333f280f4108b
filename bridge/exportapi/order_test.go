package exportapi_test

import (
	"fmt"
	"strings"
	"testing"

	"exportbridge/bridge"
)

func TestNewestFirst(t *testing.T) {
	t.Parallel()
	down := func(n int) (times []string) {
		for i := range n {
			times = append(times, fmt.Sprint(1000-i/2)) // two of each time
		}
		return times
	}
	for name, tc := range map[string]struct {
		times   []string
		at      bridge.Position
		refused bool
	}{
		"backwards":                {down(10), bridge.Position{}, true},
		"backwards, a bad time":    {append(down(10), `"x"`), bridge.Position{}, true},
		"backwards but for one":    {append(down(40), "990", "980", "985", "970"), bridge.Position{}, true},
		"too few to tell":          {down(9), bridge.Position{}, false},
		"all at one time":          {strings.Fields(strings.Repeat("5 ", 20)), bridge.Position{}, false},
		"the last one is newer":    {append(down(10), "1001"), bridge.Position{}, false},
		"not the first page":       {down(10), bridge.Position{Cursor: testCursor}, false},
		"the first page of bounds": {down(10), bridge.Position{Start: 1, End: 2000, Window: true}, true},
	} {
		items := make([]string, len(tc.times))
		for i, at := range tc.times {
			items[i] = `{"timestamp":` + at + `}`
		}
		for _, page := range []string{`{"items":[%s],"nextCursor":"a"}`,
			`{"nextCursor":"a","metadata":{},"items":[%s],"more":1}`} {
			_, err := fetchAll(t, serve(t, answer(fmt.Sprintf(page, strings.Join(items, ","))), nil), tc.at)
			if !tc.refused {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if f := wantFault(t, err); f.Class != bridge.Permanent || f.Reason != bridge.ReasonConfig ||
				!strings.Contains(f.Error(), "newest first") {
				t.Errorf("%s: got %+v", name, f)
			}
		}
	}
}
