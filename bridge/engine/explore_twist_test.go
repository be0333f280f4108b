package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
)

// apply is an operator's command that does without a running bridge: it is
// given when the coordinator shows no member.
func (w *world) apply() {
	if w.procs[2] != nil {
		return
	}
	if w.inbox.pending == nil {
		w.request(0)
	}
	if w.inbox.pending == nil || w.denied(w.inbox.pending.cmd) { // whose machine may do all
		return
	}
	for _, p := range w.procs {
		if p != nil && !w.plan.free && !w.calm {
			p.frozen = 20
		}
	}
	cmd := w.inbox.pending.cmd
	p := w.process(2)
	p.begin(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		said, err := engine.Apply(ctx, w.config(2), p.ports(), cmd)
		if err == nil {
			p.said = func() { w.answerStands(cmd, said) }
		}
		return err
	})
}

// twist does what the plan says for this step. It returns the fate of the call
// that is due, and what is to be done instead of answering it.
func (w *world) twist(c *call) (f fate, after func()) {
	if after = w.orphaned(c); after != nil {
		return fateLate, after
	}
	for i, a := range w.plan.twists {
		if w.calm || a.step != w.step || slices.Contains(w.plan.twists[:i], a) {
			continue
		}
		w.mix(0xff, byte(slices.Index(twists, a.twist)))
		w.note("* %s (%c %s)", a.twist, 'A'+c.proc.who, opNames[c.op])
		switch a.twist {
		case twistFail:
			f = fateFail
		case twistLost:
			f = fateLost
		case twistLate:
			f = fateLate
		case twistKill, twistDie:
			w.crash(c.proc.who, a.twist == twistDie)
			return f, nil
		case twistKilled, twistDied:
			after = func() { w.crash(c.proc.who, a.twist == twistDied) }
		case twistHang:
			c.hangs = time.Now().Add(time.Minute)
		case twistNap:
			c.proc.frozen = 6
		case twistStop:
			c.proc.frozen = 15
			w.owner = other(c.proc.who)
		case twistMove:
			w.owner = other(c.proc.who)
		case twistTerm:
			w.stop(c.proc)
		case twistOther:
			w.restartWith(c.proc.who, settingsOther, false)
			return f, nil
		case twistRaise:
			w.raise(c.proc.who)
			return f, nil
		case twistOlder:
			w.restartWith(c.proc.who, w.right, true)
			return f, nil
		default:
			w.disturb(a.twist)
		}
	}
	return f, after
}

// disturb is what happens beside the bridges.
func (w *world) disturb(t twist) { disturbances[t](w) }

var disturbances = map[twist]func(w *world){
	twistTell:   (*world).tell,
	twistFence:  func(w *world) { w.sessions++; w.topic.session = w.sessions },
	twistWipe:   (*world).wipe,
	twistBack1:  func(w *world) { w.rollBack(1) },
	twistBack3:  func(w *world) { w.rollBack(3) },
	twistLose:   func(w *world) { w.lose(2) },
	twistSwitch: (*world).switchDelivery,
	twistReset:  func(w *world) { w.request(0) },
	twistSkip:   func(w *world) { w.request(2) },
	twistHold:   func(w *world) { w.hold(time.Now().Add(20 * time.Second).UnixMilli()) },
	twistRecall: (*world).withdraw,
	twistRevive: (*world).revive,
	twistApply:  (*world).apply,
	twistGrow:   func(w *world) { w.grow(1) },
	twistShort:  func(w *world) { w.export.size = 2 },
	twistRefuse: (*world).refuse,
	twistRename: (*world).rename,
	twistAccept: func(w *world) { w.accept(w.right) },
	twistDeny:   (*world).deny,
	twistStale:  (*world).stale,
	twistLoop:   func(w *world) { w.export.loops = true },
	twistForget: (*world).forget,
	twistHalt:   func(w *world) { w.hold(bridge.Forever) },
	twistOrphan: func(w *world) { w.request(0); w.orphan = w.inbox.pending },
	twistRemake: (*world).remake,
	twistCut:    (*world).cut,
	twistTrim:   (*world).trim,
	twistGarble: (*world).garble,
	twistLapse:  (*world).lapse,
}

// switchDelivery starts all processes again with the other delivery.
func (w *world) switchDelivery() {
	w.exactly, w.switched = !w.exactly, true
	for who := range 2 {
		if w.procs[who] != nil {
			w.crash(who, false)
		}
	}
	if w.procs[2] != nil {
		w.kill(2)
	}
}

// crash kills an instance and starts it again. Its streams go to the other one
// if it is gone for long.
func (w *world) crash(who int, long bool) {
	w.kill(who)
	if who == 2 {
		return
	}
	if long && w.owner == who {
		w.owner = other(who)
	}
	w.start(who)
}

// stop is SIGTERM.
func (w *world) stop(p *process) {
	p.stopping = true
	p.cancel()
}

// tell lets everybody know whose stream it is.
func (w *world) tell() {
	for _, p := range w.procs {
		if p != nil && p.ownership != nil && w.owner != p.who && !p.ownership.told {
			p.ownership.told = true
			close(p.ownership.lost)
		}
	}
}

func (w *world) grow(n int) {
	const most = 5
	if n = min(n, most-w.grown); n > 0 {
		w.grown += n
		w.add(n)
	}
}

// other is the other instance.
func other(who int) int { return (who + 1) % 2 }

// wipe loses everything that the store has, as FLUSHALL does.
func (w *world) wipe() {
	w.lostTrack()
	w.store.value, w.store.history, w.wiped = bridge.Checkpoint{}, nil, true
	w.inbox.pending = nil
	for _, a := range w.inbox.all {
		a.forgotten = true
	}
	w.unwound()
	w.unsettle()
}

// rollBack loses the last n changes of the checkpoint.
func (w *world) rollBack(n int) {
	s := &w.store
	w.lostTrack()
	s.history = s.history[:max(0, len(s.history)-n)]
	s.value = bridge.Checkpoint{}
	if k := len(s.history); k > 0 {
		s.value = s.history[k-1]
	}
	w.wiped = w.wiped || len(s.history) == 0
	w.unwound()
	w.unsettle()
}

// lose makes the topic lose its last commits, as brokers do that elect a
// leader which was not in sync. The sessions end with it.
func (w *world) lose(n int) {
	x := &w.topic
	w.sessions++
	x.session = w.sessions
	if w.lost { // twice, and two histories of one epoch may be left, which only an operator can tell apart
		return
	}
	for ; n > 0 && len(x.log) > 1; n-- {
		last := len(x.log) - 1
		gone := x.log[last]
		if gone.Seq == 0 && w.store.value.Version.Compare(gone.Version) < 0 {
			return // of an epoch that is on its way to the store the same may be left
		}
		w.lossy, w.lost, w.damaged = true, true, true
		w.lostTrack()
		x.loseEvents(last)
		x.gone = append(x.gone, gone)
		x.log, x.items, x.ends = x.log[:last], x.items[:last], x.ends[:last]
		x.next = reached(x.last())
		w.row, w.none = 0, false
		w.unlearn(x.last())
		if a := w.inbox.of(gone.ChangeID()); a != nil && gone.Seq == 0 {
			a.applied, a.forgotten = a.applied-1, true
		}
	}
}

// unsettle notes which batches the store has lost.
func (w *world) unsettle() {
	if !w.exactly || w.switched {
		w.lossy = true
		for _, a := range w.inbox.all { // the store was the only one to know
			a.forgotten = true
		}
	}
	for _, b := range w.topic.batches {
		b.stored = b.stored && slices.ContainsFunc(w.store.history, func(c bridge.Checkpoint) bool {
			return c.Version == b.place && c.Session == b.session
		})
	}
}

// revive brings an answered command back, as a stale replica does.
func (w *world) revive() {
	if w.inbox.pending != nil {
		return
	}
	for _, a := range w.inbox.all {
		if a.forgotten {
			continue
		}
		if a.answer != nil && !a.withdrawn {
			w.inbox.pending = a
			if w.passes(a) { // the store has lost the answer, and nothing else tells
				a.answer = nil
			}
			return
		}
	}
}

// passes reports whether a command was refused for a reason that may pass, and that no
// checkpoint shows. A reset is refused for the settings of a bridge, which the next bridge
// may not have. Without an owner, one bridge refuses for want of a position what the other
// can apply. A command that is out of date, or expired, remains so.
func (w *world) passes(a *asked) bool {
	refused := !a.answer.Applied && !a.answer.Expired() && a.answer.Version.Epoch <= a.cmd.BaseEpoch
	return refused && (w.plan.free || a.cmd.Kind == bridge.KindReset)
}

// request is an operator's reset, made for the epoch that the store shows.
func (w *world) request(item int) {
	if w.inbox.pending != nil || w.store.value.Zero() && !w.forgot {
		return
	}
	w.push(bridge.Command{Kind: bridge.KindReset, BaseEpoch: w.store.value.Epoch, Target: w.target(item)})
}

// hold is an operator's pause or resume, made for the epoch that the store shows. An
// operator who sees no checkpoint makes it too.
func (w *world) hold(until int64) {
	now := w.store.value
	if w.inbox.pending != nil || now.Zero() && !w.forgot {
		return
	}
	cmd := bridge.Command{Kind: bridge.KindResume, BaseEpoch: now.Epoch}
	if !now.Paused(time.Now()) {
		cmd.Kind, cmd.PausedUntil = bridge.KindPause, until
	}
	w.push(cmd)
}

func (w *world) push(cmd bridge.Command) {
	patience := time.Minute
	if w.plan.hasty && !w.calm {
		patience = 5 * time.Second
	}
	cmd.ID, cmd.Who, cmd.Deadline = fmt.Sprint("r", len(w.inbox.all)), "op", time.Now().Add(patience).UnixMilli()
	a := &asked{cmd: cmd}
	w.inbox.all = append(w.inbox.all, a)
	w.inbox.pending = a
}

func (w *world) withdraw() {
	if a := w.inbox.pending; a != nil && a.claimed == "" {
		a.withdrawn, w.inbox.pending = true, nil
	}
}

// TestWorldRevived: a refused command that comes back may be applied only where its
// refusal had a reason that passes.
func TestWorldRevived(t *testing.T) {
	t.Parallel()
	at := func(epoch int64) bridge.Version { return bridge.Version{Epoch: epoch} }
	for _, test := range []struct {
		what   string
		kind   bridge.Kind
		free   bool
		answer bridge.Answer
		passes bool
	}{
		{what: "a reset, by the settings of a bridge", kind: bridge.KindReset, answer: bridge.Answer{Version: at(1)},
			passes: true},
		{what: "a reset that is out of date", kind: bridge.KindReset, answer: bridge.Answer{Version: at(2)}},
		{what: "a reset that is out of date, by one of two", kind: bridge.KindReset, free: true,
			answer: bridge.Answer{Version: at(2)}},
		{what: "a reset that expired", kind: bridge.KindReset, answer: bridge.ExpiredAnswer("late")},
		{what: "a pause", kind: bridge.KindPause, answer: bridge.Answer{Version: at(1)}},
		{what: "a pause, by one of two for want of a position", kind: bridge.KindPause, free: true,
			answer: bridge.Answer{Version: at(1)}, passes: true},
	} {
		w := newWorld(plan{free: test.free})
		cmd := bridge.Command{ID: "r1", Kind: test.kind, BaseEpoch: 1}
		w.inbox.all = []*asked{{cmd: cmd, claimed: "s", answer: &test.answer}}
		w.revive()
		if w.inbox.pending == nil {
			t.Fatalf("%s: it does not come back", test.what)
		}
		w.moved(bridge.Checkpoint{Version: at(1)}, bridge.Checkpoint{Version: at(2), Kind: test.kind, Session: "s",
			Change: &bridge.Change{ID: "r1"}})
		if failed := w.broken != nil; failed == test.passes {
			t.Errorf("%s: it is applied, and the world finds %v", test.what, w.broken)
		}
		if a := w.inbox.all[0]; test.passes && (a.answer != nil || a.forgotten) {
			t.Errorf("%s: its next answer is not checked: %+v", test.what, a)
		}
	}
}
