package attest_test

import (
	"encoding/json"
	"testing"
	"time"

	"exportbridge/bridge/attest"
	"exportbridge/bridge/bridgetest/must"
)

// TestUncovered: a range is covered only by the records of all of it.
func TestUncovered(t *testing.T) {
	inWorld(t, func(w *world) {
		midnight := time.Now().Truncate(time.Hour)
		w.run(2*time.Hour, w.attestor("a")) // from an hour before midnight to 2:00
		none, err := attest.Read(t.Context(), w.topic, "another")
		if text, _ := json.Marshal(none.Between(0, 0)); err != nil || string(text) != "[]" {
			t.Errorf("the records of a stream without one: %s, %v", text, err)
		}
		c := must.Get(attest.Read(t.Context(), w.topic, "events"))(t)
		hour := func(n int) int64 { return midnight.Add(time.Duration(n) * time.Hour).UnixMilli() }
		for _, tc := range []struct {
			from, to       int64
			shown, missing int
		}{
			{0, 0, 3, 0}, {hour(-1), hour(2), 3, 0}, {hour(0), hour(1), 1, 0}, {hour(0) + 1, hour(1) + 1, 2, 0},
			{hour(-2), hour(0), 1, 1}, {hour(1), hour(3), 1, 1}, {hour(-2), hour(3), 3, 2}, {hour(4), hour(5), 0, 1},
		} {
			if got := c.Uncovered(tc.from, tc.to); len(got) != tc.missing || len(c.Between(tc.from, tc.to)) != tc.shown {
				t.Errorf("%v: %v, %d records", tc, got, len(c.Between(tc.from, tc.to)))
			}
		}
	})
}
