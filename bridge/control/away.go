package control

import (
	"context"
	"errors"

	"exportbridge/bridge"
)

// applyAway applies the command while Redis is unreachable. A running bridge
// cannot receive it then, so this process applies it if no member owns the stream.
// A bridge that starts meanwhile fences this process, or continues from what this
// process has committed.
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
		return stuck(&OwnerUnknownError{Err: err})
	case len(members) > 0:
		return stuck(&OwnedError{Stream: r.c.Stream(), By: members[0]})
	}
	answer, err := r.applyOffline(ctx, r.cmd, granted{r.c.ports.Inbox})
	if errors.Is(err, bridge.ErrFenced) {
		return stuck(&TakenOverError{Err: err})
	}
	return answer, err
}

// granted is the inbox of a command that only this process has.
type granted struct{ bridge.Inbox }

// Claim implements bridge.Inbox.
func (granted) Claim(_ context.Context, _ bridge.Command, by bridge.Claim) (bridge.Claimed, error) {
	return bridge.Claimed{By: by.Session}, nil
}

// Answer implements bridge.Inbox.
func (granted) Answer(_ context.Context, _ bridge.Command, _ bridge.Claim, a bridge.Answer) (bridge.Answer, error) {
	return a, nil
}
