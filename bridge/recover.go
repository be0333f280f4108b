package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// recover begins a session: it makes the sink ready, which ends whatever an
// earlier session left, and only then looks for the checkpoint to go on from
// and checks that it belongs to what the configuration asks for.
func (f *follower) recover(ctx context.Context) error {
	f.b.waits()
	defer f.b.busy()
	f.session, f.open = rand.Text()[:12], false
	f.there, f.topics = nil, nil
	if err := f.look(ctx); err != nil {
		return &sessionError{err}
	}
	k, err := f.find(ctx)
	if err != nil {
		return &sessionError{err}
	}
	f.mirror.begin(k.stored)
	c, err := f.merge(ctx, k)
	if err != nil {
		if f.open && f.exactlyOnce() {
			f.standBy(k)
		}
		f.rival = k.stored
		return &sessionError{err}
	}
	if Broken(BreakMemory) && !f.cp.Zero() {
		c = f.cp
	}
	if c.Place != f.cp.Place || c.Cursor != f.cp.Cursor {
		f.visited.begin(c.Trail)
		f.blank.clear()
	}
	f.adopt(c)
	if f.blockedOn == ReasonCheckpointLost {
		f.blockedOn = "" // it is there again
	}
	if f.exactlyOnce() && !k.kept.Zero() && c.Place == k.kept.Place && (k.stored.Zero() || c.Place != k.stored.Place) {
		f.mirror.offer(c)
	}
	if f.began < 0 {
		f.began = c.Events
	}
	if err := f.restate(ctx); err != nil {
		return &sessionError{err}
	}
	if err := f.sameOrigin(); err != nil {
		return &sessionError{err}
	}
	if err := f.sameTopics(ctx); err != nil {
		return &sessionError{err}
	}
	f.ready, f.due = true, time.Now()
	switch until := f.b.cfg.Limits.Until; {
	case f.window() && f.cp.Drained:
		f.ended = "the window was done before: it ended " + howEnded(f.cp.EndedEmpty)
	case until > 0 && f.cp.LastEventTime >= until:
		f.ended = "--until was reached before"
	}
	f.log.Info("session begins", "session", f.session, "checkpoint", f.cp.Place.String(), "cursor", CursorHash(f.cp.Cursor),
		"start", f.cp.Origin.Start, "tail", len(f.cp.Tail), "events", f.cp.Events)
	if f.state != StateBlocked { // then the first commit ends it, or the next page
		f.set(StateRunning, nil)
	}
	return nil
}

// standBy adopts what a reset goes on from, in a new epoch, while k decides
// nothing: the newest checkpoint, or, of two histories, the sink's.
func (f *follower) standBy(k knowledge) {
	newest := k.newest()
	switch {
	case apart(k.kept, newest) || apart(k.kept, f.cp):
		f.adopt(k.kept)
	case f.cp.Zero() || newest.Place.Compare(f.cp.Place) > 0:
		f.adopt(newest)
	}
}

// find asks the sink and the store what they have. The store of an exactly-once
// stream is asked first: it is a copy, so what it holds then is in the sink
// too, and if not, the sink has lost it. Asked later, it could show a commit of
// the next owner. At least once it is the truth, and asked when nobody else
// can move it unnoticed.
func (f *follower) find(ctx context.Context) (k knowledge, err error) {
	if f.exactlyOnce() {
		k.stored, k.away = f.load(ctx)
	}
	k.kept, err = f.recoverSink(ctx)
	if err != nil && !errors.Is(err, ErrNoCheckpoint) {
		return k, fmt.Errorf("recover the sink: %w", err)
	}
	f.open = true
	if !f.exactlyOnce() {
		k.stored, k.away = f.load(ctx)
	}
	if errors.Is(k.away, ErrForeign) {
		return k, foreign(k.away)
	}
	return k, nil
}

// exactlyOnce reports whether the sink commits the checkpoint. Otherwise the
// store does.
func (f *follower) exactlyOnce() bool { return f.b.cfg.Mode == ExactlyOnce }

// look asks the store before the sink. At least once it is the truth, and
// commands can be obeyed while the sink is away.
func (f *follower) look(ctx context.Context) error {
	if f.exactlyOnce() || !f.cp.Zero() && !f.stale {
		return nil
	}
	stored, err := f.load(ctx)
	switch {
	case errors.Is(err, ErrForeign):
		return foreign(err)
	case err != nil:
		return err
	case stored.Place.Compare(f.cp.Place) > 0 || f.cp.Zero() && !stored.Zero():
		f.visited.begin(stored.Trail)
		f.blank.clear()
		f.adopt(stored)
	}
	f.stale = false
	return nil
}

// storeTimeout is how long the store is waited for where the sink can do
// without it.
const storeTimeout = 2 * time.Second

// load returns the stored checkpoint, the zero one where there is none.
func (f *follower) load(ctx context.Context) (Checkpoint, error) {
	if f.exactlyOnce() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, storeTimeout)
		defer cancel()
	}
	stored, err := f.b.ports.Store.Load(ctx)
	if err != nil && !errors.Is(err, ErrNoCheckpoint) {
		return Checkpoint{}, fmt.Errorf("load the checkpoint: %w", err)
	}
	return stored, nil
}

// How long the sink's server is waited for in one go. In between the state is
// told and, at least once, commands are read. Exactly once a limping cluster
// may take ten seconds for each commit, and an open transaction of somebody
// else holds up the reading for as long as its time-out.
const (
	sinkTimeout        = 10 * time.Second
	sinkTimeoutExactly = 45 * time.Second
)

func (f *follower) recoverSink(ctx context.Context) (Checkpoint, error) {
	limit := sinkTimeout
	if f.exactlyOnce() {
		limit = sinkTimeoutExactly
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f.b.ports.Sink.Recover(ctx, f.owned)
}

// begin begins a new stream, unless the topic already holds events of it:
// then the checkpoint was lost, and starting over would publish all again.
func (f *follower) begin(ctx context.Context) (Checkpoint, error) {
	asking, cancel := context.WithTimeout(ctx, sinkTimeoutExactly)
	defer cancel()
	holds, err := f.b.ports.Sink.Holds(asking)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("look for earlier events of the stream: %w", err)
	}
	if holds {
		return Checkpoint{}, &Fault{
			Class: Permanent, Code: "checkpoint-lost", Reason: ReasonCheckpointLost,
			Hint: "say where to go on: exportbridge cursor reset --to-datetime TIME (or --to-latest, --to-earliest, --to-cursor) --execute",
			Err:  errors.New("there is no checkpoint any more, but the topic already holds events of this stream"),
		}
	}
	f.log.Info("a new stream begins", "start", f.b.cfg.Origin.describeStart())
	first := f.stamp(Checkpoint{Origin: f.b.cfg.Origin}, KindStart)
	first.Place = Place{}
	// Committed before the first request: "now" must not move by a restart.
	return first, f.secure(ctx, Checkpoint{}, first)
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
	if err := f.secure(ctx, f.cp, next); err != nil {
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
	if have, want := f.cp.Topic, f.b.cfg.Topic; have != want && have != "" && want != "" {
		return &Fault{
			Class: Permanent, Code: "source", Reason: ReasonSource,
			Hint: "another deployment? Give each its own stream name, or its own KAFKA_CHECKPOINT_TOPIC, BRIDGE_GROUP and CURSOR_PREFIX. To move the stream: exportbridge cursor reset",
			Err:  fmt.Errorf("the checkpoint is of topic %s, the configuration says %s", have, want),
		}
	}
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
