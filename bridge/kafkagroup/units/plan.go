package units

import (
	"cmp"
	"maps"
	"slices"
)

// Plan says for each claim of each offer whether the member is to hold its unit. The
// same offers in the same order give the same plan.
func Plan(offers []Offer) [][]bool {
	p := newPlanner(offers)
	p.place()
	p.balance()
	given := make([][]bool, len(offers))
	for m := range offers {
		given[m] = make([]bool, len(offers[m].Claims))
		for i, c := range offers[m].Claims {
			given[m][i] = p.units[c.Unit].givenTo(m)
		}
	}
	return given
}

const nobody = -1

// planned is a unit and who is to run it. Members are indices of offers.
type planned struct {
	unit   Unit
	can    []int // who could run it
	holder int   // who holds or releases it by the newest generation
	keeps  bool  // the holder does not release it
	target int   // who is to run it, at once or when it is released
}

// givenTo reports whether a member is to hold the unit now.
func (u *planned) givenTo(m int) bool {
	return u.target == m && (u.holder == nobody || u.holder == m && u.keeps)
}

type planner struct {
	offers []Offer
	units  map[Unit]*planned
	order  []*planned
	load   []int // by member
}

func newPlanner(offers []Offer) *planner {
	p := &planner{offers: offers, units: make(map[Unit]*planned), load: make([]int, len(offers))}
	for m := range offers {
		for _, c := range offers[m].Claims {
			p.claim(m, c)
		}
	}
	// A unit that few can run is placed first: those that all can run level the loads.
	// A unit that moves anyway is moved before one that is held.
	p.order = slices.SortedFunc(maps.Values(p.units), func(a, b *planned) int {
		return cmp.Or(compareBool(a.keeps, b.keeps), cmp.Compare(len(a.can), len(b.can)), cmp.Compare(a.unit, b.unit))
	})
	return p
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (p *planner) claim(m int, c Claim) {
	u := p.units[c.Unit]
	if u == nil {
		u = &planned{unit: c.Unit, holder: nobody, target: nobody}
		p.units[c.Unit] = u
	}
	if c.State != Declined {
		u.can = append(u.can, m)
	}
	claims := c.State == Held || c.State == Releasing
	if claims && (u.holder == nobody || p.offers[m].Generation > p.offers[u.holder].Generation) {
		u.holder, u.keeps = m, c.State == Held
	}
}

// place leaves each unit that is held, and gives the others to whoever has least.
func (p *planner) place() {
	for _, u := range p.order {
		if u.keeps {
			u.target = u.holder
			p.load[u.target]++
		}
	}
	for _, u := range p.order {
		if !u.keeps && len(u.can) > 0 {
			u.target = p.least(u)
			p.load[u.target]++
		}
	}
}

// balance moves units to members that have at least two less. It begins with the
// member that has most, so that few units move.
func (p *planner) balance() {
	queues := make([][]*planned, len(p.load))
	for _, u := range p.order {
		if u.target != nobody {
			queues[u.target] = append(queues[u.target], u)
		}
	}
	for m := p.fullest(queues); m != nobody; m = p.fullest(queues) {
		p.move(queues[m][0])
		queues[m] = queues[m][1:]
	}
	for moved := true; moved; { // each move makes the sum of the squares of the loads smaller
		moved = false
		for _, u := range p.order {
			moved = p.move(u) || moved
		}
	}
}

// fullest returns the member with the greatest load of those that have a queue.
func (p *planner) fullest(queues [][]*planned) int {
	fullest := nobody
	for m := range queues {
		if len(queues[m]) > 0 && (fullest == nobody || p.load[m] > p.load[fullest]) {
			fullest = m
		}
	}
	return fullest
}

// move moves a unit if that makes the loads more equal, and reports whether it does.
func (p *planner) move(u *planned) bool {
	if u.target == nobody {
		return false
	}
	to := p.least(u)
	if p.load[u.target]-p.load[to] < 2 {
		return false
	}
	p.load[u.target]--
	p.load[to]++
	u.target = to
	return true
}

func (p *planner) least(u *planned) int {
	return slices.MinFunc(u.can, func(a, b int) int { return cmp.Compare(p.load[a], p.load[b]) })
}
