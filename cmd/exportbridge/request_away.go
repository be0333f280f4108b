package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/cursorstore"
)

// isAway reports whether an error of the store says that Redis does not answer,
// and not that what was asked for is not there, or wrong.
func isAway(err error) bool {
	fault, ok := errors.AsType[*bridge.Fault](err)
	return ok && fault.Class != bridge.Permanent && !errors.Is(err, bridge.ErrForeign)
}

// awayNote says why a plan is made without Redis.
func (p *position) awayNote() string {
	note := "Redis does not answer, the position is from the checkpoint topic"
	if p.stream.Engine.Mode != bridge.ExactlyOnce {
		note += ", which may be some seconds behind"
	}
	return note + ": " + cut(p.away.Error(), 120)
}

// now returns the time by Redis's clock, on which all who take part agree, and
// by that of this machine while Redis is away.
func (p *position) now(ctx context.Context) (time.Time, error) {
	if p.away != nil {
		return time.Now(), nil
	}
	t, err := p.store.Now(ctx)
	if isAway(err) {
		return time.Now(), nil
	}
	return t, hinted(err)
}

// applyAlone applies a command while Redis is away. Nobody can have a running
// bridge do it then: this process takes the stream if nobody has it, in which
// case Kafka alone decides. A bridge that starts meanwhile fences this process,
// or goes on from what it has committed.
func (r *request) applyAlone(ctx context.Context, p *position, cmd bridge.Command) (bridge.Answer, error) {
	failed := func(hint, format string, values ...any) (bridge.Answer, error) {
		return bridge.Answer{}, &exitError{code: exitFailed, hint: hint, err: fmt.Errorf("Redis does not answer, and "+format+": %w", append(values, p.away)...)}
	}
	const start = "start Redis, or correct REDIS_URL, and the same command again"
	if p.stream.Engine.Mode != bridge.ExactlyOnce {
		return failed(start, "at least once Redis holds the position")
	}
	if p.kafkaIsHidden() {
		_, err := p.unowned(ctx)
		return bridge.Answer{}, err
	}
	asking, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	members, err := p.stream.Kafka.Ownership().Members(asking)
	if err != nil {
		return failed("exportbridge check", "whether a bridge runs the stream is not known (%v)", err)
	}
	if len(members) > 0 {
		return failed(start+"; or stop that process: then the command does it by itself",
			"only through it can a running bridge be asked: %s runs stream %s", members[0], p.store.Name())
	}
	answer, err := r.applyOffline(ctx, p, cmd, granted{p.store})
	if errors.Is(err, bridge.ErrFenced) {
		return failed("exportbridge cursor show, to see whether it was applied", "a bridge has started meanwhile (%v)", err)
	}
	return answer, hinted(err)
}

// granted is the inbox of a command that nobody but this process knows.
type granted struct{ *cursorstore.Store }

// Claim implements bridge.Inbox.
func (granted) Claim(_ context.Context, _ bridge.Command, by bridge.Claim) (bridge.Claimed, error) {
	return bridge.Claimed{By: by.Session}, nil
}

// Answer implements bridge.Inbox.
func (granted) Answer(context.Context, bridge.Command, bridge.Answer) error { return nil }
