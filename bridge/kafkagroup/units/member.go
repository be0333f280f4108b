package units

import (
	"cmp"
	"hash/crc32"
	"maps"
	"slices"
)

// Member is the state of one member of a group: its units, and which of them it holds. The
// zero value has no units and had no assignment. The caller guards it.
type Member struct {
	// Process, Program and Capacity are those of Offer.
	Process, Program string
	Capacity         uint64

	units      map[Unit]*unit
	generation int32 // generation of the last assignment
	joined     bool  // there was an assignment
	sent       Offer // the last offer
	sentSum    uint32
	given      []bool // the answer to the last offer; nil until it arrives
	flags      byte
}

// unit is a unit of a member.
type unit struct {
	unwanted bool
	state    State // Can, Held or Releasing
	overdue  bool  // Releasing for too long: other members no longer wait
}

func (u *unit) claimed() State {
	if u.state == Can && u.unwanted || u.overdue {
		return Declined
	}
	return u.state
}

// Add adds a unit that the member can run, and wants. It returns false if the member has
// the unit already.
func (m *Member) Add(u Unit) bool {
	if m.units[u] != nil {
		return false
	}
	if m.units == nil {
		m.units = make(map[Unit]*unit)
	}
	m.units[u] = new(unit)
	return true
}

// Remove removes a unit. If the member holds the unit, the caller has to call Stop and
// Ended first.
func (m *Member) Remove(u Unit) { delete(m.units, u) }

// Want sets whether the member wants a unit that it does not hold.
func (m *Member) Want(u Unit, want bool) {
	if unit := m.units[u]; unit != nil {
		unit.unwanted = !want
	}
}

// State returns the state of a unit. It returns Declined for a unit that is not wanted,
// that the member does not have, or that was released too slowly.
func (m *Member) State(u Unit) State {
	if unit := m.units[u]; unit != nil {
		return unit.claimed()
	}
	return Declined
}

// Offer returns the encoded offer to join with. Apply expects the answer to this offer.
func (m *Member) Offer() []byte {
	o := m.offer()
	encoded := o.Append(nil)
	m.sent, m.sentSum, m.given = o, crc32.ChecksumIEEE(encoded), nil
	return encoded
}

func (m *Member) offer() Offer {
	o := Offer{Generation: -1, Flags: m.flags, Process: m.Process, Program: m.Program, Capacity: m.Capacity}
	o.Claims = make([]Claim, 0, len(m.units))
	if m.joined {
		o.Generation = m.generation
	}
	for hash, u := range m.units {
		o.Claims = append(o.Claims, Claim{hash, u.claimed()})
	}
	slices.SortFunc(o.Claims, func(a, b Claim) int { return cmp.Compare(a.Unit, b.Unit) })
	return o
}

// Changed reports whether the group needs another offer, after the last one was answered.
// It does not if a unit is only held or released as the answer says.
func (m *Member) Changed() bool {
	if len(m.sent.Claims) != len(m.units) {
		return true
	}
	for i, c := range m.sent.Claims {
		u := m.units[c.Unit]
		if u == nil {
			return true
		}
		known := c.State
		if m.given != nil && m.given[i] {
			known = Held
		}
		if now := u.claimed(); now != known && (known != Held || now != Releasing) {
			return true
		}
	}
	return false
}

// Outcome is what an assignment changes.
type Outcome struct {
	// Start has the units that the member holds from now on, Stop those to end. Ended
	// reports their end.
	Start, Stop []Unit
	// Stale means that the assignment answers another list of streams, and has changed
	// nothing. Old means that it answers another offer of this list, from the process
	// before this one. After both, the member joins again.
	Stale, Old bool
}

// Apply applies the assignment of a generation. An answer to another list of streams than
// that of the last Offer is stale: a static member gets the assignment of its former
// process after a restart.
func (m *Member) Apply(a Assignment, generation int32) (o Outcome) {
	given, answers := a.For(&m.sent)
	if !answers {
		o.Stale = true
		m.flags ^= flagAgain
		return o
	}
	m.generation, m.joined, m.given = generation, true, given
	o.Old = a.Offer != m.sentSum
	for i, c := range m.sent.Claims {
		u := m.units[c.Unit]
		switch {
		case u == nil:
		case given[i] && u.state == Can && !u.unwanted:
			u.state = Held
			o.Start = append(o.Start, c.Unit)
		case !given[i] && u.state == Held:
			u.state = Releasing
			o.Stop = append(o.Stop, c.Unit)
		}
	}
	return o
}

// Lapse takes all units away, because the group continues without this member. It returns
// the units to end.
func (m *Member) Lapse() (stop []Unit) {
	for _, u := range slices.Sorted(maps.Keys(m.units)) {
		if m.Stop(u) {
			stop = append(stop, u)
		}
	}
	return stop
}

// Stop begins to release a unit. It returns whether the unit was held.
func (m *Member) Stop(u Unit) bool {
	unit := m.units[u]
	if unit == nil || unit.state != Held {
		return false
	}
	unit.state = Releasing
	return true
}

// Ended records that a unit is released.
func (m *Member) Ended(u Unit) {
	if unit := m.units[u]; unit != nil {
		unit.state, unit.overdue = Can, false
	}
}

// Overdue makes other members no longer wait for the end of a unit.
func (m *Member) Overdue(u Unit) {
	if unit := m.units[u]; unit != nil && unit.state == Releasing {
		unit.overdue = true
	}
}
