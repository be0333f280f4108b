package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// recover begins a session: it recovers the sink, which ends earlier sessions,
// then determines the checkpoint to resume from and verifies that it matches
// the configuration.
func (f *follower) recover(ctx context.Context) error {
	defer f.e.watchdog.wait()()
	f.session = newSession(f.e)
	r := recovery{stream: &f.stream, incidents: &f.incidents, confirm: f.ownership.confirm, applying: f.requests.applying}
	if err := r.restore(ctx); err != nil {
		return &sessionError{err}
	}
	if err := r.verify(ctx); err != nil {
		return &sessionError{err}
	}
	f.session.ready, f.schedule.due = true, time.Now()
	switch until := f.e.cfg.Limits.Until; {
	case f.e.cfg.window() && f.committed.Drained:
		f.run.end(f.e, "the window was done before: it ended", f.committed.EndedEmpty)
	case until > 0 && f.committed.LastEventTime >= until:
		f.run.ended = f.e.cfg.words(bridge.HintUntilBefore)
	}
	f.log.Info("session started", "session", f.session.id, "checkpoint", f.committed.Version.String(), "cursor", bridge.CursorHash(f.committed.Cursor),
		"start", f.committed.Origin.Start, "tail", len(f.committed.Tail), "events", f.committed.Events)
	if f.state != bridge.StateBlocked { // then the first commit ends it, or the next page
		f.setState(bridge.StateRunning, nil)
	}
	return nil
}

// recovery is the beginning of one session of a stream: it alone may take a
// checkpoint for the stream's that the loop has not committed.
type recovery struct {
	*stream
	incidents *incidents
	confirm   func(context.Context) error // that the stream is still ours
	applying  bool                        // the session is for one command only
}

// restore determines the checkpoint to resume from and adopts it.
func (r *recovery) restore(ctx context.Context) error {
	if err := r.loadStore(ctx); err != nil {
		return err
	}
	k, err := r.loadBoth(ctx)
	if err != nil {
		return err
	}
	r.mirror.begin(k.store)
	merge := r.mergeAtLeast // finds the checkpoint to go on from, and makes it durable where it is not
	if r.e.cfg.exactlyOnce() {
		merge = r.mergeExactly
	}
	c, err := merge(ctx, k)
	contradict := err != nil && k.storeErr == nil && bridge.FaultOf(err).Class == bridge.Permanent // else the next session may get further
	r.session.restored = err == nil || contradict
	if err != nil {
		switch {
		case r.session.open && r.e.cfg.exactlyOnce():
			r.adoptForReset(k)
		case contradict && !r.e.cfg.exactlyOnce() && r.committed.Mode != r.e.cfg.Mode && !k.store.Zero():
			r.rejoin(k.store) // no command can be applied to what was of the other mode
		}
		if contradict {
			r.rival = k.store
		}
		return err
	}
	r.rejoin(c)
	if on := r.blockedOn; on == bridge.ReasonCheckpointLost || on == bridge.ReasonCheckpoint {
		r.blockedOn = "" // it is there again, and nothing contradicts it
	}
	if r.e.cfg.exactlyOnce() && !k.sink.Zero() && c.Version == k.sink.Version && (k.store.Zero() || c.Version != k.store.Version) {
		r.mirror.offer(c)
	}
	if r.run.began < 0 {
		r.run.began = c.Events
	}
	return nil
}

// adoptForReset adopts what a reset goes on from, in a new epoch, while k decides
// nothing: the newest checkpoint, or, of two histories, the sink's.
func (r *recovery) adoptForReset(k recovered) {
	newest := k.newest()
	switch {
	case bridge.Diverged(k.sink, newest) || bridge.Diverged(k.sink, r.committed.Checkpoint):
		newest = k.sink
	case !r.committed.Zero() && newest.Version.Compare(r.committed.Version) <= 0:
		return
	}
	r.rejoin(newest)
}

// verify checks that the checkpoint is of what the configuration asks for, and
// that the topics hold what it implies.
func (r *recovery) verify(ctx context.Context) error {
	if err := r.updateOrigin(ctx); err != nil {
		return err
	}
	if fault := bridge.OriginFault(&r.committed.Checkpoint, r.e.cfg.Origin, r.e.cfg.Topic); fault != nil {
		return fault
	}
	if err := r.checkRequest(ctx); err != nil {
		return err
	}
	return r.checkTopics(ctx)
}

// loadBoth asks the sink and the store what they have. The store of an exactly-once
// stream is asked first: it is a copy, so what it holds then is in the sink
// too, and if not, the sink has lost it. Asked later, it could show a commit of
// the next owner. At least once it is the truth, and asked when nobody else
// can move it unnoticed.
func (r *recovery) loadBoth(ctx context.Context) (k recovered, err error) {
	if r.e.cfg.exactlyOnce() {
		k.store, k.storeErr = r.load(ctx)
	}
	k.sink, err = r.recoverSink(ctx)
	if err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) {
		return k, fmt.Errorf("recover the sink: %w", err)
	}
	r.session.open = true
	if !r.e.cfg.exactlyOnce() {
		k.store, k.storeErr = r.load(ctx)
	}
	if errors.Is(k.storeErr, bridge.ErrForeign) {
		return k, foreign(k.storeErr)
	}
	return k, nil
}

// loadStore asks the store before the sink. At least once it is the truth, and
// commands can be obeyed while the sink is away.
func (r *recovery) loadStore(ctx context.Context) error {
	if r.e.cfg.exactlyOnce() || !r.committed.Zero() && !r.stale {
		return nil
	}
	stored, err := r.load(ctx)
	switch {
	case errors.Is(err, bridge.ErrForeign):
		return foreign(err)
	case err != nil:
		return err
	case stored.Version.Compare(r.committed.Version) > 0 || r.committed.Zero() && !stored.Zero():
		r.rejoin(stored)
	}
	r.stale = false
	return nil
}

// storeTimeout bounds the wait for the store where the sink suffices.
const storeTimeout = 2 * time.Second

// load returns the stored checkpoint, the zero one where there is none.
func (r *recovery) load(ctx context.Context) (bridge.Checkpoint, error) {
	if r.e.cfg.exactlyOnce() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, storeTimeout)
		defer cancel()
	}
	stored, err := r.e.ports.Store.Load(ctx)
	if err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) {
		return bridge.Checkpoint{}, fmt.Errorf("load the checkpoint: %w", err)
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

func (r *recovery) recoverSink(ctx context.Context) (bridge.Checkpoint, error) {
	limit := sinkTimeout
	if r.e.cfg.exactlyOnce() {
		limit = sinkTimeoutExactly
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return r.e.ports.Sink.Recover(ctx, r.confirm)
}

// startStream begins a new stream, unless the topic already holds events of it:
// then the checkpoint was lost, and starting over would publish all again.
func (r *recovery) startStream(ctx context.Context) (bridge.Checkpoint, error) {
	asking, cancel := context.WithTimeout(ctx, sinkTimeoutExactly)
	defer cancel()
	holds, err := r.e.ports.Sink.Holds(asking)
	if err != nil {
		return bridge.Checkpoint{}, fmt.Errorf("search for earlier events: %w", err)
	}
	if holds {
		return bridge.Checkpoint{}, &bridge.Fault{
			Class: bridge.Permanent, Code: "checkpoint-lost", Reason: bridge.ReasonCheckpointLost,
			HintCode: bridge.HintCheckpointLost,
			Err:      errors.New("the checkpoint is lost: the topic holds events of this stream"),
		}
	}
	r.log.Info("starting a new stream", "start", r.e.cfg.Origin.StartText())
	first := r.session.stamp(bridge.Checkpoint{Origin: r.e.cfg.Origin}, bridge.KindStart, bridge.Version{})
	if r.applying { // the machine of a command does not request the list
		first.Origin.Request = ""
	}
	// Committed before the first request: "now" must not move by a restart.
	return first, r.commitCheckpoint(ctx, bridge.Checkpoint{}, first)
}

// updateOrigin takes changed settings into a checkpoint that nothing was read from
// yet, as after a first run with a wrong key. An earlier start is taken; a later
// one is not: "now" would skip what came between restarts. Those of a command's machine
// are not the stream's.
func (r *recovery) updateOrigin(ctx context.Context) error {
	have, want := r.committed.Origin, r.e.cfg.Origin
	if !r.committed.Unread() || r.applying {
		return nil
	}
	if want.End == 0 && want.Start > have.Start {
		if !r.e.cfg.RelativeStart {
			r.log.Warn("configured start ignored: it is later than the stream's start", "begun", have.StartText(), "hint", r.e.cfg.words(bridge.HintStartLater))
		}
		want.Start = have.Start
	}
	if want.Same(have) && want.Start == have.Start && want.Request == have.Request {
		return nil
	}
	next := r.session.stamp(r.committed.Checkpoint, bridge.KindStart, r.committed.Version.Next())
	next.Origin = want
	return r.record(ctx, next)
}
