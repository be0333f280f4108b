package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// follower is the commit loop: one goroutine that owns the checkpoint and
// everything below. All that it does not decide itself reaches it through
// next and through what the ports return.
type follower struct {
	b        *Bridge
	log      *slog.Logger
	commands <-chan Command

	// cp is the committed checkpoint. head is ahead of it by pages that are
	// taken but not committed yet.
	cp, head Checkpoint
	session  string
	tenure   Ownership // nil where nobody else can own the stream
	leads    bool      // the stream is ours
	mirror   *mirror
	// open is true while the sink has a session, ready between a successful
	// recovery and the first doubt.
	open, ready bool
	// stale is true while cp is known to be behind what the store holds.
	stale bool
	// rival is what the store holds in place of cp, while the two contradict
	// each other and an operator must decide.
	rival Checkpoint
	// there are the topics of the session, topics the same once they are known
	// to hold what cp implies, nil before. Neither is changed in place. lost is
	// the loss that was counted last.
	there, topics []TopicState
	lost          string
	// blockedOn is what a blocked stream answers to commands about.
	blockedOn Reason
	state     State
	fault     *Fault // why, for StateBackoff and StateBlocked
	since     time.Time

	chain   *chain
	probing bool // the chain only asks whether the API works without a cursor
	visited *visited
	blank   *visited // the empty pages since the last one with items
	trimmer *trimmer
	seenIDs map[string]struct{} // change ids of checkpoints we adopted

	due      time.Time // when the next step is to be taken
	fetches  retries
	sessions retries
	owning   retries
	polls    polls
	alarms   [2]alarm // of next
	batch    batch
	breadth  int // pages in one batch at most
	// cost is what a commit takes, gap how long a page is waited for: running
	// means.
	cost, gap time.Duration
	// pace goes with head, kept with cp: a restart reads pages once more, and
	// must not count them twice.
	pace, kept pace
	suspect    *Fault
	doubted    string      // the command that made us look whether the stream was moved
	hurried    string      // the command that made a blocked stream look again
	claimed    seenClaim   // the last one of a command
	conflict   time.Time   // the last time somebody else moved the stream
	fenced     []time.Time // when newer sessions of the stream had begun, lately
	ahead      Place       // where the store was ahead of us, when it was
	answered   *Answer     // the last one given
	applying   bool        // the session is for one command only
	committed  time.Time
	began      int64 // cp.Events when this run began, -1 before
	news       bool  // events were committed since the last poll
	contract   Contract
	found      Observation // what trim found since the last commit
	totals     totals
	detours    []time.Time // when the stream left a refused cursor, lately
	held       Held        // what the topic holds, during an overlap
	known      known       // or a part of it, during a rewind
	buried     time.Time   // when dead letters were last spoken of
	sharedSaid time.Time   // when items of one id were last spoken of
	ended      string      // why the run is over
}

func newFollower(b *Bridge, commands <-chan Command) *follower {
	return &follower{
		b: b, log: b.log, commands: commands,
		visited: newVisited(), blank: newVisited(), trimmer: newTrimmer(b.cfg.divertsShared()), seenIDs: make(map[string]struct{}),
		fetches: retries{max: b.cfg.RetryMax}, sessions: retries{max: b.cfg.RetryMax}, owning: retries{max: b.cfg.RetryMax},
		polls:   polls{least: b.cfg.PollInterval, most: b.cfg.PollIntervalMax},
		breadth: mostPages,
		pace:    pace{allowance: emptyAllowance}, kept: pace{allowance: emptyAllowance}, began: -1,
	}
}

// input is what the loop waits for.
type input struct {
	kind inputKind
	link link
	cmd  Command
	cp   Checkpoint
}

type inputKind int

const (
	inputStop    inputKind = iota // the run is to end
	inputDue                      // time to recover, or to ask again
	inputLink                     // the chain brought a page or its end
	inputRipe                     // the batch at hand is to be committed
	inputCommand                  // an operator wants something
	inputBeat                     // nothing was committed for a while
	inputAhead                    // the store shows that somebody else moved the stream
)

// follow is the life of the stream. Start and restart are the same: an error
// anywhere makes the loop drop what is in flight and recover. soft ends when
// the run or the tenure shall end, hard when what is in flight must be
// abandoned.
func (f *follower) follow(soft, hard context.Context) error {
	for f.ended == "" {
		var err error
		in := f.next(soft)
		if in.kind != inputLink && in.kind != inputAhead && f.batch.pages > 0 {
			if err = f.commit(hard); err == nil {
				err = f.finish(false)
			}
		}
		switch {
		case err != nil || f.ended != "":
		case in.kind == inputStop:
			f.part(hard)
			return nil
		case in.kind == inputDue:
			err = f.step(soft)
		case in.kind == inputLink:
			err = f.ship(hard, in.link)
		case in.kind == inputCommand:
			err = f.obey(hard, in.cmd)
		case in.kind == inputBeat:
			err = f.beat(soft)
		case in.kind == inputAhead:
			err = f.overtaken(in.cp)
		}
		if err == nil {
			continue
		}
		if err := f.setback(soft, hard, err); err != nil {
			return err
		}
	}
	if err := f.flush(hard); err != nil {
		// All events are committed; the next run reads some empty pages again.
		f.log.Warn("no last commit", "error", err.Error())
	}
	f.log.Info("run ended", "why", f.ended, "events", f.cp.Events-f.began, "dead_lettered", f.totals.deadLettered,
		"checkpoint", f.cp.Place.String(), "cursor", CursorHash(f.cp.Cursor))
	return nil
}

// next waits for the next input. Stopping comes before commands, and commands
// before pages: a reset makes the pages at hand worthless.
func (f *follower) next(ctx context.Context) input {
	defer f.b.busy()
	f.b.waits()
	select {
	case <-ctx.Done():
		return input{kind: inputStop}
	default:
	}
	var commands <-chan Command
	if f.obeys() || f.hurries() {
		commands = f.commands
		select {
		case cmd := <-commands:
			return input{kind: inputCommand, cmd: cmd}
		default:
		}
	}
	var links <-chan link
	var due, beat, ripe <-chan time.Time
	if f.chain != nil {
		links = f.chain.links
		if f.batch.pages > 0 {
			select {
			case l, open := <-links:
				return f.took(l, open, 0)
			default:
			}
			ripe = f.alarms[0].at(f.ripe())
		}
	} else {
		due = f.alarms[0].at(f.due)
		if f.ready {
			beat = f.alarms[1].at(f.committed.Add(heartbeat))
		}
	}
	waited := time.Now()
	select {
	case <-ctx.Done():
		return input{kind: inputStop}
	case cmd := <-commands:
		return input{kind: inputCommand, cmd: cmd}
	case <-due:
		return input{kind: inputDue}
	case <-beat:
		return input{kind: inputBeat}
	case c := <-f.mirror.ahead:
		return input{kind: inputAhead, cp: c}
	case <-ripe:
		return input{kind: inputRipe}
	case l, open := <-links:
		return f.took(l, open, time.Since(waited))
	}
}

// alarm is a timer that is set again and again. It may go off when nobody waits
// for it any more.
type alarm struct{ timer *time.Timer }

func (a *alarm) at(t time.Time) <-chan time.Time {
	if a.timer == nil {
		a.timer = time.NewTimer(time.Until(t))
	} else {
		a.timer.Reset(time.Until(t))
	}
	return a.timer.C
}

// took makes an input of a link that was waited for.
func (f *follower) took(l link, open bool, waited time.Duration) input {
	if !open { // cut off: the run is to stop
		return input{kind: inputStop}
	}
	f.gap = average(f.gap, waited)
	f.b.observe(Observation{What: ObserveWait, Took: waited})
	return input{kind: inputLink, link: l}
}

// obeys reports whether a command could be applied now, which takes a known
// epoch and somewhere to commit it.
func (f *follower) obeys() bool {
	known := f.ready || !f.stale && (!f.cp.Zero() && f.cp.Mode == f.b.cfg.Mode || f.blockedOn == ReasonCheckpointLost)
	return known && (f.open || !f.exactlyOnce())
}

// hurries reports whether a command is a reason to look again now what blocks
// the stream: whoever has mended that asks for a reset next, and does not wait
// as long as a blocked stream does. A stream that somebody else runs is left
// alone: to look would take it from there.
func (f *follower) hurries() bool {
	return !f.ready && f.state == StateBlocked && f.fault.Reason != ReasonOwner
}

// overtaken answers to a store that is ahead of us: begin a session, which
// shows whether the stream is still ours, and what the sink has.
func (f *follower) overtaken(stored Checkpoint) error {
	err := fmt.Errorf("the store is at %s by %q, ahead of our %s", stored.Place, stored.Owner, f.cp.Place)
	if stored.Place == f.ahead {
		return &sessionError{&Fault{
			Class: Permanent, Code: "ahead", Reason: ReasonCheckpoint, Err: err,
			Hint: "another bridge or a restored Redis wrote it: exportbridge cursor history, then exportbridge cursor reset",
		}}
	}
	f.ahead = stored.Place
	return &sessionError{err}
}

// step is taken when the time has come: recover, or ask at the position.
func (f *follower) step(ctx context.Context) error {
	if !f.ready {
		// Whoever is not the owner any more must not begin a session: it would
		// fence the one who is.
		if f.session != "" {
			if err := f.owned(ctx); err != nil {
				return &sessionError{err}
			}
		}
		return f.recover(ctx)
	}
	if paused, err := f.waitsPaused(); paused {
		return err
	}
	if err := f.recollect(ctx); err != nil {
		return &sessionError{err}
	}
	start := chainStart{at: f.head.Position(), empties: f.pace.allowance, refill: emptyAllowance}
	if f.probing {
		start.at.Cursor, start.single = "", true
	}
	if f.ends() {
		start.refill = f.b.cfg.EmptyPages - 1
		start.empties = start.refill - f.pace.empties
	}
	f.chain = f.b.startChain(ctx, start)
	return nil
}

// ends reports whether the run ends with the results. Then empty pages are
// followed as far as the configuration says: a sparse filter must not cut it.
func (f *follower) ends() bool { return f.window() || f.b.cfg.Limits.Once }

// window reports whether the stream is a stateless window, which ends.
func (f *follower) window() bool { return f.b.cfg.Origin.End != 0 }

// dropChain ends the chain and forgets what it prefetched.
func (f *follower) dropChain() {
	f.dropLinks()
	f.batch, f.held = batch{}, nil
	f.head, f.pace = f.cp, f.kept
	f.found = Observation{}
	f.visited.rollback()
	f.trimmer.rollback()
	f.blank.rollback()
}

// sessionError marks an error of the sink or the store: the outcome of what
// was under way is unknown, so nothing in memory is believed any more.
type sessionError struct{ err error }

func (e *sessionError) Error() string { return e.err.Error() }
func (e *sessionError) Unwrap() error { return e.err }

// setback drops what is in flight and decides when and how to go on. It
// returns an error when the run cannot go on.
func (f *follower) setback(soft, hard context.Context, err error) error {
	_, doubt := errors.AsType[*sessionError](err)
	if f.batch.events > 0 { // the sink cannot take back what was sent
		f.ready, f.open = false, false
	}
	f.ready = f.ready && !doubt
	f.dropChain()
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		return blocked
	}
	if hard.Err() != nil {
		return context.Cause(hard)
	}
	if errors.Is(err, ErrNotOwner) && f.tenure != nil {
		return errLetGo
	}
	if soft.Err() != nil && errors.Is(err, soft.Err()) {
		return nil // next will see that the run is to stop
	}
	fault := faultOf(err)
	if f.probing {
		// Not even a request without a cursor works: the API is down, and
		// the cursor is not to blame.
		f.probing = false
		if fault.Reason != ReasonAuth && fault.Class != Throttled {
			fault = &Fault{Class: Transient, Code: fault.Code, RetryAfter: fault.RetryAfter, Hint: fault.Hint, Err: fault.Err}
		}
	}
	tries := &f.fetches
	if doubt {
		tries = &f.sessions
		f.stale = f.stale || errors.Is(err, ErrConflict)
		switch {
		case errors.Is(err, ErrConflict):
			f.b.observe(Observation{What: ObserveRejected, Code: DependencyStore})
			fault = f.conflicted(err)
		case errors.Is(err, ErrFenced):
			f.b.observe(Observation{What: ObserveRejected, Code: DependencySink})
			fault = f.overruled(err)
		}
	}
	v := tries.after(fault)
	if v.crossCheck {
		f.suspect, f.probing = fault, true
		f.due = time.Now()
		return nil
	}
	return f.wait(v, fault)
}

// wait puts the stream into back-off or blocks it.
func (f *follower) wait(v verdict, fault *Fault) error {
	f.due = time.Now().Add(v.wait)
	if !v.blocked {
		f.b.observe(Observation{What: ObserveRetry, Took: v.wait, Code: fault.Code})
		f.set(StateBackoff, fault)
		return nil
	}
	f.blockedOn = fault.Reason
	f.countLoss(fault)
	aside := !f.bounded() && f.aside(fault)
	if aside {
		f.due = time.Now().Add(asideWait)
	}
	f.set(StateBlocked, fault)
	switch {
	case f.bounded():
		return f.blocked(fault)
	case aside:
		f.log.Warn("steps aside: another process may be able to run the stream")
		return errAside
	}
	return nil
}

// rest waits until the next step is due.
func (f *follower) rest(ctx context.Context) {
	f.b.waits()
	defer f.b.busy()
	pause(ctx, time.Until(f.due))
}

const (
	// fenceWindow is how close to each other fences must be to be a pattern.
	fenceWindow = 2 * time.Minute
	// fenceWait is how long a bridge waits that was fenced again. One that was
	// fenced by a late request of its own is not held up for long.
	fenceWait = 10 * time.Second
	// truce is how long a bridge leaves the stream alone that another one runs
	// too. Two that tried again at once would fence each other for ever.
	truce = 5 * time.Minute
)

// ownerHint is what to do about two bridges on one stream.
const ownerHint = "another process runs this stream outside our group: stop one of them, or give both the same BRIDGE_GROUP, or different KAFKA_CHECKPOINT_TOPIC, CURSOR_PREFIX or stream names"

// overruled answers to a newer session of the stream. Once is a new owner, a
// command, or a request of our own that was held up on its way; a third time
// within fenceWindow is a second bridge.
func (f *follower) overruled(err error) *Fault {
	f.fenced = slices.DeleteFunc(f.fenced, func(t time.Time) bool { return time.Since(t) > fenceWindow })
	f.fenced = append(f.fenced, time.Now())
	switch len(f.fenced) {
	case 1:
		return &Fault{Class: Transient, Code: "fenced", Err: err}
	case 2:
		return &Fault{Class: Transient, Code: "fenced", RetryAfter: fenceWait, Err: err}
	}
	return &Fault{
		Class: Permanent, Code: "fenced", Reason: ReasonOwner, RetryAfter: truce, Hint: ownerHint,
		Err: fmt.Errorf("the stream was taken by somebody else %d times within %s: %w", len(f.fenced), fenceWindow, err),
	}
}

// conflicted answers to somebody else having moved the stored checkpoint: once
// is a command or a new owner, twice within a minute is a second bridge.
func (f *follower) conflicted(err error) *Fault {
	fault := &Fault{Class: Transient, Code: "conflict", Err: err}
	if time.Since(f.conflict) < time.Minute {
		fault = &Fault{
			Class: Permanent, Code: "conflict", Reason: ReasonOwner, Hint: ownerHint,
			Err: fmt.Errorf("the stream was moved by somebody else twice within a minute: %w", err),
		}
	}
	f.conflict = time.Now()
	return fault
}
