package units_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"exportbridge/bridge/kafkagroup/units"
)

const (
	schedules   = 1000
	steps       = 60
	mostMembers = 4
	mostLanes   = 3 // at a time in a process
)

// all are the units of the explored group: streams and lanes.
var all = func() (all []units.Unit) {
	for u := range units.Unit(7) {
		all = append(all, 1+u)
	}
	for n := range 5 {
		all = append(all, units.Lane("job", n))
	}
	return all
}()

// process is a process of the explored group.
type process struct {
	name     string
	state    *units.Member
	frozen   bool             // it does nothing, and its streams go on
	gone     bool             // it was killed, and its streams with it
	in       bool             // the group counts it as a member
	answer   units.Assignment // of generation answered
	answered int32
	// running are the units that it has not ended, wanted those that it is to have.
	running, wanted map[units.Unit]bool
	late            map[units.Unit]bool // is ended so slowly that nobody waits
}

func (p *process) up() bool { return !p.frozen && !p.gone }

// group is the explored group: its members and what its coordinator knows.
type group struct {
	t          *testing.T
	r          *rand.Rand
	all        []*process
	generation int32
	// last is who was given a unit last.
	last     map[units.Unit]*process
	settling bool // nothing happens any more
	log      []string
}

func (g *group) logf(format string, args ...any) { g.log = append(g.log, fmt.Sprintf(format, args...)) }

func (g *group) failf(format string, args ...any) {
	g.t.Helper()
	for _, line := range g.log {
		g.t.Log(line)
	}
	g.t.Fatalf(format, args...)
}

// TestExplore runs random schedules of what happens to a group, and checks the plan's
// three promises.
func TestExplore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(schedules) {
		g := &group{t: t, r: rand.New(rand.NewPCG(seed, 1)), last: make(map[units.Unit]*process)}
		g.logf("seed %d", seed)
		g.join()
		for range steps {
			g.step()
		}
		g.settle()
	}
}

func (g *group) pick(is func(*process) bool) *process {
	fit := slices.DeleteFunc(slices.Clone(g.all), func(p *process) bool { return !is(p) })
	if len(fit) == 0 {
		return nil
	}
	return fit[g.r.IntN(len(fit))]
}

func (g *group) unit() units.Unit { return all[g.r.IntN(len(all))] }

// member returns the state of a process that begins.
func (g *group) member() *units.Member {
	return &units.Member{Capacity: uint64(g.r.IntN(mostLanes + 1))}
}

func (g *group) step() {
	p := g.pick((*process).up)
	if p == nil {
		g.join()
		return
	}
	u := g.unit()
	switch g.r.IntN(12) {
	case 0:
		g.join()
	case 1:
		g.leave(p)
	case 2:
		p.gone = true
		g.logf("%s is killed", p.name)
	case 3:
		p.frozen = true
		g.logf("%s is frozen", p.name)
	case 4:
		if p := g.pick(func(p *process) bool { return p.frozen && !p.gone }); p != nil {
			g.thaw(p)
		}
	case 5:
		g.end(p, u)
	case 6:
		if p.state.State(u) == units.Releasing {
			p.state.Overdue(u)
			p.late[u] = true
			g.logf("%s is too slow with %d", p.name, u)
		}
	case 7:
		g.toggle(p, u)
	case 8:
		g.list(p, u)
	case 9:
		g.restart(p)
	default:
		g.rebalance()
	}
}

func (g *group) join() {
	if len(slices.DeleteFunc(slices.Clone(g.all), func(p *process) bool { return p.gone })) >= mostMembers {
		return
	}
	p := &process{
		name: fmt.Sprint("p", len(g.all)), state: g.member(), in: true,
		running: make(map[units.Unit]bool), wanted: make(map[units.Unit]bool), late: make(map[units.Unit]bool),
	}
	for _, u := range all {
		if g.r.IntN(3) > 0 {
			p.state.Add(u)
			p.wanted[u] = true
		}
	}
	g.all = append(g.all, p)
	g.logf("%s joins with %v", p.name, p.wanted)
}

// leave ends a process in order: all its units, then its membership.
func (g *group) leave(p *process) {
	p.gone, p.in = true, false
	clear(p.running)
	g.logf("%s leaves", p.name)
}

// thaw has a process go on that was frozen. It finds that the group went on without it,
// unless it was away for less than a session.
func (g *group) thaw(p *process) {
	p.frozen = false
	g.logf("%s goes on, a member: %t", p.name, p.in)
	if !p.in {
		p.state.Lapse()
		p.in = true
	}
}

// end completes the release of a unit, by command or by its own fault.
func (g *group) end(p *process, u units.Unit) {
	if !p.running[u] {
		return
	}
	if p.state.State(u) == units.Held { // of its own
		p.state.Want(u, false)
		delete(p.wanted, u)
	}
	p.state.Ended(u)
	delete(p.running, u)
	delete(p.late, u)
	g.logf("%s ends %d", p.name, u)
}

func (g *group) toggle(p *process, u units.Unit) {
	if p.state.State(u) == units.Can || p.state.State(u) == units.Declined && !p.running[u] {
		p.wanted[u] = !p.wanted[u] && (p.state.State(u) == units.Can || !p.state.Add(u))
		p.state.Want(u, p.wanted[u])
		g.logf("%s wants %d: %t", p.name, u, p.wanted[u])
	}
}

// list adds a unit to a process, or removes one that it does not run.
func (g *group) list(p *process, u units.Unit) {
	if p.state.Add(u) {
		p.wanted[u] = true
		g.logf("%s lists %d", p.name, u)
	} else if !p.running[u] {
		p.state.Remove(u)
		delete(p.wanted, u)
		g.logf("%s does not list %d any more", p.name, u)
	}
}

// restart replaces a static member's process by another one, maybe with another list.
// The coordinator gives it the old answer, and rebalances nothing.
func (g *group) restart(p *process) {
	if !p.in || p.answered != g.generation || g.generation == 0 {
		return
	}
	p.state = g.member()
	clear(p.running)
	clear(p.late)
	if g.r.IntN(2) == 0 {
		delete(p.wanted, g.unit())
		p.wanted[g.unit()] = true
	}
	for u := range p.wanted {
		if p.wanted[u] {
			p.state.Add(u)
		}
	}
	p.state.Offer()
	g.logf("%s restarts with %v", p.name, p.wanted)
	before := maps.Clone(g.last)
	g.apply(p)
	for u := range p.running {
		last := before[u]
		if last != nil && last != p && last.running[u] && !last.late[u] && last.answered == p.answered && last.up() {
			g.failf("%d starts at %s by an old assignment while %s has it", u, p.name, last.name)
		}
	}
}

func (g *group) apply(p *process) {
	out := p.state.Apply(p.answer, g.generation)
	for _, u := range out.Start {
		p.running[u] = true
		g.last[u] = p
	}
	g.logf("%s: %+v", p.name, out)
}

// rebalance expels who did not answer, and has all others join again.
func (g *group) rebalance() {
	var members []*process
	var offers []units.Offer
	var encoded [][]byte
	for _, p := range g.all {
		p.in = p.in && p.up()
		if p.in {
			data := p.state.Offer()
			o, err := units.DecodeOffer(data)
			if err != nil {
				g.failf("decode the offer of %s: %v", p.name, err)
			}
			members, offers, encoded = append(members, p), append(offers, o), append(encoded, data)
		}
	}
	g.generation++
	g.logf("generation %d of %d", g.generation, len(members))
	for i := range offers {
		g.logf("  %s offers %d %+v", members[i].name, offers[i].Generation, offers[i].Claims)
	}
	plan := units.Plan(offers)
	g.checkGiven(members, offers, plan)
	g.checkSuperseded(offers, plan)
	g.checkStopped(offers, plan)
	for i, p := range members {
		p.answer, p.answered = units.Answer(encoded[i], &offers[i], plan[i]), g.generation
		switch chance := g.r.IntN(10); {
		case g.settling:
		case chance == 0:
			p.frozen = true // before it hears of it
			g.logf("%s is frozen", p.name)
			continue
		case chance == 1:
			g.list(p, g.unit()) // what it lists changed since it joined
		}
		g.apply(p)
	}
}

// checkGiven: a unit is never given while the member of the newest generation that has
// it still has it, nor to who does not want it.
func (g *group) checkGiven(members []*process, all []units.Offer, plan [][]bool) {
	for i, p := range members {
		lanes := 0
		for j, c := range all[i].Claims {
			if !plan[i][j] {
				continue
			}
			last := g.last[c.Unit]
			if last != nil && last != p && last.running[c.Unit] && !last.late[c.Unit] && slices.Contains(members, last) {
				g.failf("%d is given to %s while %s has it", c.Unit, p.name, last.name)
			}
			if c.State == units.Declined {
				g.failf("%d is given to %s, which declined it", c.Unit, p.name)
			}
			if c.Unit.IsLane() {
				lanes++
			}
		}
		if lanes > int(all[i].Capacity) {
			g.failf("%s is given %d lanes, and has room for %d", p.name, lanes, all[i].Capacity)
		}
	}
}

// checkSuperseded: who claims a unit by an older generation than another one changes
// nothing.
func (g *group) checkSuperseded(all []units.Offer, plan [][]bool) {
	newest := make(map[units.Unit]int32)
	claims := func(c units.Claim) bool { return c.State == units.Held || c.State == units.Releasing }
	for i := range all {
		for _, c := range all[i].Claims {
			if claims(c) {
				newest[c.Unit] = max(newest[c.Unit], all[i].Generation)
			}
		}
	}
	without := slices.Clone(all)
	for i := range without {
		without[i].Claims = slices.Clone(all[i].Claims)
		for j, c := range all[i].Claims {
			if claims(c) && all[i].Generation < newest[c.Unit] {
				without[i].Claims[j].State = units.Can
			}
		}
	}
	for i, given := range units.Plan(without) {
		if !slices.Equal(given, plan[i]) {
			g.failf("an old claim changes what member %d is given: %v, not %v", i, plan[i], given)
		}
	}
}

// checkStopped: where each unit is held, or waits for room, and the loads are equal, nothing
// stops.
func (g *group) checkStopped(all []units.Offer, plan [][]bool) {
	for _, lanes := range []bool{false, true} {
		newest, still := holders(all, lanes)
		load := make([]int, len(all))
		for _, i := range newest {
			load[i]++
		}
		if !still || !level(all, load, lanes) || waits(all, load, lanes) {
			continue
		}
		for i := range all {
			for j, c := range all[i].Claims {
				holder, held := newest[c.Unit]
				if c.Unit.IsLane() == lanes && c.State == units.Held && held && holder == i && !plan[i][j] {
					g.failf("%d stops at member %d without a reason", c.Unit, i)
				}
			}
		}
	}
}

// holders returns who holds each unit of a class by the newest generation, and whether none
// is being released.
func holders(all []units.Offer, lanes bool) (newest map[units.Unit]int, still bool) {
	newest, still = make(map[units.Unit]int), true
	states := make(map[units.Unit]units.State)
	for i := range all {
		for _, c := range all[i].Claims {
			if c.Unit.IsLane() != lanes || c.State != units.Held && c.State != units.Releasing {
				continue
			}
			if before, ok := newest[c.Unit]; !ok || all[i].Generation > all[before].Generation {
				newest[c.Unit], states[c.Unit] = i, c.State
			}
		}
	}
	for _, state := range states {
		still = still && state == units.Held
	}
	return newest, still
}

// waits reports that a unit that nobody holds could be given to a member with room.
func waits(all []units.Offer, load []int, lanes bool) bool {
	newest, _ := holders(all, lanes)
	for i := range all {
		for _, c := range all[i].Claims {
			if _, held := newest[c.Unit]; c.Unit.IsLane() == lanes && c.State != units.Declined && !held && room(&all[i], load[i], lanes) {
				return true
			}
		}
	}
	return false
}

// room reports whether a member can have more of a class.
func room(o *units.Offer, load int, lanes bool) bool { return !lanes || load < int(o.Capacity) }

// level reports that no member holds a unit that would make the loads more equal elsewhere,
// nor more lanes than it has room for.
func level(all []units.Offer, load []int, lanes bool) bool {
	for i := range all {
		if lanes && load[i] > int(all[i].Capacity) {
			return false
		}
		for _, c := range all[i].Claims {
			for j := range all {
				wants := slices.ContainsFunc(all[j].Claims, func(o units.Claim) bool { return o.Unit == c.Unit && o.State != units.Declined })
				if c.Unit.IsLane() == lanes && c.State == units.Held && wants && load[i]-load[j] >= 2 && room(&all[j], load[j], lanes) {
					return false
				}
			}
		}
	}
	return true
}

// settle lets everything come to rest: then each unit that a process wants is held by
// one, even if another one never ends it, or it is a lane for which no process has room,
// and the loads are equal.
func (g *group) settle() {
	g.settling = true
	g.logf("settling")
	for _, p := range g.all {
		if p.frozen && !p.gone {
			g.thaw(p)
		}
	}
	for n := range 8 {
		changed := n == 0
		for _, p := range g.all {
			for _, u := range all {
				if !p.gone && p.running[u] && !p.late[u] && p.state.State(u) != units.Held {
					g.end(p, u)
				}
			}
		}
		for _, p := range g.all {
			changed = changed || !p.gone && p.state.Changed()
		}
		if changed {
			g.rebalance()
		}
	}
	g.checkSettled()
}

func (g *group) checkSettled() {
	var offers []units.Offer
	loads := map[bool][]int{}
	holders, wanted := make(map[units.Unit]int), make(map[units.Unit]bool)
	for _, p := range g.all {
		if p.gone {
			continue
		}
		o, err := units.DecodeOffer(p.state.Offer())
		if err != nil {
			g.failf("%v", err)
		}
		n := make(map[bool]int)
		for _, c := range o.Claims {
			wanted[c.Unit] = wanted[c.Unit] || c.State != units.Declined
			if c.State == units.Held {
				n[c.Unit.IsLane()]++
				holders[c.Unit]++
			}
		}
		offers = append(offers, o)
		loads[false], loads[true] = append(loads[false], n[false]), append(loads[true], n[true])
	}
	for u := range wanted {
		if wanted[u] && holders[u] != 1 && (!u.IsLane() || holders[u] > 1) {
			g.failf("%d is held by %d processes", u, holders[u])
		}
	}
	for _, lanes := range []bool{false, true} {
		if !level(offers, loads[lanes], lanes) || waits(offers, loads[lanes], lanes) {
			g.failf("the loads are not equal, or a unit waits where there is room: %v", loads[lanes])
		}
	}
}
