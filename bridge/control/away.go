package control

import (
	"context"
	"errors"
	"fmt"

	"exportbridge/bridge"
)

// applyAway applies the command while Redis is unreachable, which a running bridge could
// not receive: this process applies it if the group has no member. A bridge that starts
// meanwhile fences this process, or continues from its commit.
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

// granted is the inbox of a command of this process alone.
type granted struct{ bridge.Inbox }

// Claim implements bridge.Inbox.
func (granted) Claim(_ context.Context, _ bridge.Command, by bridge.Claim) (bridge.Claimed, error) {
	return bridge.Claimed{By: by.Session}, nil
}

// Answer implements bridge.Inbox.
func (granted) Answer(_ context.Context, _ bridge.Command, _ bridge.Claim, a bridge.Answer) (bridge.Answer, error) {
	return a, nil
}
