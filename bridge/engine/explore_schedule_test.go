package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
)

// world is everything around two bridges. Only the scheduler changes it, while
// everything else stands still.
type world struct {
	plan    plan
	exactly bool       // the delivery of the processes that are started now
	rnd     *rand.Rand // nil in the usual order
	verbose bool
	trace   []string
	hash    uint64
	ops     []op

	mu      sync.Mutex // guards arrived, and dead and gone of processes and calls
	arrived []*call
	wake    chan struct{} // holds one token after an arrival

	parked         []*call
	late           []func()
	garbled        bool         // items came that cannot be read
	row            int          // of unreadable items, at the end of the log
	none           bool         // and before it nothing but them
	unreadableFrom atomic.Int64 // the first item of them
	belated        bool         // one of late happens
	later          []func()     // after the faults are over, and have been put right
	orphan         *asked       // whose claimer is to die
	procs          [3]*process
	old            []*process // dead ones
	owner          int        // -1 is nobody
	step           int
	grown          int
	favourite      int  // the instance that goes on for longer
	calm           bool // the faults are over
	over           bool // who ends is not started again

	// right are the settings of the stream's list, and those of the instances and of
	// the operator's machine settings; older are the instances of an older version.
	right    settingsOf
	settings [3]settingsOf
	older    [3]bool
	export   exported
	list     movingList // of export, where it is no cursor
	path     path       // to the newest checkpoint
	topic    topicOf
	store    copyStore
	inbox    postbox
	sessions int
	wiped    bool
	repaired int            // commands of an operator for a blocked stream
	tried    time.Time      // the last of them
	marked   int            // events that were sent as published again
	hidden   bool           // and nobody knows
	damaged  bool           // somebody made the topic of the events again, or took something off it
	lost     bool           // the topic lost something
	forgot   bool           // and all its checkpoints
	lossy    bool           // the store, or the topic, lost something
	switched bool           // the delivery changed
	loaded   map[string]int // by owner: how far the store was when it was last read
	began    time.Time
	broken   *violation
}

// result is what became of a plan.
type result struct {
	plan   plan
	ops    []op   // of the calls, by step
	hash   uint64 // of what happened: two plans may come to the same
	marked int    // events that were sent as published again
	broken *violation
	trace  []string
}

// newWorld returns the world of a plan before anything has happened.
func newWorld(p plan) *world {
	return &world{
		plan: p, exactly: p.exactly, hash: 14695981039346656037, loaded: make(map[string]int),
		export: exported{
			contract: p.contract, size: 3, inclusive: p.inclusive, refused: make(map[string]bool), looped: make(map[string]bool),
			stale: make(map[string]firstPage), firsts: make(map[bridge.CursorDigest]firstPage),
		},
		topic: topicOf{
			holds: make(map[int]int), waived: make(map[int]bool), taken: make(map[int]bool), ever: make(map[int]bool),
			acked: make(map[history]map[int]bool),
		},
		store: copyStore{been: make(map[int]bool)},
	}
}

// runPlan runs one schedule in a bubble of its own. Whatever hangs or panics
// on the scheduler's side is a violation too.
func runPlan(t *testing.T, p plan, verbose bool) (r result) {
	w := newWorld(p)
	w.verbose = verbose
	defer func() {
		if cause := recover(); cause != nil {
			w.fail(ruleLeak, "%v", cause)
		}
		r = result{plan: p, ops: w.ops, hash: w.hash, marked: w.marked, broken: w.broken, trace: w.trace}
	}()
	// A panic on a goroutine of the engine ends the tests. With
	// GODEBUG=tracebacklabels=1 its trace names the plan.
	pprof.Do(context.Background(), pprof.Labels("plan", p.String()), func(context.Context) {
		synctest.Test(t, func(*testing.T) { w.run() })
	})
	return r
}

func (w *world) run() {
	w.began, w.wake = time.Now(), make(chan struct{}, 1)
	w.unreadableFrom.Store(readable)
	w.right, w.settings = settingsRight, [3]settingsOf{settingsRight, settingsRight, settingsLaptop}
	w.begin()
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
	p := w.process(who)
	e, err := engine.New(w.config(who), p.ports())
	if err != nil {
		panic(err)
	}
	p.bridge = e
	p.begin(e.Run)
}

// process makes a new process; begin lets it run.
func (w *world) process(who int) *process {
	p := &process{w: w, who: who, settings: w.settings[who], older: w.older[who], defects: make(map[int]bridge.Defect),
		done: make(chan error, 1)}
	w.procs[who] = p
	return p
}

// begin runs a process until its context ends or run returns.
func (p *process) begin(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				p.done <- fmt.Errorf("panic: %v", cause)
			}
		}()
		p.done <- run(ctx)
	}()
}

func (p *process) ports() engine.Ports {
	ports := engine.Ports{Source: p.source(), Sink: p, Store: p, Inbox: p, History: p, Published: p}
	if !p.w.plan.free && p.who < 2 {
		ports.Owner = p
	}
	return ports
}

func (w *world) config(who int) engine.Config {
	mode := bridge.AtLeastOnce
	if w.exactly {
		mode = bridge.ExactlyOnce
	}
	cfg := engine.Config{
		Stream: "events", Mode: mode, Origin: bridge.Origin{Resource: "events"}, PageSize: 3, Owner: owners[who],
		PollInterval: 10 * time.Second, PollIntervalMax: 10 * time.Second, PrefetchPages: 4, PrefetchBytes: 1 << 20,
		RetryMax: time.Second, EmptyPages: 5, OnInvalidCursor: cmp.Or(w.plan.refused, "stop"), OnSharedID: "publish",
		Overlap:          time.Hour,
		OnCheckpointLoss: cmp.Or(w.plan.loss, "kafka"), ShutdownTimeout: 5 * time.Second,
	}
	w.follow(&cfg)
	if !w.older[who] {
		cfg.Origin.Request = w.form(w.settings[who])
	}
	if w.verbose {
		cfg.Log = slog.New(slog.NewTextHandler(traceWriter{w, who}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return cfg
}

// kill ends a process as SIGKILL does: from now on nothing that it does has an
// effect. It winds down on its own.
func (w *world) kill(who int) {
	p := w.procs[who]
	if p == nil {
		return // another twist of this step was quicker
	}
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
	var gone []*call
	w.parked = slices.DeleteFunc(w.parked, func(c *call) bool {
		switch {
		case c.proc.dead: // it came while time passed, before the process died
			c.reply <- errDead
		case c.gone && (c.op == opAdvance || c.op == opPublish):
			gone = append(gone, c)
		}
		return c.gone || c.proc.dead
	})
	w.mu.Unlock()
	for _, c := range gone {
		if w.rnd != nil && w.rnd.IntN(2) == 0 {
			w.happen(c, fateLost, " timed out, and happens all the same")
		}
	}
	w.expire()
	for who, p := range w.procs {
		if p == nil {
			continue
		}
		select {
		case err := <-p.done:
			if who < 2 && !p.stopping || who < 2 && err != nil && !errors.Is(err, engine.ErrShutdown) {
				w.fail(ruleEnds, "%c ended by itself: %v", 'A'+who, err)
			}
			if p.ownership != nil {
				w.fail(ruleEnds, "%c ended, and has not let the stream go", 'A'+who)
			}
			if p.said != nil {
				p.said()
			}
			p.done <- err
			w.old = append(w.old, p)
			w.procs[who] = nil
			if !w.over && who < 2 {
				w.start(who)
			}
		default:
		}
	}
}

// turn takes one step, or reports that no call waits for one.
func (w *world) turn() bool {
	w.settle()
	due := w.due()
	if len(due) == 0 || w.broken != nil {
		return false
	}
	const most = 10_000 // twice the empty pages that are followed, with their commits, are half of it
	if w.step > most {
		w.fail(ruleStuck, "after %d calls there is no end: %s", most, w.states())
		return false
	}
	c := due[0]
	if w.rnd != nil {
		c = w.draw(due)
		if w.rnd.IntN(16) == 0 {
			w.grow(1)
		}
	}
	stopping := c.proc.stopping
	f, after := w.twist(c)
	for _, p := range w.procs {
		if p != nil && p.frozen > 0 {
			p.frozen--
		}
	}
	w.step++
	w.ops = append(w.ops, c.op)
	if c.proc.stopping != stopping || c.proc.dead || c.proc.frozen > 0 || w.left(c) || time.Now().Before(c.hangs) ||
		c.ready != nil && !c.ready() {
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

// draw chooses the call that goes on.
func (w *world) draw(due []*call) *call {
	if w.plan.order%2 == 0 && w.rnd.IntN(8) > 0 {
		i := slices.IndexFunc(due, func(c *call) bool { return c.proc.who == w.favourite })
		if i >= 0 {
			return due[i]
		}
	}
	c := due[w.rnd.IntN(len(due))]
	w.favourite = c.proc.who
	return c
}

// due lists the calls that could be run now.
func (w *world) due() []*call {
	var due []*call
	for _, c := range w.parked {
		if c.proc.frozen == 0 && !time.Now().Before(c.hangs) && (c.ready == nil || c.ready()) {
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

// pass lets time pass until a process calls, and a little more: processes that wait for a
// random time then call too, and the plan decides which goes first. It reports false if no
// process called.
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

// wait waits until a process calls, and reports whether one did.
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
	w.calm, w.export.loops = true, false
	w.correct()
	for who, p := range w.procs {
		switch {
		case p != nil:
			p.frozen = 0
		case who < 2:
			w.start(who)
		}
	}
	if w.plan.free { // two would take it from each other for ever
		w.kill(1)
	}
	w.belated = true
	for _, happens := range w.late {
		happens()
	}
	w.late, w.belated = nil, false
	w.rnd = nil
	if !w.await(w.settled) {
		return
	}
	w.add(1) // and it goes on
	for _, happens := range w.later {
		happens()
	}
	w.later = nil
	w.note("- one more item")
	if !w.await(w.settled) {
		return
	}
	w.judge()
	w.over = true
	for _, p := range w.procs {
		if p != nil {
			w.stop(p)
		}
	}
	if w.await(func() string {
		if w.procs != [3]*process{} {
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
