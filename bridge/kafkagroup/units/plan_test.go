package units_test

import (
	"fmt"
	"testing"

	"exportbridge/bridge/kafkagroup/units"
)

// offers returns an offer of n units for each member, all in the state that state says.
func offers(members, n int, state func(member, unit int) units.State) []units.Offer {
	all := make([]units.Offer, members)
	for m := range all {
		for u := range n {
			all[m].Claims = append(all[m].Claims, units.Claim{Unit: units.Unit(u + 1), State: state(m, u)})
		}
	}
	return all
}

func count(given []bool) (n int) {
	for _, yes := range given {
		if yes {
			n++
		}
	}
	return n
}

func can(int, int) units.State { return units.Can }

func TestPlanSpreads(t *testing.T) {
	t.Parallel()
	for m, given := range units.Plan(offers(3, 10, can)) {
		if n := count(given); n != 3 && n != 4 {
			t.Errorf("member %d has %d of 10", m, n)
		}
	}
	// Only the second can run the first five.
	picky := offers(2, 10, can)
	picky[0].Claims = picky[0].Claims[5:]
	if plan := units.Plan(picky); count(plan[0]) != 5 || count(plan[1]) != 5 {
		t.Errorf("plan %v", plan)
	}
	if plan := units.Plan(nil); len(plan) != 0 {
		t.Errorf("plan of nobody: %v", plan)
	}
}

// TestPlanMovesFew: a unit that moves goes from who has too much to who has too little,
// and is not given before its holder has released it.
func TestPlanMovesFew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		loads []int
		stay  int
	}{{[]int{34, 33, 33, 0}, 75}, {[]int{5, 3, 1}, 7}, {[]int{3, 5, 1}, 7}, {[]int{0, 60, 60}, 80}, {[]int{7, 7, 8}, 22}} {
		var holders []int
		for m, n := range c.loads {
			for range n {
				holders = append(holders, m)
			}
		}
		all := offers(len(c.loads), len(holders), func(m, u int) units.State {
			if holders[len(holders)-1-u] == m {
				return units.Held
			}
			return units.Can
		})
		stay := 0
		for m, given := range units.Plan(all) {
			for i, yes := range given {
				if yes && all[m].Claims[i].State != units.Held {
					t.Errorf("loads %v: member %d is given unit %d before its holder has released it", c.loads, m, i)
				}
			}
			stay += count(given)
		}
		if stay != c.stay {
			t.Errorf("loads %v: %d units stay, want %d", c.loads, stay, c.stay)
		}
	}
}

// TestPlanMovesInTurn: a move can make another one useful.
func TestPlanMovesInTurn(t *testing.T) {
	t.Parallel()
	all := make([]units.Offer, 4)
	for u, members := range map[units.Unit][]int{1: {0, 1}, 2: {0}, 3: {0}, 4: {0}, 5: {1, 2, 3}, 6: {1, 2, 3}, 7: {1, 2, 3}} {
		for i, m := range members {
			all[m].Claims = append(all[m].Claims, units.Claim{Unit: u, State: []units.State{units.Held, units.Can, units.Can}[i]})
		}
	}
	plan := units.Plan(all)
	if count(plan[0]) != 3 || count(plan[1]) != 1 {
		t.Errorf("plan %v, want a unit of the first and two of the second to move", plan)
	}
}

// TestPlanKnowsTheOlderGeneration: of two that claim a unit, the one that missed that it
// moved loses it.
func TestPlanKnowsTheOlderGeneration(t *testing.T) {
	t.Parallel()
	for _, state := range []units.State{units.Held, units.Releasing} {
		all := offers(2, 1, func(m, _ int) units.State { return []units.State{state, units.Held}[m] })
		all[0].Generation, all[1].Generation = 3, 5
		if plan := units.Plan(all); plan[0][0] || !plan[1][0] {
			t.Errorf("state %d of the older one: plan %v", state, plan)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, size := range [][2]int{{3, 1000}, {20, 10000}} {
		b.Run(fmt.Sprintf("members=%d/units=%d", size[0], size[1]), func(b *testing.B) {
			all := offers(size[0], size[1], func(m, u int) units.State {
				if u%(size[0]-1) == m {
					return units.Held
				}
				return units.Can
			})
			for b.Loop() {
				units.Plan(all)
			}
		})
	}
}
