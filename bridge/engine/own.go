package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"exportbridge/bridge"
)

const (
	// boundedPatience is how long a bounded run waits for ownership. A dead process loses
	// its streams within that time.
	boundedPatience = time.Minute
	// refusedPatience is how long a refused process asks again and stays blocked, before it
	// becomes a standby.
	refusedPatience = 5 * time.Second
	// lossWait bounds the wait for the Owner to notice a lost ownership.
	lossWait = 10 * time.Second
)

// ownership is the state of one ownership of the stream.
type ownership struct {
	grant   bridge.Ownership // nil if no other process can own the stream
	active  bool             // this process owns the stream
	doubted string           // id of the command that expects a later epoch than that of the session
}

// confirm asks whether this process still owns the stream.
func (o *ownership) confirm(ctx context.Context) error {
	if o.grant == nil {
		return nil
	}
	if err := o.grant.Confirm(ctx); err != nil {
		return fmt.Errorf("confirm ownership of the stream: %w", err)
	}
	return nil
}

// ownerLoop runs the commit loop for one ownership after the other, until Run ends.
type ownerLoop struct {
	*follower
	asking retries
}

// own runs the stream while this process owns it. Otherwise the process is a standby.
func (o *ownerLoop) own(soft, hard context.Context) error {
	defer o.setState(bridge.StateStopped, nil)
	if o.e.ports.Owner == nil {
		return o.runOwned(soft, hard)
	}
	for {
		grant, err := o.acquire(soft)
		if grant == nil {
			return err
		}
		switch err = o.serve(soft, hard, grant); {
		case errors.Is(err, errYield):
			o.e.sleepUntil(soft, o.schedule.due)
		case !errors.Is(err, errLetGo):
			return err
		}
		o.forget()
	}
}

// forget drops all state of the stream after another process has taken over the stream.
func (o *ownerLoop) forget() {
	o.ownership, o.session = ownership{}, session{e: o.e}
	o.progress, o.schedule = newProgress(bridge.Checkpoint{}), newSchedule(&o.e.cfg)
}

// errLetGo ends an ownership, but not the run. errYield does the same for a process that
// cannot run the stream, because another process may be able to.
var (
	errLetGo = errors.New("ownership released")
	errYield = errors.New("ownership yielded")
)

// acquire waits for ownership. It returns neither an ownership nor an error if the run must
// stop. A bounded run gives up if another process owns the stream, but waits for an
// unreachable coordinator.
func (o *ownerLoop) acquire(soft context.Context) (bridge.Ownership, error) {
	o.log.Info("waiting for ownership")
	o.setState(bridge.StateStandby, nil)
	for {
		grant, err := o.ask(soft)
		switch {
		case err == nil:
			return grant, nil
		case soft.Err() != nil:
			return nil, nil //nolint:nilnil // stopped before ownership
		case errors.Is(err, context.DeadlineExceeded) && errors.Is(err, bridge.ErrNotOwner) && o.e.cfg.Limits.Bounded():
			return nil, o.e.blocked(bridge.BlockHintf("owner", bridge.ReasonOwner, bridge.HintOwned,
				"ownership not acquired within %s: %w", boundedPatience, err))
		case errors.Is(err, context.DeadlineExceeded):
			o.setState(bridge.StateStandby, nil)
			continue
		}
		fault := bridge.FaultOf(err)
		if err := o.wait(soft, o.asking.after(fault), fault); err != nil {
			return nil, err
		}
		o.e.sleepUntil(soft, o.schedule.due)
	}
}

// ask makes one attempt to acquire ownership. It takes at most boundedPatience for a run with
// limits, and refusedPatience for a refused process. The standby of a window waits for as long
// as the owner follows it.
func (o *ownerLoop) ask(ctx context.Context) (bridge.Ownership, error) {
	patience := refusedPatience
	if o.e.cfg.Limits.Bounded() {
		patience = boundedPatience
	}
	if o.e.cfg.Limits.Bounded() || o.state != bridge.StateStandby {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	defer o.e.watchdog.wait()()
	return o.e.ports.Owner.Acquire(ctx)
}

// serve runs the stream for one ownership. A lost ownership stops the loop like a shutdown,
// but does not end the run.
func (o *ownerLoop) serve(soft, hard context.Context, grant bridge.Ownership) error {
	o.asking.reset()
	o.ownership.grant = grant
	defer grant.Release()
	ctx, end := bridge.WhileOwned(soft, grant)
	defer end()
	o.setState(bridge.StateStarting, nil)
	o.log.Info("ownership acquired")
	err := o.runOwned(ctx, hard)
	switch {
	case errors.Is(err, errLetGo):
		o.awaitLoss(soft)
	case err == nil && soft.Err() == nil && ctx.Err() != nil && o.run.ended == "":
		err = errLetGo
	}
	if errors.Is(err, errLetGo) {
		o.log.Info("ownership released", "checkpoint", o.committed.Version.String())
	}
	return err
}

// awaitLoss waits until the Owner has noticed the loss. Before that, the Owner would grant
// the stream again.
func (o *ownerLoop) awaitLoss(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lossWait)
	defer cancel()
	defer o.e.watchdog.wait()()
	select {
	case <-o.ownership.grant.Lost():
	case <-ctx.Done():
	}
}

// runOwned runs the commit loop, and the mirror beside it, for one ownership.
func (o *ownerLoop) runOwned(soft, hard context.Context) error {
	m := startMirror(o.e, o.log)
	o.mirror, o.ownership.active = m, true
	o.e.observe(bridge.Observation{What: bridge.ObserveOwner, Code: "owner"})
	err := o.follow(soft, hard)
	o.discard()
	o.e.ports.Sink.Close()
	m.stop()
	o.ownership.active = false // Status shows this before another process can begin
	o.e.observe(bridge.Observation{What: bridge.ObserveOwner, Code: "standby"})
	if errors.Is(err, errYield) {
		o.publishStatus()
	} else {
		o.setState(bridge.StateStandby, nil)
	}
	return err
}

// yieldWait is how long a process stays away after it yielded. Rejoining can briefly take
// the stream from its new owner.
const yieldWait = 5 * time.Minute

// shouldYield reports whether a blocked process should yield the stream to another process,
// which may have other settings, keys or permissions.
func (o *ownership) shouldYield(ctx context.Context, e *Engine, fault *bridge.Fault) bool {
	own := []bridge.Reason{bridge.ReasonAuth, bridge.ReasonConfig, bridge.ReasonSource, bridge.ReasonTopic}
	if o.grant == nil || fault.Code == bridge.CodeTopicLost || !slices.Contains(own, fault.Reason) {
		return false // any other process would be blocked too
	}
	ctx, done := e.asking(ctx)
	defer done()
	return o.grant.Shared(ctx)
}

// asking bounds a call of bridge.Ownership, and counts the call as a wait until done.
func (e *Engine) asking(ctx context.Context) (bounded context.Context, done func()) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	e.watchdog.wait()
	return ctx, func() { cancel(); e.watchdog.work() }
}

func (e *Engine) blocked(fault *bridge.Fault) error {
	return &bridge.BlockedError{Stream: e.cfg.Stream, Reason: fault.Reason, Hint: e.cfg.hintOf(fault), Err: fault}
}
