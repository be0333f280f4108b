package engine_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// twist is one departure from the usual course: an outcome of the call that
// is due at a step, or something that happens in the world before it.
type twist string

const (
	twistFail   twist = "fail"   // the call fails
	twistLost   twist = "lost"   // it has an effect, its answer is lost
	twistLate   twist = "late"   // it fails and has its effect later, or half of it
	twistKill   twist = "kill"   // the caller dies before it, and is started again at once
	twistKilled twist = "killed" // after it
	twistDie    twist = "die"    // the caller dies before it, the other one takes over
	twistDied   twist = "died"   // after it
	twistHang   twist = "hang"   // it takes a minute, if its caller waits that long
	twistNap    twist = "nap"    // the caller stands still for a while
	twistStop   twist = "stop"   // it stands still, and the other one takes over
	twistMove   twist = "move"   // the stream is given to the other one; the caller is not told
	twistTell   twist = "tell"   // who lost the stream is told
	twistTerm   twist = "term"   // the caller is stopped in order and started again
	twistFence  twist = "fence"  // somebody else begins a session
	twistWipe   twist = "wipe"   // the store loses everything
	twistBack1  twist = "back1"  // the store loses the last change
	twistBack3  twist = "back3"  // the last three
	twistLose   twist = "lose"   // the topic loses its last two commits with their items, and every session
	twistSwitch twist = "switch" // both die, and are started again with the other delivery
	twistReset  twist = "reset"  // an operator wants the stream at its beginning
	twistSkip   twist = "skip"   // or at item 2
	twistHold   twist = "hold"   // or pauses it for 20 seconds, and resumes it the next time
	twistRecall twist = "recall" // the operator withdraws the command
	twistRevive twist = "revive" // an answered command comes back
	twistApply  twist = "apply"  // both stand still, and the operator's own process applies the command
	twistGrow   twist = "grow"   // the export has one more item
	twistShort  twist = "short"  // its pages become shorter
	twistRefuse twist = "refuse" // the export refuses the cursor of the newest checkpoint from now on
	twistOther  twist = "other"  // the caller is killed, and started again with the settings of another list
	twistOlder  twist = "older"  // or as an older version
	twistRename twist = "rename" // both are, with settings that request the same list in another way
	twistAccept twist = "accept" // an operator's reset accepts the right settings
	twistDeny   twist = "deny"   // or those of another list, which no instance is to obey that has not got them
	twistStale  twist = "stale"  // it answers that cursor with its first page from now on
	twistLoop   twist = "loop"   // each page of the export leads back to the one before it
	twistForget twist = "forget" // the topic and the store lose all checkpoints, and the topic every session
	twistHalt   twist = "halt"   // an operator pauses the stream without an end, and resumes it the next time
	// A command is claimed; then the claimer dies at its change, which comes late, and the deadline passes.
	twistOrphan twist = "orphan"
	twistRemake twist = "remake" // the topic of the events is deleted and made again
	twistCut    twist = "cut"    // it loses its end
	twistTrim   twist = "trim"   // or its beginning
	twistGarble twist = "garble" // the export lists many more items, which cannot be read
	twistLapse  twist = "lapse"  // seventy seconds pass in which no call is answered
	twistRaise  twist = "raise"  // the caller is killed, and started again with a longer look-back
)

// twists lists all, those first that are enumerated for every step.
var twists = []twist{
	twistFail, twistLost, twistLate, twistHang, twistKill, twistKilled, twistDie, twistDied, twistNap, twistStop,
	twistMove, twistTerm, twistFence,
	twistWipe, twistBack1, twistBack3, twistLose, twistSwitch, twistReset, twistSkip, twistHold, twistApply, twistShort,
	twistTell, twistRecall, twistRevive, twistGrow,
	twistRefuse, twistOther, twistOlder, twistRename, twistAccept, twistDeny, twistStale, twistLoop, twistForget,
	twistHalt, twistLapse, twistOrphan, twistRemake, twistCut, twistTrim, twistGarble,
}

// listTwists are those of a stream that follows windows.
var listTwists = []twist{
	twistFail, twistLost, twistLate, twistHang, twistKill, twistKilled, twistDie, twistDied, twistNap, twistStop,
	twistMove, twistTerm, twistFence,
	twistWipe, twistBack1, twistBack3, twistSwitch, twistReset, twistSkip, twistHold, twistApply, twistShort, twistTell,
	twistRecall, twistRevive, twistGrow,
	twistHalt, twistLapse, twistOrphan, twistRaise,
}

// possible lists the twists that change something.
func (p plan) possible() []twist {
	if p.windows {
		return listTwists
	}
	return twists
}

// at is a twist at a step.
type at struct {
	step  int
	twist twist
}

// plan is a schedule before it is run.
type plan struct {
	exactly  bool
	contract byte
	ids      bool
	// free lets both instances run the stream: there is no owner.
	free bool
	// order 0 runs the calls in the order in which they come, any other is
	// the seed of a random one; an even one lets an instance go on for longer.
	order uint64
	// loss is BRIDGE_ON_CHECKPOINT_LOSS, kafka where it is empty, and refused
	// EXPORT_ON_INVALID_CURSOR, stop where it is empty.
	loss, refused string
	// hasty operators wait for five seconds, not for a minute.
	hasty bool
	// shared lets two items have one id, where they have ids.
	shared bool
	// inclusive pages begin with the item that ended the one before. Items have ids.
	inclusive bool
	// windows follows windows of time over a list that is no cursor. The contract says
	// how far they look back.
	windows bool
	twists  []at
}

// String is what EXPLORE_SEED takes.
func (p plan) String() string {
	words := []string{"once", string(p.contract), "ids", "owned", strconv.FormatUint(p.order, 10)}
	if !p.exactly {
		words[0] = "least"
	}
	if !p.ids {
		words[2] = "noids"
	}
	if p.free {
		words[3] = "free"
	}
	for _, s := range settings {
		if s.get(&p) {
			words = append(words, s.word)
		}
	}
	for _, a := range p.twists {
		words = append(words, strconv.Itoa(a.step)+string(a.twist))
	}
	return strings.Join(words, " ")
}

// setting is a word of a plan for something that is not as usual.
type setting struct {
	word string
	get  func(*plan) bool
	set  func(*plan)
}

var settings = []setting{
	{"redis", func(p *plan) bool { return p.loss == "redis" }, func(p *plan) { p.loss = "redis" }},
	{"halting", func(p *plan) bool { return p.loss == "stop" }, func(p *plan) { p.loss = "stop" }},
	{"previous", func(p *plan) bool { return p.refused == "previous" }, func(p *plan) { p.refused = "previous" }},
	{"time", func(p *plan) bool { return p.refused == "time" }, func(p *plan) { p.refused = "time" }},
	{"shared", func(p *plan) bool { return p.shared }, func(p *plan) { p.shared = true }},
	{"inclusive", func(p *plan) bool { return p.inclusive }, func(p *plan) { p.inclusive = true }},
	{"windows", func(p *plan) bool { return p.windows }, func(p *plan) { p.windows = true }},
	{"hasty", func(p *plan) bool { return p.hasty }, func(p *plan) { p.hasty = true }},
}

// parsePlan reads what String wrote.
func parsePlan(text string) (plan, error) {
	words := strings.Fields(text)
	if len(words) < 5 {
		return plan{}, fmt.Errorf("plan %q has %d words, at least 5 are needed", text, len(words))
	}
	order, err := strconv.ParseUint(words[4], 10, 64)
	p := plan{exactly: words[0] == "once", contract: words[1][0], ids: words[2] == "ids", free: words[3] == "free",
		order: order}
	for _, word := range words[5:] {
		if i := slices.IndexFunc(settings, func(s setting) bool { return s.word == word }); i >= 0 {
			settings[i].set(&p)
			continue
		}
		name := strings.TrimLeft(word, "0123456789")
		step, wrong := strconv.Atoi(strings.TrimSuffix(word, name))
		err = errors.Join(err, wrong)
		p.twists = append(p.twists, at{step, twist(name)})
	}
	return p, err
}

// has reports whether the plan has one of these twists.
func (p plan) has(of ...twist) bool {
	return slices.ContainsFunc(p.twists, func(a at) bool { return slices.Contains(of, a.twist) })
}

// listVariants are the plans without a twist of a stream that follows windows: both
// deliveries, with and without ids and an owner, and each look-back.
func listVariants() []plan {
	var all []plan
	for _, contract := range []byte("ABCD") {
		for i := range 8 {
			all = append(all, plan{windows: true, exactly: i&1 == 0, contract: contract, ids: i&2 == 0, free: i&4 != 0})
		}
	}
	return all
}

// variants are the plans without a twist: both deliveries, the four ways to
// end the results, items with and without ids, with and without an owner; and
// each other answer to a refused cursor and to lost data.
func variants() []plan {
	var all []plan
	for _, exactly := range []bool{true, false} {
		for _, contract := range []byte("ABCD") {
			for _, ids := range []bool{true, false} {
				all = append(all, plan{exactly: exactly, contract: contract, ids: ids})
				all = append(all, plan{exactly: exactly, contract: contract, ids: ids, free: true})
			}
		}
		for _, refused := range []string{"previous", "time"} {
			all = append(all, plan{exactly: exactly, contract: 'A', ids: true, refused: refused, hasty: true})
		}
	}
	for _, exactly := range []bool{true, false} {
		all = append(all, plan{exactly: exactly, contract: 'A', ids: true, shared: true},
			plan{exactly: exactly, contract: 'B', ids: true, shared: true})
	}
	for _, contract := range []byte("ABCD") {
		all = append(all, plan{exactly: true, contract: contract, ids: true, inclusive: true},
			plan{contract: contract, ids: true, inclusive: true})
	}
	for _, loss := range []string{"redis", "stop"} {
		all = append(all, plan{exactly: true, contract: 'A', ids: true, loss: loss})
	}
	return all
}

// singles lists all twists at all steps of a variant's usual course, without
// those that change nothing there.
func (p plan) singles(ops []op) []at {
	var all []at
	for step, o := range ops {
		for _, t := range p.possible() {
			if !idle(o, t) {
				all = append(all, at{step, t})
			}
		}
	}
	return all
}

// idle reports whether a twist changes nothing, or nothing that another one
// does not, at a call of an otherwise usual course.
func idle(o op, t twist) bool {
	effect := o == opInit || o == opPublish || o == opAdvance || o == opClaim || o == opAnswer
	switch t {
	case twistLost, twistKilled, twistDied:
		return !effect
	case twistLate:
		return o != opAdvance && o != opPublish
	case twistTell, twistRecall, twistRevive:
		return true
	}
	return false
}

// randomPlan returns the plan of a seed: up to five twists, most of them in a
// random order of calls.
func randomPlan(seed uint64, windows bool) plan {
	rnd := rand.New(rand.NewPCG(seed, 2))
	p := plan{windows: windows, exactly: rnd.IntN(3) > 0, contract: "AABC"[rnd.IntN(4)], ids: rnd.IntN(2) == 0,
		free: rnd.IntN(4) == 0}
	if rnd.IntN(4) > 0 {
		p.order = 1 + rnd.Uint64N(1<<20)
	}
	possible := p.possible()
	for range 1 + rnd.IntN(5) {
		p.twists = append(p.twists, at{rnd.IntN(45), possible[rnd.IntN(len(possible))]})
	}
	slices.SortFunc(p.twists, func(a, b at) int { return cmp.Compare(a.step, b.step) })
	p.loss = []string{"", "", "redis", "stop"}[rnd.IntN(4)]
	p.refused = []string{"", "previous", "time"}[rnd.IntN(3)]
	p.hasty = rnd.IntN(2) == 0
	p.shared = p.ids && rnd.IntN(4) == 0
	p.inclusive = p.ids && rnd.IntN(3) == 0
	return p
}
