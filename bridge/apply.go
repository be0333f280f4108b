package bridge

import (
	"context"
	"errors"
	"fmt"
)

// Apply applies one command to a stream without a running owner, and answers it
// through Ports.Inbox. It begins a session as a running bridge does, which
// fences any process that still assumes ownership; ErrFenced means that this
// session was fenced or lost its claim: an owner will answer. Ports.Source is not used. A problem
// that the command cannot repair, and a server that does not respond before ctx
// ends, are errors; then nothing has changed, or a repeated command detects the
// outcome.
func Apply(ctx context.Context, cfg Config, ports Ports, cmd Command) (Answer, error) {
	ports.Source = noSource{}
	b, err := New(cfg, ports)
	if err != nil {
		return Answer{}, err
	}
	f := newFollower(b, nil)
	f.requests.applying = true
	f.ownership.mirror = startMirror(b, f.log)
	defer f.ownership.mirror.stop()
	for n := 1; ; n++ {
		err := f.recover(ctx)
		fault := faultOf(err)
		repairable := fault.Reason == ReasonCheckpointLost || fault.Reason == ReasonCheckpoint || fault.Reason == ReasonSource || fault.Code == CodeTopicLost
		if err == nil || f.session.open && repairable {
			f.schedule.blockedOn = fault.Reason
			if err = f.requests.applyCommand(ctx, cmd); err == nil && f.requests.answered != nil {
				return *f.requests.answered, nil
			}
			fault = faultOf(err)
		}
		switch {
		case err == nil:
			return Answer{}, fmt.Errorf("command %s was withdrawn, or the store is unavailable", cmd.ID)
		case fault.Class == Permanent || ctx.Err() != nil || errors.Is(err, ErrFenced):
			fault.Hint = f.b.cfg.hintOf(fault) // nobody else has the words
			return Answer{}, fmt.Errorf("apply command %s: %w", cmd.ID, err)
		}
		f.session.ready = false
		Sleep(ctx, backoff(n, f.b.cfg.RetryMax))
	}
}

// noSource is a Source for Apply, which reads nothing.
type noSource struct{}

func (noSource) Fetch(context.Context, Position) (*Page, error) { return nil, errNoSource }
func (noSource) Decode(*Page) error                             { return errNoSource }

var errNoSource = errors.New("no source: Apply reads nothing")
