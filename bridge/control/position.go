package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"exportbridge/bridge"
)

// Position is a stream's committed checkpoint.
type Position struct {
	bridge.Checkpoint
	// Note says why the checkpoint is from the checkpoint topic; empty if it is from Redis.
	Note string
	away error // why Redis is unreachable, or nil
}

// Position returns the stream's checkpoint from Redis. If Redis has none or is unreachable,
// the checkpoint is from the checkpoint topic. If neither has one, the error is a
// *NoCheckpointError.
func (c *Controller) Position(ctx context.Context) (Position, error) {
	stored, err := c.load(ctx)
	if err == nil {
		return Position{Checkpoint: stored}, nil
	}
	if bridge.FaultOf(err).Class == bridge.Permanent {
		return Position{}, err // a setting is wrong
	}
	newest, logErr := c.newest(ctx)
	switch {
	case logErr != nil:
		return Position{}, neither(err, logErr)
	case newest.Zero():
		return Position{}, err
	}
	p := Position{Checkpoint: newest, Note: "from the checkpoint topic: " + cut(err.Error(), 120)}
	if isAway(err) {
		p.away = err
	}
	return p, nil
}

// load returns the checkpoint in Redis. If there is none, the error has the live status and
// the known streams.
func (c *Controller) load(ctx context.Context) (bridge.Checkpoint, error) {
	stored, err := c.ports.Store.Load(ctx)
	if !errors.Is(err, bridge.ErrNoCheckpoint) {
		return stored, err
	}
	e := &NoCheckpointError{Stream: c.Stream()}
	if live, alive, err := c.Live(ctx); err == nil && alive {
		e.Live = &live
		return stored, e
	}
	if c.ports.Directory != nil {
		known, _ := c.ports.Directory.Streams(ctx) // the streams are only a hint
		e.Known = slices.DeleteFunc(known, func(name string) bool { return name == e.Stream })
	}
	return stored, e
}

// newest returns the newest checkpoint in the checkpoint topic, the zero value if
// there is none.
func (c *Controller) newest(ctx context.Context) (bridge.Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	return bridge.Newest(ctx, c.ports.Log)
}

// base is the checkpoint before a change.
type base struct {
	bridge.Checkpoint
	away error // why Redis is unreachable, or nil
}

// base returns the checkpoint in Redis. If Redis lost it or is unreachable, base returns
// that of the checkpoint topic. Without any, it returns the zero value, which can block a
// bridge.
func (c *Controller) base(ctx context.Context) (base, error) {
	stored, err := c.ports.Store.Load(ctx)
	b := base{Checkpoint: stored}
	switch {
	case isAway(err):
		b.away = err
	case !errors.Is(err, bridge.ErrNoCheckpoint):
		return b, err
	}
	var logErr error
	b.Checkpoint, logErr = c.newest(ctx)
	switch {
	case logErr != nil && b.away != nil:
		return b, neither(err, logErr)
	case logErr != nil:
		return b, fmt.Errorf("redis has no checkpoint of stream %s, and the checkpoint topic cannot be read: %w",
			c.Stream(), logErr)
	case b.away != nil && b.Zero():
		return b, also(err, "the checkpoint topic has no checkpoint of stream "+c.Stream())
	}
	return b, nil
}

// neither returns the error of Redis with that of the checkpoint topic. After an interruption, the
// first says nothing: the topic may have the checkpoint.
func neither(err, logErr error) error {
	if errors.Is(logErr, context.Canceled) {
		return logErr
	}
	return also(err, "the checkpoint topic cannot be read either: "+logErr.Error())
}

// also adds a detail to an error.
func also(err error, what string) error { return fmt.Errorf("%w; %s", err, what) }

// cut shortens a text to n characters.
func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
