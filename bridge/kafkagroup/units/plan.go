package units

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Plan returns for each claim of each offer whether the member holds its unit from now on.
// The same offers in the same order give the same plan. Streams come first. A member gets
// as many lanes as its Capacity; other lanes wait until one of them ends.
func Plan(offers []Offer) [][]bool {
	p := newPlanner(offers, make([]int, len(offers)), false)
	p.plan()
	l := newPlanner(offers, p.load, true)
	l.plan()
	given := make([][]bool, len(offers))
	for m := range offers {
		given[m] = make([]bool, len(offers[m].Claims))
		for i, c := range offers[m].Claims {
			u := p.units[c.Unit]
			if c.Unit.IsLane() {
				u = l.units[c.Unit]
			}
			given[m][i] = u.givenTo(m)
		}
	}
	return given
}

const nobody = -1

// planned is a unit and the members that can run it. Members are indices of offers.
type planned struct {
	unit   Unit
	can    []int // members that can run it
	holder int   // member that holds or releases it, in the newest generation
	keeps  bool  // the holder does not release it
	target int   // member that will run it, at once or after its release
}

// givenTo reports whether a member holds the unit from now on.
func (u *planned) givenTo(m int) bool {
	return u.target == m && (u.holder == nobody || u.holder == m && u.keeps)
}

// planner plans the units of one class.
type planner struct {
	offers []Offer
	units  map[Unit]*planned
	order  []*planned
	// These are indexed by member: load counts the units of the class, room is the maximum,
	// beside counts the units of the other class.
	load, room, beside []int
}

func newPlanner(offers []Offer, beside []int, lanes bool) *planner {
	n := len(offers)
	p := &planner{
		offers: offers, units: make(map[Unit]*planned),
		load: make([]int, n), room: make([]int, n), beside: beside,
	}
	for m := range offers {
		first, others := offers[m].classes()
		claims := first
		p.room[m] = math.MaxInt
		if lanes {
			claims, p.room[m] = others, int(min(offers[m].Capacity, math.MaxInt32))
		}
		for _, c := range claims {
			p.claim(m, c)
		}
	}
	// Units that few members can run are placed first, because units that all can run level
	// the loads. A unit that moves anyway is placed before one that is held.
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

func (p *planner) plan() {
	p.place()
	p.balance()
}

// place leaves each held unit where it is, and gives each other unit to the member with the
// least load.
func (p *planner) place() {
	for _, u := range p.order {
		if u.keeps && p.load[u.holder] < p.room[u.holder] {
			u.target = u.holder
			p.load[u.target]++
		}
	}
	for _, u := range p.order {
		if u.target == nobody {
			p.move(u)
		}
	}
}

// balance moves units to members with at least two units less. It begins with the member
// with the most units, so that few units move.
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
	// Each move makes the sum of the squares of the loads smaller, or makes room for a unit.
	for moved := true; moved; {
		moved = false
		for _, u := range p.order {
			moved = p.move(u) || moved
		}
	}
}

// fullest returns the member with the greatest load among those with a queue.
func (p *planner) fullest(queues [][]*planned) int {
	fullest := nobody
	for m := range queues {
		if len(queues[m]) > 0 && (fullest == nobody || p.load[m] > p.load[fullest]) {
			fullest = m
		}
	}
	return fullest
}

// move gives a unit to the member with the least load. It moves a held unit only if that
// makes the loads more equal. It reports whether it moved the unit.
func (p *planner) move(u *planned) bool {
	to := p.least(u)
	switch {
	case to == nobody || u.target != nobody && p.load[u.target]-p.load[to] < 2:
		return false
	case u.target != nobody:
		p.load[u.target]--
	}
	p.load[to]++
	u.target = to
	return true
}

// least returns the member with the least load among those that can run the unit and have
// room.
func (p *planner) least(u *planned) int {
	least := nobody
	for _, m := range u.can {
		if p.load[m] < p.room[m] && (least == nobody || p.compare(m, least) < 0) {
			least = m
		}
	}
	return least
}

func (p *planner) compare(a, b int) int {
	return cmp.Or(cmp.Compare(p.load[a], p.load[b]), cmp.Compare(p.beside[a], p.beside[b]))
}
