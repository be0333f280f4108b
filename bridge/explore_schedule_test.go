package bridge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
)

// world is everything around two bridges. Only the scheduler changes it, while
// everything else stands still.
type world struct {
	plan    plan
	rnd     *rand.Rand // nil in the usual order
	verbose bool
	trace   []string
	hash    uint64
	ops     []op

	mu      sync.Mutex // guards arrived, and dead and gone of processes and calls
	arrived []*call
	wake    chan struct{} // holds one token after an arrival

	parked []*call
	late   []func()
	procs  [2]*process
	old    []*process // dead ones
	owner  int        // -1 is nobody
	step   int
	grown  int
	calm   bool // the faults are over
	over   bool // who ends is not started again

	export   exported
	topic    topicOf
	store    copyStore
	inbox    postbox
	sessions int
	wiped    bool
	began    time.Time
	broken   *violation
}

// result is what became of a plan.
type result struct {
	plan   plan
	ops    []op   // of the calls, by step
	hash   uint64 // of what happened: two plans may come to the same
	broken *violation
	trace  []string
}

// runPlan runs one schedule in a bubble of its own. Whatever hangs or panics
// on the scheduler's side is a violation too.
func runPlan(t *testing.T, p plan, verbose bool) (r result) {
	w := &world{plan: p, verbose: verbose, hash: 14695981039346656037}
	defer func() {
		if cause := recover(); cause != nil {
			w.fail(ruleLeak, "%v", cause)
		}
		if w.broken != nil && w.broken.rule == ruleNone {
			w.broken = nil
		}
		r = result{plan: p, ops: w.ops, hash: w.hash, broken: w.broken, trace: w.trace}
	}()
	synctest.Test(t, func(*testing.T) { w.run() })
	return r
}

func (w *world) run() {
	w.began, w.wake = time.Now(), make(chan struct{}, 1)
	w.export = exported{contract: w.plan.contract, items: 5, size: 3}
	if w.plan.order > 0 {
		w.rnd = rand.New(rand.NewPCG(w.plan.order, 1))
	}
	w.start(0)
	w.start(1)
	last := 0
	for _, a := range w.plan.twists {
		last = max(last, a.step)
	}
	for w.broken == nil && w.step <= last+4 {
		if !w.turn() && !w.pass() {
			break
		}
	}
	if w.broken == nil {
		w.finish()
	}
	for who, p := range w.procs {
		if p != nil {
			w.kill(who)
		}
	}
	for _, p := range w.old {
		<-p.done
	}
}

// start begins a new process of an instance.
func (w *world) start(who int) {
	p := &process{w: w, who: who, done: make(chan error, 1)}
	mode := bridge.AtLeastOnce
	if w.plan.exactly {
		mode = bridge.ExactlyOnce
	}
	cfg := bridge.Config{
		Stream: "events", Mode: mode, Origin: bridge.Origin{Resource: "events"}, PageSize: 3, Owner: string(rune('A' + who)),
		PollInterval: 10 * time.Second, PollIntervalMax: 10 * time.Second, PrefetchPages: 4, PrefetchBytes: 1 << 20,
		RetryMax: time.Second, EmptyPages: 5, OnInvalidCursor: "stop", OnCheckpointLoss: "kafka", ShutdownTimeout: 5 * time.Second,
	}
	if w.verbose {
		cfg.Log = slog.New(slog.NewTextHandler(traceWriter{w, who}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	b, err := bridge.New(cfg, bridge.Ports{Source: p, Sink: p, Store: p, Owner: p, Inbox: p})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.bridge, p.cancel = b, cancel
	w.procs[who] = p
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				p.done <- fmt.Errorf("panic: %v", cause)
			}
		}()
		p.done <- b.Run(ctx)
	}()
}

// kill ends a process as SIGKILL does: from now on nothing that it does has an
// effect. It winds down on its own.
func (w *world) kill(who int) {
	p := w.procs[who]
	w.mu.Lock()
	p.dead = true
	w.mu.Unlock()
	for _, c := range w.parked {
		if c.proc == p {
			c.reply <- errDead
		}
	}
	w.parked = slices.DeleteFunc(w.parked, func(c *call) bool { return c.proc == p })
	p.cancel()
	w.old = append(w.old, p)
	w.procs[who] = nil
}

// settle waits until everything stands still, and collects the calls that are
// due and the processes that have ended.
func (w *world) settle() {
	synctest.Wait()
	w.mu.Lock()
	arrived := w.arrived
	w.arrived = nil
	slices.SortStableFunc(arrived, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.proc.who, b.proc.who), cmp.Compare(a.op, b.op))
	})
	w.parked = append(w.parked, arrived...)
	w.parked = slices.DeleteFunc(w.parked, func(c *call) bool {
		if c.gone && !c.proc.dead && w.rnd != nil && w.rnd.IntN(2) == 0 && (c.op == opAdvance || c.op == opPublish) {
			w.happen(c, fateLost, "timed out, and happens all the same")
		}
		return c.gone || c.proc.dead
	})
	w.mu.Unlock()
	w.inbox.expire()
	for who, p := range w.procs {
		if p == nil {
			continue
		}
		select {
		case err := <-p.done:
			if !p.stopping || err != nil && !errors.Is(err, bridge.ErrShutdown) {
				w.fail(ruleEnds, "%c ended by itself: %v", 'A'+who, err)
			}
			p.done <- err
			w.old = append(w.old, p)
			w.procs[who] = nil
			if !w.over {
				w.start(who)
			}
		default:
		}
	}
}

// turn takes one step, or reports that nobody waits for one.
func (w *world) turn() bool {
	w.settle()
	due := w.due()
	if len(due) == 0 || w.broken != nil {
		return false
	}
	c := due[0]
	if w.rnd != nil {
		c = due[w.rnd.IntN(len(due))]
		if w.rnd.IntN(16) == 0 {
			w.grow(1)
		}
	}
	f, after := w.twist(c)
	for _, p := range w.procs {
		if p != nil && p.frozen > 0 {
			p.frozen--
		}
	}
	w.step++
	w.ops = append(w.ops, c.op)
	if c.proc.dead || c.proc.frozen > 0 || c.ready != nil && !c.ready() {
		return true // the twist took its turn
	}
	w.parked = slices.DeleteFunc(w.parked, func(other *call) bool { return other == c })
	err := w.happen(c, f, "")
	if after != nil {
		after()
		c.reply <- errDead
	} else {
		c.reply <- err
	}
	return true
}

// due lists the calls that could be run now.
func (w *world) due() []*call {
	var due []*call
	for _, c := range w.parked {
		if c.proc.frozen == 0 && (c.ready == nil || c.ready()) {
			due = append(due, c)
		}
	}
	return due
}

// happen runs a call and notes it.
func (w *world) happen(c *call, f fate, remark string) error {
	err := c.run(f)
	w.mix(byte(c.proc.who), byte(c.op), byte(f))
	if w.verbose {
		outcome := [...]string{"", " FAILS", " LOST", " LATE"}[f]
		if err != nil && f == fateOK {
			outcome = " -> " + err.Error()
		}
		w.note("%c %s %s%s%s", 'A'+c.proc.who, opNames[c.op], c.note, outcome, remark)
	}
	return err
}

func (w *world) mix(bytes ...byte) {
	for _, b := range bytes {
		w.hash = (w.hash ^ uint64(b)) * 1099511628211
	}
}

// note adds a line to the trace.
func (w *world) note(format string, args ...any) {
	if w.verbose {
		line := fmt.Sprintf("%3d %8.3fs  ", w.step, time.Since(w.began).Seconds()) + fmt.Sprintf(format, args...)
		w.mu.Lock()
		w.trace = append(w.trace, line)
		w.mu.Unlock()
	}
}

type traceWriter struct {
	w   *world
	who int
}

func (t traceWriter) Write(line []byte) (int, error) {
	_, text, _ := strings.Cut(string(line), "level=")
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.w.trace = append(t.w.trace, fmt.Sprintf("                   %c  %s", 'a'+t.who, strings.TrimSpace(text)))
	return len(line), nil
}

// twist does what the plan says for this step. It returns the fate of the call
// that is due, and what is to be done instead of answering it.
func (w *world) twist(c *call) (f fate, after func()) {
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
		case twistNap:
			c.proc.frozen = 6
		case twistStop:
			c.proc.frozen = 15
			w.owner = 1 - c.proc.who
		case twistMove:
			w.owner = 1 - c.proc.who
		case twistTerm:
			w.stop(c.proc)
		default:
			w.disturb(a.twist)
		}
	}
	return f, after
}

// disturb is what happens beside the bridges.
func (w *world) disturb(t twist) {
	switch t {
	case twistTell:
		w.tell()
	case twistFence:
		w.sessions++
		w.topic.session = w.sessions
	case twistWipe:
		w.wipe()
	case twistBack1:
		w.rollBack(1)
	case twistBack3:
		w.rollBack(3)
	case twistReset:
		w.request("")
	case twistSkip:
		w.request("c2")
	case twistRecall:
		w.withdraw()
	case twistRevive:
		w.revive()
	case twistGrow:
		w.grow(1)
	case twistShort:
		w.export.size = 2
	}
}

// crash kills an instance and starts it again. Its streams go to the other one
// if it is gone for long.
func (w *world) crash(who int, long bool) {
	w.kill(who)
	if long && w.owner == who {
		w.owner = 1 - who
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
		if p != nil && p.tenure != nil && w.owner != p.who && !p.tenure.told {
			p.tenure.told = true
			close(p.tenure.lost)
		}
	}
}

func (w *world) grow(n int) {
	const most = 5
	if n = min(n, most-w.grown); n > 0 {
		w.grown += n
		w.export.items += n
	}
}

// pass lets time pass until somebody calls, and a little more: whoever waits
// for a time that is drawn by lot then calls too, and the plan decides who
// goes first. It reports false when nobody came.
func (w *world) pass() bool {
	thawed := false
	for _, p := range w.procs {
		if p != nil && p.frozen > 0 {
			p.frozen = max(0, p.frozen-5)
			thawed = true
		}
	}
	w.grow(1 + w.step%2)
	if !w.wait(20 * time.Second) {
		return thawed
	}
	t := time.NewTimer(time.Second)
	defer t.Stop()
	<-t.C
	return true
}

// wait waits until somebody calls, and reports whether somebody did.
func (w *world) wait(most time.Duration) bool {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-w.wake:
		return true
	case <-t.C:
		return false
	}
}

// finish ends the faults and checks that everything comes right.
func (w *world) finish() {
	w.note("- the faults are over")
	w.calm = true
	for who, p := range w.procs {
		if p == nil {
			w.start(who)
		} else {
			p.frozen = 0
		}
	}
	for _, happens := range w.late {
		happens()
	}
	w.late = nil
	w.rnd = nil
	if !w.await(w.settled) {
		return
	}
	w.export.items++ // and it goes on
	w.note("- one more item")
	if !w.await(w.settled) {
		return
	}
	w.judge()
	w.over = true
	for _, p := range w.procs {
		w.stop(p)
	}
	if w.await(func() string {
		if w.procs[0] != nil || w.procs[1] != nil {
			return "a process does not end"
		}
		return ""
	}) {
		w.judge()
	}
}

// await runs everything without faults until missing returns "".
func (w *world) await(missing func() string) bool {
	const patience = 20 * time.Minute
	for began := time.Now(); w.broken == nil; {
		w.tell()
		if w.turn() {
			continue
		}
		what := missing()
		if what == "" {
			return true
		}
		if time.Since(began) > patience {
			w.fail(ruleStuck, "%s after %s: %s", what, patience, w.states())
		}
		w.wait(20 * time.Second)
	}
	return false
}

func (w *world) states() string {
	var all []string
	for who, p := range w.procs {
		if p != nil {
			s := p.bridge.Status()
			all = append(all, fmt.Sprintf("%c %s %s %s %s", 'A'+who, s.Place, s.State, s.Reason, s.Error))
		}
	}
	return strings.Join(all, "; ")
}
