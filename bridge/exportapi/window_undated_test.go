package exportapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
)

// undatedAPI lists events by their times. The item of one event does not show its time.
func undatedAPI(times []int64, undated int, item string, inclusive, coarse bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a := windowAPI{format: "ms"}
		if coarse {
			a.format = "s"
		}
		from, to := a.parse(r.URL.Query().Get("start")), a.parse(r.URL.Query().Get("end"))
		var items []string
		for i, at := range times {
			if at < from || at > to || at == to && !inclusive {
				continue
			}
			if i == undated {
				items = append(items, item)
			} else {
				items = append(items, fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, at))
			}
		}
		answer(`{"items":[`+strings.Join(items, ",")+`],"nextCursor":""}`)(w, r)
	}
}

// Two adjacent windows publish an item without a readable time once, or the window that
// cannot decide stops with an error.
func TestUndatedAtBoundary(t *testing.T) {
	t.Parallel()
	const t0 = 1_700_000_000_000
	var times []int64
	for _, offset := range []int64{-1000, -1, 0, 1, 499, 500, 500, 501, 999, 1000, 1000, 1500, 1999, 2000, 2500} {
		times = append(times, t0+offset)
	}
	for _, edges := range [][]int64{{0, 1000, 2000}, {0, 500, 2000}, {1, 501, 1999}, {0, 999, 1500}} {
		for _, form := range []struct{ inclusive, coarse bool }{{true, false}, {false, true}, {true, true}, {false, false}} {
			for _, item := range []string{`{"eventId":"u"}`, `{"eventId":"u","timestamp":"soon"}`, `"u"`} {
				told := 0
				for undated := range times {
					vars := map[string]string{"EXPORT_END_INCLUSIVE": fmt.Sprint(form.inclusive)}
					if form.coarse {
						vars["EXPORT_TIME_FORMAT"] = "s"
					}
					c := serve(t, undatedAPI(times, undated, item, form.inclusive, form.coarse), vars)
					got, stopped := readWindows(t, c, t0+edges[0], t0+edges[1], t0+edges[2])
					if stopped {
						if !form.inclusive && !form.coarse {
							t.Errorf("exact windows stop at item %d", undated)
						}
						continue
					}
					var want []string
					for i, at := range times {
						switch {
						case at < t0+edges[0] || at >= t0+edges[2]:
						case i == undated:
							want = append(want, item)
							told++
						default:
							want = append(want, fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, at))
						}
					}
					if !slices.Equal(got, want) {
						t.Errorf("%v, %+v, %s as item %d: got %v\nwant %v", edges, form, item, undated, got, want)
					}
				}
				if told < 4 {
					t.Errorf("%v, %+v, %s: only %d places are told by the neighbours", edges, form, item, told)
				}
			}
		}
	}
}

// readWindows reads two adjacent windows. A window that stops must return the reason.
func readWindows(t *testing.T, c *exportapi.Client, from, between, to int64) (items []string, stopped bool) {
	t.Helper()
	for _, at := range []bridge.Position{{Start: from, End: between, Window: true},
		{Start: between, End: to, Window: true}} {
		p, err := fetchAll(t, c, at)
		if err != nil {
			f := wantFault(t, err)
			if f.Class != bridge.Permanent || f.Reason != bridge.ReasonMapping ||
				!strings.Contains(f.Error(), "has no readable time") || !strings.Contains(f.Hint, "EXPORT_ITEM_TIME") {
				t.Errorf("a window stops with %+v", f)
			}
			stopped = true
			continue
		}
		for i := range p.Events {
			raw := p.Events[i].Raw
			if !json.Valid(raw) {
				t.Fatalf("item %s", raw)
			}
			items = append(items, string(raw))
		}
	}
	return items, stopped
}
