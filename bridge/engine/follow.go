package engine

import (
	"context"
	"errors"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine/position"
)

// follower is the commit loop: one goroutine, which owns everything below. External input
// reaches the loop only through next and through the results of the ports.
type follower struct {
	// One assignment resets each of four parts: session at the next recovery, progress and
	// schedule when the stream is moved, these three and ownership when ownership is lost.
	// The other fields last as long as Run.
	stream
	schedule  schedule
	ownership ownership
	requests  requests

	commands <-chan *bridge.Command
	fetching *prefetcher // nil while nothing is fetched

	state                   bridge.State
	fault                   *bridge.Fault // the reason of StateBackoff or StateBlocked
	since                   time.Time
	alarms                  [2]alarm  // used by next
	idleSince, readingSince time.Time // used by setState
}

func newFollower(e *Engine, commands <-chan *bridge.Command) *follower {
	f := &follower{commands: commands, schedule: newSchedule(&e.cfg), stream: stream{
		e: e, log: e.log, session: session{e: e}, progress: newProgress(bridge.Checkpoint{}),
		run: run{began: -1, seenIDs: make(map[string]struct{})}, sizer: sizer{breadth: mostPages},
	}}
	f.requests.e = e
	f.away = func(retry time.Time, why *bridge.Fault) {
		f.schedule.due = retry
		f.setState(bridge.StateBackoff, why)
	}
	return f
}

// move moves the stream: it makes c durable and continues from there.
func (f *follower) move(ctx context.Context, c bridge.Checkpoint) error {
	if f.session.open {
		if _, err := f.publish(ctx, bridge.Batch{Checkpoint: c, From: f.committed.Checkpoint}, 0); err != nil {
			return err
		}
	}
	stored := f.committed.Checkpoint // the checkpoint in the store, as far as known
	if !f.rival.Zero() {
		stored = f.rival
	}
	if err := f.storeCheckpoint(ctx, stored, c); err != nil {
		return err
	}
	f.progress, f.schedule = newProgress(c), newSchedule(&f.e.cfg)
	f.adopt(c)
	if c.Kind == bridge.KindReset && c.Overlap == nil { // otherwise the count of events continues
		f.run.began = c.Events
	}
	f.setState(bridge.StateRunning, nil)
	return nil
}

// input is an event that the loop handles. It is small, because the loop of a quiet stream waits with
// several on its stack.
type input struct {
	kind   inputKind
	result fetchResult
	cmd    *bridge.Command
	cp     *bridge.Checkpoint
}

type inputKind int

const (
	inputStop      inputKind = iota // the run, or the ownership, is to end
	inputDue                        // time to recover or to fetch
	inputFetched                    // the prefetcher returned a page or an error
	inputRipe                       // time to commit the batch
	inputCommand                    // an operator's command arrived
	inputHeartbeat                  // time for a heartbeat
	inputRival                      // time to check whether the other bridge has gone
	inputAhead                      // the store shows that another process moved the stream
)

// follow runs the stream. Start and restart are the same code: after any error the loop
// drops the open batch and recovers. soft ends with the run or the ownership. hard ends
// when the open batch must be abandoned.
func (f *follower) follow(soft, hard context.Context) error {
	for f.run.ended == "" {
		var err error
		in := f.next(soft)
		if in.kind != inputFetched && in.kind != inputAhead && f.batch.pages > 0 {
			if err = f.commit(hard, false); err == nil {
				f.finish(false)
			}
		}
		switch {
		case err != nil || f.run.ended != "":
		case in.kind == inputStop:
			f.drain(hard)
			return nil
		case in.kind == inputDue:
			err = f.step(soft)
		case in.kind == inputFetched:
			err = f.handleFetched(hard, in.result)
		case in.kind == inputCommand:
			err = f.applyCommand(hard, *in.cmd)
		case in.kind == inputHeartbeat:
			err = f.heartbeat(soft)
		case in.kind == inputRival:
			if f.incidents.findRival(soft, f.e, f.ownership.grant) {
				f.log.Info("no other bridge runs the stream any more")
				f.schedule.due, f.incidents.resumed = time.Now(), time.Now()
			}
		case in.kind == inputAhead:
			err = f.incidents.onStoreAhead(in.cp, f.committed.Version)
		}
		if err == nil {
			continue
		}
		if err := f.handleError(soft, hard, err); err != nil {
			return err
		}
	}
	if err := f.commit(hard, f.session.ready); err != nil {
		// All events are committed. The next run only reads some empty pages again.
		f.log.Warn("final commit failed", "error", err.Error())
	}
	f.log.Info("run ended", "why", f.run.ended, "events", f.committed.Events-f.run.began,
		"dead_lettered", f.run.totals.deadLettered,
		"checkpoint", f.committed.Version.String(), "cursor", bridge.CursorHash(f.committed.Cursor))
	return nil
}

// next waits for the next input. Stopping has priority over commands, and commands have
// priority over pages, which a reset makes obsolete.
func (f *follower) next(ctx context.Context) input {
	defer f.e.watchdog.wait()()
	select {
	case <-ctx.Done():
		return input{kind: inputStop}
	default:
	}
	var commands <-chan *bridge.Command
	// A command makes a blocked stream retry. If another bridge runs the stream, a retry would
	// fence that bridge, which applies the command.
	blocked := !f.session.ready && f.state == bridge.StateBlocked
	fenced := blocked && f.fault.Reason == bridge.ReasonOwner
	if !fenced && (blocked || f.canApply(&f.session)) {
		commands = f.commands
		select {
		case cmd := <-commands:
			return input{kind: inputCommand, cmd: cmd}
		default:
		}
	}
	var results <-chan fetchResult
	var due, beat, look, ripe <-chan time.Time
	if f.fetching != nil {
		results = f.fetching.results
		if f.batch.pages > 0 {
			select {
			case r, open := <-results:
				return f.e.fetchedInput(r, open, f.sizer.arrived(0))
			default:
			}
			ripe = f.alarms[0].at(f.sizer.ripe(f.batch))
		}
	} else {
		due = f.alarms[0].at(f.schedule.due)
		switch {
		case f.session.ready:
			beat = f.alarms[1].at(f.run.heartbeatDue(f.e.cfg.Stream, f.at.Cursor != f.committed.Cursor))
		case fenced:
			look = f.alarms[1].at(f.incidents.looked.Add(rivalInterval))
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
		return input{kind: inputHeartbeat}
	case <-look:
		return input{kind: inputRival}
	case c := <-f.mirror.ahead:
		return input{kind: inputAhead, cp: c}
	case <-ripe:
		f.sizer.waiting += time.Since(waited)
		return input{kind: inputRipe}
	case r, open := <-results:
		return f.e.fetchedInput(r, open, f.sizer.arrived(time.Since(waited)))
	}
}

// fetchedInput turns a fetch result into an input.
func (e *Engine) fetchedInput(r fetchResult, open bool, waited time.Duration) input {
	if !open { // ctx ended the prefetcher, so the run must stop
		return input{kind: inputStop}
	}
	e.observe(bridge.Observation{What: bridge.ObserveWait, Took: waited})
	return input{kind: inputFetched, result: r}
}

// step runs when the schedule is due. It recovers, or starts fetching at the position.
func (f *follower) step(ctx context.Context) error {
	if !f.session.ready {
		// A process that has lost ownership must not begin a session, which would fence the
		// new owner.
		if f.session.id != "" {
			if err := f.ownership.confirm(ctx); err != nil {
				return &sessionError{err}
			}
		}
		return f.recover(ctx)
	}
	if pause, until := f.e.checkPaused(&f.committed.Checkpoint); pause != nil {
		f.schedule.due = until
		if f.e.cfg.bounded() { // a bounded run does not wait for the end of a pause
			return f.e.blocked(pause)
		}
		if f.state != bridge.StatePaused {
			how := []any{"checkpoint", f.committed.Version.String(), "hint", f.e.cfg.hintOf(pause)}
			if end := f.committed.PausedUntil; end != bridge.Forever {
				how = append(how, "until", bridge.InstantText(end))
			}
			f.log.Info("stream paused", how...)
		}
		f.setState(bridge.StatePaused, nil)
		return nil
	}
	if was := f.committed.PausedUntil; was != 0 {
		f.at.PausedUntil = 0 // durable with the next commit
		if f.state == bridge.StatePaused {
			f.log.Info("pause expired", "was_until", bridge.InstantText(was))
		}
	}
	if err := f.loadPublished(ctx, f.e, f.session.topics); err != nil {
		return &sessionError{err}
	}
	start := prefetchStart{at: f.at.Position(), empties: f.at.Empty.Allowance, refill: position.EmptyAllowance}
	if f.e.cfg.listing() {
		start.at.Held = f.known.Published
	}
	if f.schedule.probing() {
		start.at.Cursor, start.single = "", true
	}
	if f.e.cfg.ends() && !f.at.KnowsEnd(&f.e.rules) {
		start.refill = f.e.cfg.EmptyPages - 1
		start.empties = start.refill - f.at.Empty.Empties
	}
	f.sizer.begin(f.e.cfg.PageSize)
	f.fetching = f.e.startPrefetch(ctx, start)
	return nil
}

// discard stops the prefetcher and returns to the last commit.
func (f *follower) discard() {
	f.stopFetching()
	f.rollback()
}

// handleError drops the open batch and schedules the retry. It returns an error if the run
// cannot continue.
func (f *follower) handleError(soft, hard context.Context, err error) error {
	_, doubt := errors.AsType[*sessionError](err)
	if f.batch.events > 0 { // the sink cannot take back events that it got
		f.session.ready, f.session.open = false, false
	}
	f.session.ready = f.session.ready && !doubt
	f.discard()
	if blocked, ok := errors.AsType[*bridge.BlockedError](err); ok {
		return blocked
	}
	if hard.Err() != nil {
		return context.Cause(hard)
	}
	if errors.Is(err, bridge.ErrNotOwner) && f.ownership.grant != nil {
		return errLetGo
	}
	if soft.Err() != nil && errors.Is(err, soft.Err()) {
		return nil // next will return inputStop
	}
	fault := bridge.FaultOf(err)
	if f.schedule.probing() && !fault.Unsent {
		// Requests without a cursor fail too: the API is down, and the cursor is not the
		// cause.
		f.schedule.suspect, f.schedule.outage = nil, fault
		if fault.Reason != bridge.ReasonAuth && fault.Class != bridge.Throttled {
			fault = &bridge.Fault{Class: bridge.Transient, Code: fault.Code, RetryAfter: fault.RetryAfter, Hint: fault.Hint,
				HintCode: fault.HintCode, Err: fault.Err}
		}
	}
	tries := &f.schedule.fetches
	if doubt {
		if cut, ok := errors.AsType[*bridge.CutOffError](err); ok {
			f.incidents.cut, f.incidents.cutAt = cut, time.Now()
		}
		tries = &f.schedule.sessions
		f.stale = f.stale || errors.Is(err, bridge.ErrConflict)
		switch {
		case errors.Is(err, bridge.ErrConflict):
			f.e.observe(bridge.Observation{What: bridge.ObserveRejected, Code: bridge.DependencyStore})
			fault = f.incidents.onConflict(err)
		case errors.Is(err, bridge.ErrFenced):
			f.e.observe(bridge.Observation{What: bridge.ObserveRejected, Code: bridge.DependencySink})
			fault = f.incidents.onFenced(soft, f.e, f.ownership.grant, err)
		}
	}
	v := tries.after(fault)
	if v.crossCheck || fault.Code == position.CodeOlder {
		f.schedule.suspect = fault
		f.schedule.due = time.Now()
		return nil
	}
	if fault.Class == bridge.BadCursor {
		fault = f.schedule.unconfirmed(fault)
	}
	return f.wait(soft, v, fault)
}

// wait puts the stream into back-off, or blocks it.
func (f *follower) wait(ctx context.Context, v verdict, fault *bridge.Fault) error {
	f.schedule.due = time.Now().Add(v.wait)
	if !v.blocked {
		f.e.observe(bridge.Observation{What: bridge.ObserveRetry, Took: v.wait, Code: fault.Code})
		f.setState(bridge.StateBackoff, fault)
		return nil
	}
	f.blockedOn = fault.Reason
	f.incidents.countLoss(f.e, fault)
	yields := !f.e.cfg.bounded() && f.ownership.shouldYield(ctx, f.e, fault)
	if yields {
		f.schedule.due = time.Now().Add(yieldWait)
	}
	f.setState(bridge.StateBlocked, fault)
	switch {
	case f.e.cfg.bounded():
		return f.e.blocked(fault)
	case yields:
		f.log.Warn("yielding ownership to a standby")
		return errYield
	}
	return nil
}
