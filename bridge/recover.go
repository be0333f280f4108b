package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// recover begins a session: it makes the sink ready, finds the checkpoint to
// go on from, and checks that it belongs to what the configuration asks for.
func (f *follower) recover(ctx context.Context) error {
	f.b.waits()
	defer f.b.busy()
	f.session = rand.Text()[:12]
	kept, err := f.b.ports.Sink.Recover(ctx)
	if err != nil && !errors.Is(err, ErrNoCheckpoint) {
		return &sessionError{fmt.Errorf("recover the sink: %w", err)}
	}
	stored, err := f.b.ports.Store.Load(ctx)
	switch {
	case errors.Is(err, ErrForeign):
		return &sessionError{foreign(err)}
	case err != nil && !errors.Is(err, ErrNoCheckpoint):
		return &sessionError{fmt.Errorf("load the checkpoint: %w", err)}
	}
	c, err := f.merge(ctx, kept, stored)
	if err != nil {
		return &sessionError{err}
	}
	if c.Place != f.cp.Place || c.Cursor != f.cp.Cursor {
		f.visited.clear()
	}
	f.adopt(c)
	if f.began < 0 {
		f.began = c.Events
	}
	if err := f.sameOrigin(); err != nil {
		return &sessionError{err}
	}
	f.ready, f.blockedOn, f.due = true, "", time.Now()
	if f.window() && c.Drained {
		f.ended = "the window was done before"
	}
	f.log.Info("session begins", "session", f.session, "checkpoint", c.Place.String(), "cursor", CursorHash(c.Cursor),
		"start", c.Origin.Start, "tail", len(c.Tail), "events", c.Events)
	f.set(StateRunning, nil)
	return nil
}

// merge finds the newest checkpoint of what the store holds and what this
// process knows from before, and makes the store hold it. At least once, the
// sink keeps none.
func (f *follower) merge(ctx context.Context, _, stored Checkpoint) (Checkpoint, error) {
	switch {
	case stored.Zero() && f.cp.Zero():
		return f.start(ctx)
	case stored.Zero():
		f.log.Warn("the store lost the checkpoint, writing it again", "checkpoint", f.cp.Place.String())
		return f.cp, f.advance(ctx, stored, f.cp)
	case f.cp.Place.Compare(stored.Place) > 0 && f.ours(stored):
		f.log.Warn("the store fell back to an older checkpoint, writing the newer one again",
			"stored", stored.Place.String(), "checkpoint", f.cp.Place.String())
		return f.cp, f.advance(ctx, stored, f.cp)
	}
	return stored, nil
}

// ours reports whether a stored checkpoint is one this process went through.
func (f *follower) ours(stored Checkpoint) bool {
	_, known := f.seenIDs[stored.ChangeID()]
	return known
}

// start begins a new stream, unless the topic already holds events of it:
// then the checkpoint was lost, and starting over would publish all again.
func (f *follower) start(ctx context.Context) (Checkpoint, error) {
	holds, err := f.b.ports.Sink.Holds(ctx)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("look for earlier events of the stream: %w", err)
	}
	if holds {
		return Checkpoint{}, &Fault{
			Class: Permanent, Code: "checkpoint-lost", Reason: ReasonCheckpointLost,
			Hint: "say where to go on: exportbridge cursor reset --to-datetime TIME (or --to-latest, --to-earliest, --to-cursor) --execute",
			Err:  errors.New("the store has no checkpoint, but the topic already holds events of this stream"),
		}
	}
	first := f.stamp(Checkpoint{Origin: f.b.cfg.Origin}, KindStart)
	first.Place = Place{}
	// Committed before the first request: "now" must not move by a restart.
	return first, f.advance(ctx, Checkpoint{}, first)
}

// sameOrigin refuses to follow a cursor with settings it was not made for.
func (f *follower) sameOrigin() error {
	have, want := f.cp.Origin, f.b.cfg.Origin
	if have.Same(want) {
		return nil
	}
	return &Fault{
		Class: Permanent, Code: "source", Reason: ReasonSource,
		Hint: "restore the setting, use another stream name, or accept the new one with exportbridge cursor reset",
		Err:  fmt.Errorf("the checkpoint was made with %s, the configuration says %s", have.describe(), want.describe()),
	}
}

func (o Origin) describe() string {
	end := "no end"
	if o.End != 0 {
		end = "end " + time.UnixMilli(o.End).UTC().Format(time.RFC3339Nano)
	}
	events := "all events"
	if len(o.Events) > 0 {
		events = "events " + strings.Join(o.Events, ",")
	}
	return fmt.Sprintf("resource %s, %s, %s", o.Resource, events, end)
}
