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
	stored, err := f.b.ports.Store.Load(ctx)
	switch {
	case errors.Is(err, ErrForeign):
		return &sessionError{foreign(err)}
	case err != nil && !errors.Is(err, ErrNoCheckpoint):
		return &sessionError{fmt.Errorf("load the checkpoint: %w", err)}
	}
	if f.cp.Zero() && !stored.Zero() {
		f.adopt(stored) // commands can be obeyed while the sink is away
	}
	kept, err := f.recoverSink(ctx)
	if err != nil && !errors.Is(err, ErrNoCheckpoint) {
		return &sessionError{fmt.Errorf("recover the sink: %w", err)}
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
	if err := f.restate(ctx); err != nil {
		return &sessionError{err}
	}
	if err := f.sameOrigin(); err != nil {
		return &sessionError{err}
	}
	f.ready, f.due = true, time.Now()
	switch until := f.b.cfg.Limits.Until; {
	case f.window() && f.cp.Drained:
		f.ended = "the window was done before"
	case until > 0 && f.cp.LastEventTime >= until:
		f.ended = "--until was reached before"
	}
	f.log.Info("session begins", "session", f.session, "checkpoint", c.Place.String(), "cursor", CursorHash(c.Cursor),
		"start", c.Origin.Start, "tail", len(c.Tail), "events", c.Events)
	if f.state != StateBlocked { // then the first commit ends it, or the next page
		f.set(StateRunning, nil)
	}
	return nil
}

// sinkTimeout is how long the sink's server is waited for in one go. In
// between commands are read and the state is told.
const sinkTimeout = 10 * time.Second

func (f *follower) recoverSink(ctx context.Context) (Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, sinkTimeout)
	defer cancel()
	return f.b.ports.Sink.Recover(ctx, nil)
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
	case !f.cp.Zero() && !f.ours(stored) && stored.Epoch == f.cp.Epoch:
		return Checkpoint{}, &Fault{
			Class: Permanent, Code: "checkpoint", Reason: ReasonCheckpoint,
			Hint: "two histories of one stream: exportbridge cursor history, then restart the bridge to go on from what is stored",
			Err:  fmt.Errorf("the store holds %s of change %q, this process was at %s of change %q", stored.Place, stored.ChangeID(), f.cp.Place, f.cp.ChangeID()),
		}
	case f.cp.Place.Compare(stored.Place) > 0:
		f.log.Warn("the store fell back to an older checkpoint, writing the newer one again",
			"stored", stored.Place.String(), "checkpoint", f.cp.Place.String())
		return f.cp, f.advance(ctx, stored, f.cp)
	}
	return stored, nil
}

// ours reports whether a stored checkpoint is one that this process went
// through or, being of an older epoch, what its own stream was before: epochs
// only grow, so the store fell back.
func (f *follower) ours(stored Checkpoint) bool {
	_, known := f.seenIDs[stored.ChangeID()]
	return known || stored.Epoch < f.cp.Epoch
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
	f.log.Info("a new stream begins", "start", f.b.cfg.Origin.describeStart())
	first := f.stamp(Checkpoint{Origin: f.b.cfg.Origin}, KindStart)
	first.Place = Place{}
	// Committed before the first request: "now" must not move by a restart.
	return first, f.advance(ctx, Checkpoint{}, first)
}

// restate takes changed settings into a checkpoint that nothing was read from
// yet, as after a first run with a wrong key. An earlier start is taken; a
// later one is not, since "now" is later at every restart and would skip what
// came in between.
func (f *follower) restate(ctx context.Context) error {
	have, want := f.cp.Origin, f.b.cfg.Origin
	if f.cp.Kind != KindStart && f.cp.Kind != KindHeartbeat || f.cp.Epoch > 0 || f.cp.Cursor != "" || f.cp.Events > 0 || f.cp.Pages > 0 {
		return nil
	}
	if want.End == 0 && want.Start > have.Start {
		f.log.Warn("EXPORT_START is later than where the stream has begun, and ignored", "begun", have.describeStart(),
			"hint", "exportbridge cursor reset --to-datetime TIME --execute")
		want.Start = have.Start
	}
	if want.Same(have) && want.Start == have.Start {
		return nil
	}
	next := f.stamp(f.cp, KindStart)
	next.Origin = want
	if err := f.advance(ctx, f.cp, next); err != nil {
		return err
	}
	f.adopt(next)
	return nil
}

func (o Origin) describeStart() string {
	if o.Start == 0 {
		return "the earliest event"
	}
	return time.UnixMilli(o.Start).UTC().Format(time.RFC3339Nano)
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
		Err:  fmt.Errorf("the checkpoint was made with %s, the configuration says %s", have, want),
	}
}

// String describes the origin for people.
func (o Origin) String() string {
	end := "no end"
	if o.End != 0 {
		end = "end " + time.UnixMilli(o.End).UTC().Format(time.RFC3339Nano)
	}
	events := "all events"
	if len(o.Events) > 0 {
		events = "events " + strings.Join(o.Events, ",")
	}
	return fmt.Sprintf("resource %s, %s, start %s, %s", o.Resource, events, o.describeStart(), end)
}
