package model

import "testing"

// A rule is needed only if its assertion is violated, not if the walk names it as unreached.
func TestJudge(t *testing.T) {
	t.Parallel()
	const clean = `
State-vector 12 byte, depth reached 2, errors: 0
        3 states, stored
unreached in proctype p
	a.pml:4, state 2, "assert((x==0))"
`
	const violated = `pan:1: assertion violated (x==0) (at depth 1)
Warning: Search not completed
State-vector 12 byte, depth reached 1, errors: 1
        2 states, stored
`
	for _, c := range []struct {
		finds, found string
		want         bool
	}{
		{"", clean, true}, {"", violated, false}, {"x == 0", violated, true}, {"x == 0", clean, false}, {"x == 1", violated, false},
		{"", "gcc: error", false}, {"x == 0", violated + "error: max search depth too small", false},
	} {
		if err := (Run{Finds: c.finds}).judge(c.found); (err == nil) != c.want {
			t.Errorf("%q in\n%s: %v", c.finds, c.found, err)
		}
	}
}
