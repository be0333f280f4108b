package exportapi_test

import (
	"fmt"
	"slices"
	"testing"

	"exportbridge/bridge"
)

// An API may select the events of a range by another time than their own, such as their
// arrival. A window drops only events that it did not ask for.
func TestWindowByAnotherTime(t *testing.T) {
	t.Parallel()
	const t0 = 1_700_000_000_000
	times := []int64{-9000, 20, 400, 500, 10_000, 30_499, 30_500, 30_999, 31_000, 99_000}
	items := ""
	for i, at := range times {
		if items != "" {
			items += ","
		}
		items += fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, t0+at)
	}
	page := `{"items":[` + items + `],"nextCursor":""}`
	for _, tc := range []struct {
		inclusive, format string
		at                bridge.Position
		drops             []int64
	}{
		{"false", "ms", bridge.Position{Start: t0 + 500, End: t0 + 30_500, Window: true}, nil},
		{"true", "ms", bridge.Position{Start: t0 + 500, End: t0 + 30_500, Window: true}, []int64{30_500}},
		{"false", "s", bridge.Position{Start: t0 + 500, End: t0 + 30_500, Window: true}, []int64{20, 400, 30_500, 30_999}},
		{"true", "s", bridge.Position{Start: t0 + 500, End: t0 + 30_500, Window: true},
			[]int64{20, 400, 30_500, 30_999, 31_000}},
		{"false", "s", bridge.Position{Start: t0 + 500},
			[]int64{20, 400}}, // a stream, next to a backfill of the time before it
		{"true", "ms", bridge.Position{Start: t0 + 500}, nil},
		{"false", "s", bridge.Position{}, nil},
		{"none", "ms", bridge.Position{Start: t0 + 501, End: t0 + 30_500, Window: true}, []int64{500}},
		{"none", "s", bridge.Position{Start: t0 + 1000, End: t0 + 30_500, Window: true}, []int64{20, 400, 500, 30_500, 30_999}},
		{"none", "ms", bridge.Position{}, nil},
	} {
		vars := map[string]string{"EXPORT_END_INCLUSIVE": tc.inclusive, "EXPORT_TIME_FORMAT": tc.format}
		if tc.inclusive == "none" {
			vars["EXPORT_END_INCLUSIVE"], vars["EXPORT_START_EXCLUSIVE"] = "false", "true"
		}
		c := serve(t, answer(page), vars)
		p := mustFetch(t, c, tc.at)
		var got, want []int64
		for i := range p.Events {
			got = append(got, p.Events[i].Time-t0)
		}
		for _, at := range times {
			if !slices.Contains(tc.drops, at) {
				want = append(want, at)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("inclusive %s, %s, %+v: got %v, want %v", tc.inclusive, tc.format, tc.at, got, want)
		}
	}
}

// An item without a readable time is inside the window if it ends its page far from the
// window's end.
func TestUndatedInside(t *testing.T) {
	t.Parallel()
	const t0 = 1_700_000_000_000
	page := fmt.Sprintf(`{"items":[{"eventId":"a","timestamp":%d},{"eventId":"b","timestamp":"soon"}],"nextCursor":"c"}`,
		t0+1000)
	c := serve(t, answer(page), map[string]string{"EXPORT_END_INCLUSIVE": "true"})
	for end, want := range map[int64]int{t0 + 3_600_000: 2, t0 + 30_000: 0} {
		p, err := fetchAll(t, c, bridge.Position{Start: t0, End: end, Window: true})
		if (err == nil) != (want > 0) {
			t.Errorf("a window to %d: %v", end-t0, err)
		}
		if err == nil && len(p.Events) != want {
			t.Errorf("a window to %d has %d events, want %d", end-t0, len(p.Events), want)
		}
	}
}
