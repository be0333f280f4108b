package stuck

import (
	"testing"
	"time"
)

func TestPage(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	var p Page
	for i, step := range []struct {
		at     time.Duration
		cursor string
		passed bool
		want   bool
	}{
		{at: 0, cursor: "a"}, {at: After - 1, cursor: "a"}, {at: After, cursor: "a", want: true},
		{at: 2 * After, cursor: "a", want: true},
		{at: 2 * After, cursor: "", passed: true}, // a request without a cursor has no effect
		{at: 2 * After, cursor: "a", want: true}, {at: 2 * After, cursor: "", want: false},
		{at: 2 * After, cursor: "a", want: true},
		{at: 2 * After, cursor: "a", passed: true}, {at: 2 * After, cursor: "a"}, {at: 3*After - 1, cursor: "a"},
		{at: 3 * After, cursor: "b"}, {at: 4 * After, cursor: "b", want: true}, {at: 4 * After, cursor: "c", passed: true},
		{at: 5 * After, cursor: "b"},
	} {
		if step.passed {
			p.Passed(step.cursor)
			continue
		}
		if got := p.Failed(step.cursor, began.Add(step.at)); got != step.want {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
}
