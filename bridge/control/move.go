package control

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"exportbridge/bridge"
)

// Request says who wants a change, and why.
type Request struct {
	// Who and Reason are for the history; see bridge.CheckReason.
	Who, Reason string
	// Timeout is how long a running bridge has to acknowledge the change. When
	// it has passed the request is taken back.
	Timeout time.Duration
}

// Done is a change that was applied.
type Done struct {
	// ID is the request's.
	ID string
	// Answer says by whom, and where the stream is then.
	Answer bridge.Answer
	// PausedUntil is as in bridge.Checkpoint, of a pause.
	PausedUntil int64
}

// Move does what was planned. It returns when whoever runs the stream has
// acknowledged it, or, where nobody does, when it is done.
//
// A refusal is an ErrRefused, another request in the way a *bridge.PendingError.
// A *UnacknowledgedError says whether the request was taken back, a
// *StoreAwayError why nothing was tried while Redis is away. After any other
// error nothing was changed, or the error says that this is not known.
func (c *Controller) Move(ctx context.Context, m *Move, by Request) (Done, error) {
	cmd := newCommand(bridge.KindReset, by, &m.from.Checkpoint)
	cmd.Target = m.target
	return c.change(ctx, cmd, by.Timeout, m.from)
}

// CheckEpoch returns a *MovedError where the stream was moved since somebody
// was shown a plan for this epoch.
func (m *Move) CheckEpoch(shown int64) error {
	if m.BaseEpoch != shown {
		return &MovedError{Epoch: m.BaseEpoch, Planned: shown}
	}
	return nil
}

// Pause pauses the stream for a time, or without an end where that is 0. It
// ends as Move does.
func (c *Controller) Pause(ctx context.Context, by Request, length time.Duration) (Done, error) {
	from, err := c.Position(ctx)
	if err != nil {
		return Done{}, err
	}
	cmd := newCommand(bridge.KindPause, by, &from.Checkpoint)
	cmd.PausedUntil = bridge.Forever
	if length > 0 {
		// Redis's clock, as for a request's deadline. The bridge's own may
		// differ by a little.
		t, err := c.now(ctx, nil)
		if err != nil {
			return Done{}, err
		}
		cmd.PausedUntil = t.Add(length).UnixMilli()
	}
	return c.change(ctx, cmd, by.Timeout, base{Checkpoint: from.Checkpoint})
}

// Resume ends a pause. It ends as Move does.
func (c *Controller) Resume(ctx context.Context, by Request) (Done, error) {
	from, err := c.Position(ctx)
	if err != nil {
		return Done{}, err
	}
	return c.change(ctx, newCommand(bridge.KindResume, by, &from.Checkpoint), by.Timeout, base{Checkpoint: from.Checkpoint})
}

func newCommand(kind bridge.Kind, by Request, from *bridge.Checkpoint) bridge.Command {
	return bridge.Command{ID: strings.ToLower(rand.Text()[:6]), Kind: kind, BaseEpoch: from.Epoch, Who: by.Who, Reason: by.Reason}
}

// change has the command applied to the stream that is at from.
func (c *Controller) change(ctx context.Context, cmd bridge.Command, timeout time.Duration, from base) (Done, error) {
	r := request{c: c, cmd: cmd, timeout: timeout, from: from}
	answer, err := r.apply(ctx)
	switch {
	case err != nil:
		return Done{}, err
	case !answer.Applied:
		return Done{}, &RefusedError{By: answer.By, Detail: answer.Detail, Expired: answer.Expired(), Restored: from.Zero()}
	}
	return Done{ID: cmd.ID, Answer: answer, PausedUntil: cmd.PausedUntil}, nil
}
