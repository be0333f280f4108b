package control

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
)

// Request has the operator, the reason and the deadline of a change.
type Request struct {
	// Who and Reason are recorded in the history; see bridge.Command.Validate.
	Who, Reason string
	// AcceptSource is as in bridge.Command; only for a move.
	AcceptSource string
	// Timeout is how long to wait for the acknowledgement before the request is
	// withdrawn.
	Timeout time.Duration
	// Waiting, if not nil, is called once with an *UnseenOwnerError if the request
	// waits for a process that does not report to this Redis.
	Waiting func(error)
}

// Done is a change that was applied.
type Done struct {
	// ID is the id of the request.
	ID string
	// Answer has the owner that applied the change, and the stream's new version.
	Answer bridge.Answer
	// PausedUntil is the PausedUntil of the new checkpoint; only for a pause.
	PausedUntil int64
}

// Move executes a planned move. It returns when the stream's owner has acknowledged the
// move. Without an owner, this process applies it.
//
// If the owner rejects the move, the error is an ErrRejected. While another request is
// pending, the error is a *bridge.PendingError. An *UnacknowledgedError says whether the
// request was withdrawn. A *StoreAwayError says why the change is impossible while Redis is
// unreachable; it comes with an *UnacknowledgedError if Redis may have the request. After
// any other error nothing was changed, unless the error says otherwise.
func (c *Controller) Move(ctx context.Context, m *Move, by Request) (Done, error) {
	cmd := newCommand(bridge.KindReset, by, &m.from.Checkpoint)
	cmd.Target, cmd.AcceptSource = m.target, by.AcceptSource
	return c.change(ctx, cmd, by, m.from)
}

// CheckEpoch returns an ErrRejected if the plan that was shown is for another epoch.
func (m *Move) CheckEpoch(shown int64) error {
	if m.BaseEpoch == shown {
		return nil
	}
	return fmt.Errorf("%w: the stream was moved, paused or resumed after the plan was made: "+
		"its epoch is %d, the plan is for epoch %d", ErrRejected, m.BaseEpoch, shown)
}

// Pause pauses the stream for length, or until Resume if length is 0. It returns when Move
// does.
func (c *Controller) Pause(ctx context.Context, by Request, length time.Duration) (Done, error) {
	until := bridge.Forever
	if length > 0 {
		t, err := c.now(ctx, nil) // by the clock of Redis, like the deadline of a request
		if err != nil {
			return Done{}, err
		}
		until = t.Add(length).UnixMilli()
	}
	return c.changeHere(ctx, bridge.KindPause, by, until)
}

// Resume ends a pause. It returns when Move does.
func (c *Controller) Resume(ctx context.Context, by Request) (Done, error) {
	return c.changeHere(ctx, bridge.KindResume, by, 0)
}

// changeHere requests a command that keeps the stream's position.
func (c *Controller) changeHere(ctx context.Context, kind bridge.Kind, by Request, pausedUntil int64) (Done, error) {
	from, err := c.Position(ctx)
	if err != nil {
		return Done{}, err
	}
	cmd := newCommand(kind, by, &from.Checkpoint)
	cmd.PausedUntil = pausedUntil
	return c.change(ctx, cmd, by, base{Checkpoint: from.Checkpoint, away: from.away})
}

func newCommand(kind bridge.Kind, by Request, from *bridge.Checkpoint) bridge.Command {
	id := strings.ToLower(rand.Text()[:6])
	return bridge.Command{ID: id, Kind: kind, BaseEpoch: from.Epoch, Who: by.Who, Reason: by.Reason}
}

// change requests the command for the stream at from.
func (c *Controller) change(ctx context.Context, cmd bridge.Command, by Request, from base) (Done, error) {
	if err := cmd.Validate(); err != nil {
		return Done{}, err
	}
	r := request{c: c, cmd: cmd, by: by, from: from}
	answer, err := r.apply(ctx)
	switch {
	case err != nil:
		return Done{}, err
	case !answer.Applied:
		return Done{}, &RefusedError{By: answer.By, Detail: answer.Detail, Expired: answer.Expired(), Restored: from.Zero()}
	}
	return Done{ID: cmd.ID, Answer: answer, PausedUntil: cmd.PausedUntil}, nil
}
