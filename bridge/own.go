package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// boundedPatience is how long a bounded run waits for a stream that
	// another process runs. It is longer than a dead process keeps its streams.
	boundedPatience = time.Minute
	// deposedWait is how long a stream that is another process's may still be
	// told to be ours.
	deposedWait = 10 * time.Second
)

// own runs the stream while it is this process's, and stands by while it is
// another's.
func (f *follower) own(soft, hard context.Context) error {
	defer f.set(StateStopped, nil)
	if f.b.ports.Owner == nil {
		return f.rule(soft, hard)
	}
	for {
		tenure, err := f.acquire(soft)
		if tenure == nil {
			return err
		}
		switch err = f.serve(soft, hard, tenure); {
		case errors.Is(err, errAside):
			f.rest(soft)
		case !errors.Is(err, errLetGo):
			return err
		}
		f.forget()
	}
}

// errLetGo ends a tenure, not the run. errAside does so because this process
// cannot run the stream, and another one may be able to.
var (
	errLetGo = errors.New("the stream is let go")
	errAside = errors.New("this process steps aside")
)

// acquire waits until the stream is ours. It returns neither tenure nor error
// when the run is to stop. A bounded run gives up on a stream that another
// process runs, but waits for a coordinator that does not answer.
func (f *follower) acquire(soft context.Context) (Ownership, error) {
	f.log.Info("waits until the stream is this process's")
	for {
		f.set(StateStandby, nil)
		tenure, err := f.ask(soft)
		switch {
		case err == nil:
			return tenure, nil
		case soft.Err() != nil:
			return nil, nil //nolint:nilnil // stopped before the stream was ours
		case errors.Is(err, context.DeadlineExceeded) && errors.Is(err, ErrNotOwner):
			return nil, f.blocked(&Fault{
				Class: Permanent, Code: "owner", Reason: ReasonOwner,
				Hint: "stop that process first, or let it do the work: exportbridge cursor show",
				Err:  fmt.Errorf("the stream was not this process's within %s: %w", boundedPatience, err),
			})
		case errors.Is(err, context.DeadlineExceeded):
			continue
		}
		fault := faultOf(err)
		if err := f.wait(f.owning.after(fault), fault); err != nil {
			return nil, err
		}
		f.rest(soft)
	}
}

// ask asks for the stream once; a bounded run for as long as boundedPatience.
func (f *follower) ask(ctx context.Context) (Ownership, error) {
	if f.bounded() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, boundedPatience)
		defer cancel()
	}
	f.b.waits()
	defer f.b.busy()
	return f.b.ports.Owner.Acquire(ctx)
}

// serve runs the stream for one tenure: until it ends, is stopped, or is to be
// let go, which is stopping in order for this process and no end of the run.
func (f *follower) serve(soft, hard context.Context, tenure Ownership) error {
	f.owning.reset()
	f.tenure = tenure
	defer tenure.Release()
	ctx, cancel := context.WithCancel(soft)
	watched := make(chan struct{})
	go func() { // ends with ctx, and is waited for below
		defer close(watched)
		select {
		case <-tenure.Lost():
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel()
		<-watched
	}()
	f.set(StateStarting, nil)
	f.log.Info("the stream is this process's")
	err := f.rule(ctx, hard)
	switch {
	case errors.Is(err, errLetGo):
		f.awaitLoss(soft)
	case err == nil && soft.Err() == nil && ctx.Err() != nil && f.ended == "":
		err = errLetGo
	}
	if errors.Is(err, errLetGo) {
		f.log.Info("the stream is let go", "checkpoint", f.cp.Place.String())
	}
	return err
}

// awaitLoss waits until the owner's client has noticed too that the stream is
// another's. Until then it would be given to us again.
func (f *follower) awaitLoss(ctx context.Context) {
	t := time.NewTimer(deposedWait)
	defer t.Stop()
	f.b.waits()
	defer f.b.busy()
	select {
	case <-f.tenure.Lost():
	case <-ctx.Done():
	case <-t.C:
	}
}

// owned asks whether the stream is still ours.
func (f *follower) owned(ctx context.Context) error {
	if f.tenure == nil {
		return nil
	}
	if err := f.tenure.Confirm(ctx); err != nil {
		return fmt.Errorf("ask whether the stream is still ours: %w", err)
	}
	return nil
}

// rule is one tenure: the commit loop, and beside it the mirror.
func (f *follower) rule(soft, hard context.Context) error {
	m := startMirror(f.b, f.log)
	f.mirror, f.leads = m, true
	f.b.observe(Observation{What: ObserveOwner, Code: "leader"})
	err := f.follow(soft, hard)
	f.dropChain()
	m.stop()
	f.leads = false // shown before another process hears that it may begin
	f.b.observe(Observation{What: ObserveOwner, Code: "standby"})
	if errors.Is(err, errAside) {
		f.refresh()
	} else {
		f.set(StateStandby, nil)
	}
	return err
}

// asideWait is how long a process that stepped aside leaves the stream to the
// others: its coming back may take it from them for a moment.
const asideWait = 5 * time.Minute

// aside reports whether a blocked process should let another one have the
// stream: what blocks it may be its own settings, key or rights.
func (f *follower) aside(fault *Fault) bool {
	switch fault.Reason {
	case ReasonAuth, ReasonConfig, ReasonSource, ReasonTopic:
	default:
		return false // any other process would block too
	}
	if fault.Code == CodeTopicLost {
		return false // the same
	}
	if f.tenure == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	f.b.waits()
	defer f.b.busy()
	return f.tenure.Shared(ctx)
}

// forget drops what was known from this tenure: another process moves the
// stream now.
func (f *follower) forget() {
	f.cp, f.head, f.ready, f.open = Checkpoint{}, Checkpoint{}, false, false
	f.there, f.topics = nil, nil
	f.tenure, f.session = nil, ""
	f.visited.clear()
	f.blank.clear()
	f.known = known{}
	f.trimmer, f.held = newTrimmer(f.b.cfg.divertsShared()), nil
	f.pace = pace{allowance: emptyAllowance}
	f.kept = f.pace
	f.sessions.reset()
	f.fetches.reset()
	f.polls.next = 0
	f.suspect, f.probing, f.blockedOn, f.doubted = nil, false, "", ""
	f.due = time.Time{}
}

// bounded reports whether the run ends by itself.
func (f *follower) bounded() bool { return f.b.cfg.Limits.bounded() || f.window() }

func (f *follower) blocked(fault *Fault) error {
	return &BlockedError{Stream: f.b.cfg.Stream, Reason: fault.Reason, Hint: fault.Hint, Err: fault}
}
