package engine

import (
	"context"
	"errors"
	"fmt"

	"exportbridge/bridge"
)

// Apply applies one command to a stream without a running owner, and answers it through
// Ports.Inbox. It begins a session as a running bridge does, which fences any process that
// still assumes ownership. It never uses Ports.Source. ErrFenced means that this session
// was fenced or lost its claim: an owner will answer. Apply also returns an error for a
// problem that the command cannot repair, or if a server does not respond before ctx ends.
// After an error nothing has changed, or a repeated command detects the outcome.
func Apply(ctx context.Context, cfg Config, ports Ports, cmd bridge.Command) (bridge.Answer, error) {
	// Apply reads no pages, so no cursor is rejected.
	ports.Source, cfg.OnInvalidCursor = struct{ bridge.Source }{}, invalidStop
	e, err := New(cfg, ports)
	if err != nil {
		return bridge.Answer{}, err
	}
	e.applying = true
	f := newFollower(e, nil)
	f.mirror = startMirror(e, f.log)
	defer f.mirror.stop()
	for n := 1; ; n++ {
		err := f.recover(ctx)
		fault := bridge.FaultOf(err)
		repairable := fault.Reason == bridge.ReasonCheckpointLost || fault.Reason == bridge.ReasonCheckpoint ||
			fault.Reason == bridge.ReasonSource || fault.Code == bridge.CodeTopicLost
		if err == nil || f.session.open && repairable {
			f.blockedOn = fault.Reason
			if err = f.applyCommand(ctx, cmd); err == nil && f.requests.answered != nil {
				return *f.requests.answered, nil
			}
			fault = bridge.FaultOf(err)
		}
		switch {
		case err == nil:
			return bridge.Answer{}, fmt.Errorf("command %s was withdrawn, or the store is unavailable", cmd.ID)
		case fault.Class == bridge.Permanent || ctx.Err() != nil || errors.Is(err, bridge.ErrFenced):
			fault.Hint = f.e.cfg.hintOf(fault) // the caller does not know the hints of cfg
			return bridge.Answer{}, fmt.Errorf("apply command %s: %w", cmd.ID, err)
		}
		f.session.ready = false
		bridge.Sleep(ctx, backoff(n, f.e.cfg.RetryMax))
	}
}
