package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
)

const (
	// aliveInterval is how often a waiting request looks whether a bridge runs.
	aliveInterval = 500 * time.Millisecond
	// withdrawTimeout bounds the taking back of a request.
	withdrawTimeout = 5 * time.Second
)

// self is who answers where no bridge runs the stream.
const self = "this command (no bridge runs the stream)"

// request is a command on its way to whoever runs the stream.
type request struct {
	c       *Controller
	cmd     bridge.Command
	timeout time.Duration
	from    base // where the stream was when it was made
}

// apply puts the request and waits until whoever owns the stream has answered
// it. Where nobody does, this process is the owner.
func (r *request) apply(ctx context.Context) (bridge.Answer, error) {
	err := r.from.away
	if err == nil {
		err = r.put(ctx)
	}
	_, pending := errors.AsType[*bridge.PendingError](err)
	switch {
	case err == nil:
		return r.await(ctx)
	case !pending && isAway(err): // the request may be there all the same: its id says that it was applied
		return r.applyAway(ctx, err)
	}
	return bridge.Answer{}, err
}

// put leaves the request. One in its way that a bridge claimed and did not
// answer by its deadline is settled first: by the bridge that runs the stream,
// or by this process where nobody does.
func (r *request) put(ctx context.Context) error {
	deadline := time.Now().Add(r.timeout)
	for {
		err := r.c.ports.Inbox.Request(ctx, r.cmd, r.timeout)
		pending, ok := errors.AsType[*bridge.PendingError](err)
		switch {
		case err == nil, !ok:
			return err
		case !pending.Overdue || ctx.Err() != nil || time.Now().After(deadline):
			return pending
		}
		answer, err := r.settle(ctx, pending)
		if err != nil {
			return fmt.Errorf("%w; what became of it is not known: %w", pending, err)
		}
		if r.from.Mode == bridge.AtLeastOnce && answer.Expired() && answer.Version.Epoch == r.cmd.BaseEpoch+1 {
			r.cmd.BaseEpoch++ // that is how the answer is made to stay true; the stream is where it was
		}
	}
}

// settle waits a moment for the bridge that runs the stream to answer an
// overdue request. Where no process runs it, this one fences whoever had
// claimed the request, and answers it: applied, or expired.
func (r *request) settle(ctx context.Context, pending *bridge.PendingError) (bridge.Answer, error) {
	if answer, err := r.look(ctx, pending.Command.ID); err == nil {
		return answer, nil
	}
	if _, alive, err := r.c.Live(ctx); err != nil || alive {
		return bridge.Answer{}, nil //nolint:nilerr // Redis is asked again
	}
	switch free, err := r.c.unowned(ctx); {
	case err != nil:
		return bridge.Answer{}, err
	case !free:
		return bridge.Answer{}, nil
	}
	answer, err := r.applyOffline(ctx, pending.Command, r.c.ports.Inbox)
	if errors.Is(err, bridge.ErrFenced) {
		return bridge.Answer{}, nil // a bridge has started meanwhile: it will answer
	}
	return answer, err
}

func (r *request) await(ctx context.Context) (bridge.Answer, error) {
	deadline := time.Now().Add(r.timeout)
	for {
		answer, err := r.look(ctx, r.cmd.ID)
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return r.giveUp(ctx.Err() != nil)
		}
		_, alive, err := r.c.Live(ctx)
		if err != nil || alive {
			continue
		}
		switch free, err := r.c.unowned(ctx); {
		case err != nil:
			return r.giveUpWith(err)
		case !free:
			continue
		}
		answer, err = r.applyOffline(ctx, r.cmd, r.c.ports.Inbox)
		if errors.Is(err, bridge.ErrFenced) {
			continue // a bridge has started meanwhile: it will answer
		}
		if err != nil {
			return r.giveUpWith(err)
		}
		return answer, nil
	}
}

// look waits for the answer for a moment. Redis may refuse at once; then it
// waits all the same, so as not to ask in a hot loop.
func (r *request) look(ctx context.Context, id string) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, aliveInterval)
	defer cancel()
	answer, err := r.c.ports.Inbox.Wait(ctx, id)
	if err != nil {
		<-ctx.Done()
	}
	return answer, err
}

// unowned reports whether no process has the stream. Redis shows none; Kafka's
// coordinator knows for certain.
func (c *Controller) unowned(ctx context.Context) (bool, error) {
	members, err := c.members(ctx)
	if err != nil {
		return false, fmt.Errorf("no bridge answers, and %w", &OwnerUnknownError{Err: err})
	}
	return len(members) == 0, nil
}

func (c *Controller) members(ctx context.Context) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	return c.ports.Group.Members(ctx)
}

// applyOffline moves the stream itself, by the same steps as a running bridge:
// a session of its own, which fences whoever believes to own the stream,
// claim, commit, answer.
func (r *request) applyOffline(ctx context.Context, cmd bridge.Command, inbox bridge.Inbox) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	sink, err := r.c.ports.OpenSink()
	if err != nil {
		return bridge.Answer{}, err
	}
	defer sink.Close()
	cfg := r.c.cfg
	answer, err := bridge.Apply(ctx, cfg, bridge.Ports{Sink: sink, Store: r.c.ports.Store, Inbox: inbox}, cmd)
	if err == nil && answer.By == cfg.Owner {
		answer.By = self
	}
	return answer, err
}

// giveUpWith takes the request back because of an error, and says which of the
// two happened.
func (r *request) giveUpWith(cause error) (bridge.Answer, error) {
	answer, err := r.giveUp(false)
	if err == nil {
		return answer, nil // it was applied all the same
	}
	return answer, cause
}

// giveUp takes the request back, and says which of the two happened.
func (r *request) giveUp(interrupted bool) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
	defer cancel()
	outcome, err := r.c.ports.Inbox.Withdraw(ctx, r.cmd.ID)
	e := &UnacknowledgedError{ID: r.cmd.ID, State: outcome.State, Owner: outcome.Owner, Timeout: r.timeout, Interrupted: interrupted}
	switch {
	case err != nil:
		e.State, e.Err = bridge.RequestUnknown, err
	case outcome.State == bridge.RequestAnswered:
		return outcome.Answer, nil
	case outcome.State == bridge.RequestClaimed:
	default:
		e.State = bridge.RequestWithdrawn
		if live, alive, err := r.c.Live(ctx); err == nil && alive && !interrupted {
			e.Live = &live
		}
	}
	return bridge.Answer{}, e
}
