package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
)

const (
	// aliveInterval is the interval at which a waiting request checks that a bridge runs
	// the stream.
	aliveInterval = 500 * time.Millisecond
	// fencedLooks is the number of consecutive looks, within five seconds, that must find
	// the stream fenced. By then, a bridge with the same Redis has reported its status. A
	// fenced bridge has resumed if its rival has ended.
	fencedLooks = 10
	// unseenLooks is the number of consecutive looks, within five seconds, that must find
	// an owner without a status. A bridge reports within that time.
	unseenLooks = 10
	// withdrawTimeout bounds the withdrawal of a request.
	withdrawTimeout = 5 * time.Second
)

// self names this process in answers while no bridge runs the stream.
const self = "this command (no bridge runs the stream)"

// request is a command that waits for the stream's owner.
type request struct {
	c      *Controller
	cmd    bridge.Command
	by     Request
	from   base              // the stream's position before the request
	unseen *UnseenOwnerError // an owner that does not report to this Redis
}

// apply stores the request and waits for the answer of the stream's owner. Without an
// owner, this process applies the command.
func (r *request) apply(ctx context.Context) (bridge.Answer, error) {
	if r.from.away != nil {
		return r.applyAway(ctx, r.from.away)
	}
	err := r.put(ctx)
	if err == nil {
		return r.await(ctx)
	}
	if _, pending := errors.AsType[*bridge.PendingError](err); pending || !isAway(err) && ctx.Err() == nil {
		return bridge.Answer{}, err
	}
	// Redis may have stored the request; the id in a commit shows that it was applied.
	if ctx.Err() == nil {
		answer, stuck := r.applyAway(ctx, err)
		if stuck == nil {
			return answer, nil
		}
		err = stuck
	}
	return r.giveUpWith(ctx, err)
}

// put stores the request. It first settles an overdue request that a bridge claimed.
func (r *request) put(ctx context.Context) error {
	deadline := time.Now().Add(r.by.Timeout)
	for {
		err := r.c.ports.Inbox.Request(ctx, r.cmd, r.by.Timeout)
		pending, ok := errors.AsType[*bridge.PendingError](err)
		switch {
		case err == nil, !ok:
			return err
		case !pending.Overdue || ctx.Err() != nil || time.Now().After(deadline):
			return pending
		}
		answer, err := r.settle(ctx, pending)
		if err != nil {
			return fmt.Errorf("%w; its outcome is unknown: %w", pending, err)
		}
		if r.from.Mode == bridge.AtLeastOnce && answer.Expired() && answer.Version.Epoch == r.cmd.BaseEpoch+1 {
			r.cmd.BaseEpoch++ // settling the expired request began a new epoch at the same position
		}
	}
}

// settle waits briefly until the stream's owner has answered an overdue request. Without an
// owner, this process fences the claimer and answers that the request was applied, or
// expired.
func (r *request) settle(ctx context.Context, pending *bridge.PendingError) (bridge.Answer, error) {
	if answer, err := r.look(ctx, pending.Command.ID); err == nil {
		return answer, nil
	}
	if _, alive, err := r.c.Live(ctx); err != nil || alive {
		return bridge.Answer{}, nil //nolint:nilerr // the next request to Redis shows the error
	}
	switch members, err := r.c.owners(ctx); {
	case err != nil:
		return bridge.Answer{}, err
	case len(members) > 0:
		return bridge.Answer{}, nil
	}
	answer, err := r.applyOffline(ctx, pending.Command, r.c.ports.Inbox)
	if errors.Is(err, bridge.ErrFenced) {
		return bridge.Answer{}, nil // a bridge has started, and will answer
	}
	return answer, err
}

func (r *request) await(ctx context.Context) (bridge.Answer, error) {
	deadline := time.Now().Add(r.by.Timeout)
	for looks, unseen := 0, 0; ; {
		answer, err := r.look(ctx, r.cmd.ID)
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) || looks == fencedLooks {
			return r.giveUp(ctx.Err() != nil)
		}
		live, alive, err := r.c.Live(ctx)
		if err == nil && alive && live.Fenced() {
			looks++
			continue
		}
		looks = 0
		if err != nil || alive {
			unseen, r.unseen = 0, nil
			continue
		}
		switch members, err := r.c.owners(ctx); {
		case err != nil:
			return r.giveUpWith(ctx, err)
		case len(members) > 0:
			if unseen++; unseen == unseenLooks {
				r.sayUnseen(members[0])
			}
			continue
		}
		answer, err = r.applyOffline(ctx, r.cmd, r.c.ports.Inbox)
		if errors.Is(err, bridge.ErrFenced) {
			continue // a bridge has started, and will answer
		}
		if err != nil {
			return r.giveUpWith(ctx, err)
		}
		return answer, nil
	}
}

// look waits briefly for the answer. It waits even if Redis fails at once, to avoid a hot
// loop.
func (r *request) look(ctx context.Context, id string) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, aliveInterval)
	defer cancel()
	answer, err := r.c.ports.Inbox.Wait(ctx, id)
	if err != nil {
		<-ctx.Done()
	}
	return answer, err
}

// sayUnseen reports that the stream's owner does not report to this Redis.
func (r *request) sayUnseen(owner bridge.Member) {
	r.unseen = &UnseenOwnerError{Stream: r.c.Stream(), By: owner}
	if r.by.Waiting != nil {
		r.by.Waiting(r.unseen)
	}
}

// owners returns the processes that can run a stream without a status in Redis, as the
// group coordinator lists them.
func (c *Controller) owners(ctx context.Context) ([]bridge.Member, error) {
	members, err := c.members(ctx)
	if err != nil {
		return nil, fmt.Errorf("no bridge responds, and %w: %w", ErrOwnerUnknown, err)
	}
	return members, nil
}

func (c *Controller) members(ctx context.Context) ([]bridge.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	return c.ports.Group.Members(ctx)
}

// applyOffline applies the command in this process, in the same steps as a running
// bridge: start a session, which fences any other owner, then claim, commit,
// answer.
func (r *request) applyOffline(ctx context.Context, cmd bridge.Command, inbox bridge.Inbox) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.by.Timeout)
	defer cancel()
	sink, err := r.c.ports.OpenSink()
	if err != nil {
		return bridge.Answer{}, err
	}
	defer sink.Close()
	cfg := r.c.cfg
	answer, err := engine.Apply(ctx, cfg, engine.Ports{Sink: sink, Store: r.c.ports.Store, Inbox: inbox}, cmd)
	if err == nil && answer.By == cfg.Owner {
		answer.By = self
	}
	return answer, err
}

// giveUpWith withdraws the request because of an error. It returns the error, unless the
// request was applied first or the caller interrupts. If the request may be applied later,
// the error says so.
func (r *request) giveUpWith(ctx context.Context, cause error) (bridge.Answer, error) {
	answer, err := r.giveUp(ctx.Err() != nil)
	e, ok := errors.AsType[*UnacknowledgedError](err)
	switch {
	case !ok || e.Interrupted:
		return answer, err
	case e.State == bridge.CommandWithdrawn:
		return answer, cause
	}
	return answer, fmt.Errorf("%w; %w", cause, err)
}

// giveUp withdraws the request. If the request was applied first, giveUp returns the
// answer.
func (r *request) giveUp(interrupted bool) (bridge.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
	defer cancel()
	outcome, err := r.c.ports.Inbox.Withdraw(ctx, r.cmd.ID)
	e := &UnacknowledgedError{
		ID: r.cmd.ID, State: outcome.State, Owner: outcome.Owner, Timeout: r.by.Timeout, Interrupted: interrupted,
	}
	switch {
	case err != nil:
		e.State, e.Err = bridge.CommandUnknown, fmt.Errorf("does not answer: %w; "+
			"a bridge may apply it up to %s after Redis answers again", err, r.by.Timeout)
	case outcome.State == bridge.CommandAnswered:
		return outcome.Answer, nil
	case outcome.State == bridge.CommandUnknown:
		at, err := r.applied()
		if err == nil {
			return bridge.Answer{Applied: true, By: at.Owner, At: at.Change.At, Version: at.Version}, nil
		}
		e.Err = fmt.Errorf("does not know it: %w", err)
	case outcome.State == bridge.CommandWithdrawn:
		if live, alive, err := r.c.Live(ctx); err == nil && alive && !interrupted {
			e.Live = &live
		}
		e.Unseen = r.unseen
	}
	return bridge.Answer{}, e
}

// applied returns the newest checkpoint if it includes the command. A fail-over of Redis can
// lose the request with its answer, and the checkpoint too, which the checkpoint topic has.
func (r *request) applied() (bridge.Checkpoint, error) {
	ctx, cancel := context.WithTimeout(context.Background(), logTimeout)
	defer cancel()
	if stored, err := r.c.ports.Store.Load(ctx); err == nil && stored.Applied(r.cmd.ID) {
		return stored, nil
	}
	newest, err := r.c.newest(ctx)
	if err == nil && !newest.Applied(r.cmd.ID) {
		err = errors.New("the newest checkpoint does not include it, but a bridge may be about to apply it")
	}
	return newest, err
}

// applyAway applies the command while Redis is unreachable. A running bridge cannot receive
// the command, so this process applies it if the group has no member. A bridge that starts
// in the meantime fences this process, or continues from the commit of this process.
func (r *request) applyAway(ctx context.Context, away error) (bridge.Answer, error) {
	stuck := func(because error) (bridge.Answer, error) {
		return bridge.Answer{}, &StoreAwayError{Because: because, Err: away}
	}
	if r.c.cfg.Mode != bridge.ExactlyOnce {
		return stuck(ErrStoreHolds)
	}
	members, err := r.c.members(ctx)
	switch {
	case err != nil:
		return stuck(fmt.Errorf("%w: %w", ErrOwnerUnknown, err))
	case len(members) > 0:
		return stuck(&OwnedError{Stream: r.c.Stream(), By: members[0]})
	}
	answer, err := r.applyOffline(ctx, r.cmd, granted{r.c.ports.Inbox})
	if errors.Is(err, bridge.ErrFenced) {
		return stuck(&TakenOverError{Err: err})
	}
	return answer, err
}

// granted is an Inbox without Redis. It grants the claim, and keeps the answer in the
// process.
type granted struct{ bridge.Inbox }

func (granted) Claim(_ context.Context, _ bridge.Command, by bridge.Claim) (bridge.Claimed, error) {
	return bridge.Claimed{By: by.Session}, nil
}

func (granted) Answer(_ context.Context, _ bridge.Command, _ bridge.Claim, a bridge.Answer) (bridge.Answer, error) {
	return a, nil
}
