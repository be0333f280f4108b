package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// recover begins a session. It recovers the sink, which ends earlier sessions. Then it
// determines the checkpoint to resume from, and verifies that it matches the configuration.
func (f *follower) recover(ctx context.Context) error {
	defer f.e.watchdog.wait()()
	f.session = newSession(f.e)
	if err := f.restore(ctx, f.ownership.confirm); err != nil {
		return &sessionError{err}
	}
	if err := f.verify(ctx); err != nil {
		return &sessionError{f.keepLoss(ctx, err)}
	}
	f.session.ready, f.schedule.due = true, time.Now()
	switch until := f.e.cfg.Limits.Until; {
	case f.e.cfg.window() && f.committed.Drained:
		f.run.end(f.e, "the window was done before: it ended", f.committed.EndedEmpty)
	case until > 0 && f.committed.LastEventTime >= until:
		f.run.ended = f.e.cfg.words(bridge.HintUntilBefore)
	}
	f.log.Info("session started", "session", f.session.id, "checkpoint", f.committed.Version.String(),
		"cursor", bridge.CursorHash(f.committed.Cursor),
		"start", f.committed.Origin.Start, "tail", len(f.committed.Tail), "events", f.committed.Events)
	if f.state != bridge.StateBlocked { // a blocked stream stays blocked until a page or a commit
		f.setState(bridge.StateRunning, nil)
	}
	return nil
}

// restore determines the checkpoint to resume from and adopts it.
func (s *stream) restore(ctx context.Context, confirm func(context.Context) error) error {
	if err := s.loadStore(ctx); err != nil {
		return err
	}
	rec, err := s.session.ask(ctx, confirm)
	if err != nil {
		return err
	}
	s.mirror.begin(rec.store)
	to, err := rec.merge(&s.e.cfg, &s.run, s.committed.Checkpoint)
	if to.lost != nil {
		s.incidents.countLoss(s.e, &bridge.Fault{Code: bridge.CodeTopicLost, Err: to.lost})
	}
	var c bridge.Checkpoint
	if err == nil {
		c, err = s.resume(ctx, rec, to)
	}
	// A contradiction persists in the next session. After another error, the next session
	// may get further.
	contradict := err != nil && rec.storeErr == nil && bridge.FaultOf(err).Class == bridge.Permanent
	s.session.restored = err == nil || contradict
	if err != nil {
		switch {
		case s.session.open && s.e.cfg.exactlyOnce():
			c := rec.forReset(s.committed.Checkpoint)
			if to.lost != nil && c.Version == rec.store.Version { // a reset may keep this position
				c = s.e.overlapped(c)
			}
			if !c.Zero() {
				s.rejoin(c)
			}
		case contradict && !s.e.cfg.exactlyOnce() && s.committed.Mode != s.e.cfg.Mode && !rec.store.Zero():
			s.rejoin(rec.store) // commands apply only to a checkpoint of this mode
		case !contradict && !s.e.cfg.exactlyOnce() && rec.sink.Epoch > s.committed.Epoch:
			// A command at committed would begin an epoch that the sink already has. The
			// store may be ahead of both, so it is read first.
			s.rejoin(rec.sink)
			s.stale = true
		}
		if contradict {
			s.rival = rec.store
		}
		return err
	}
	s.rejoin(c)
	if on := s.blockedOn; on == bridge.ReasonCheckpointLost || on == bridge.ReasonCheckpoint {
		s.blockedOn = "" // the checkpoint exists again, and nothing contradicts it
	}
	if s.e.cfg.exactlyOnce() && !rec.sink.Zero() && c.Version == rec.sink.Version &&
		(rec.store.Zero() || c.Version != rec.store.Version) {
		s.mirror.offer(c)
	}
	if s.run.began < 0 {
		s.run.began = c.Events
	}
	return nil
}

// verify checks that the checkpoint belongs to the configured export and topic, and that
// the topics hold the events that it implies.
func (s *stream) verify(ctx context.Context) error {
	if err := s.updateOrigin(ctx); err != nil {
		return err
	}
	if fault := bridge.OriginFault(&s.committed.Checkpoint, s.e.cfg.Origin, s.e.cfg.Topic); fault != nil {
		return fault
	}
	if err := s.session.checkRequest(ctx, s.committed.Checkpoint); err != nil {
		return err
	}
	return s.checkTopics(ctx)
}

// ask reads the checkpoints of the sink and the store. In exactly-once mode it reads the
// store first: the sink then has the same checkpoint, or has lost it. Read later, the store
// could have a commit of the next owner. In at-least-once mode the store is authoritative.
// It is read when no other session can move it unnoticed any more.
func (s *session) ask(ctx context.Context, confirm func(context.Context) error) (rec recovered, err error) {
	exactly := s.e.cfg.exactlyOnce()
	limit := sinkTimeout
	if exactly {
		limit = sinkTimeoutExactly
		rec.store, rec.storeErr = s.e.loadStored(ctx)
	}
	end, err := s.e.cfg.Starts.begin(ctx)
	if err != nil {
		return rec, err
	}
	defer end()
	asking, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	rec.sink, err = s.e.ports.Sink.Recover(asking, confirm)
	if err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) {
		return rec, fmt.Errorf("recover the sink: %w", err)
	}
	s.open = true
	if !exactly {
		rec.store, rec.storeErr = s.e.loadStored(ctx)
	}
	if errors.Is(rec.storeErr, bridge.ErrForeign) {
		return rec, foreign(rec.storeErr)
	}
	return rec, nil
}

// loadStore reads the store before the sink, since commands are applied in at-least-once mode
// while the sink is unreachable.
func (s *stream) loadStore(ctx context.Context) error {
	if !s.committed.Zero() && !s.stale {
		return nil
	}
	return s.readStore(ctx)
}

// readStore adopts the store's checkpoint if it is newer. In at-least-once mode the store is
// authoritative; in exactly-once mode it is not read.
func (s *stream) readStore(ctx context.Context) error {
	if s.e.cfg.exactlyOnce() {
		return nil
	}
	stored, err := s.e.loadStored(ctx)
	switch {
	case errors.Is(err, bridge.ErrForeign):
		return foreign(err)
	case err != nil:
		return err
	case stored.Version.Compare(s.committed.Version) > 0 || s.committed.Zero() && !stored.Zero():
		s.rejoin(stored)
	}
	s.stale = s.stale && stored.Version.Compare(s.committed.Version) < 0 // committed is the sink's
	return nil
}

// storeTimeout bounds the wait for the store if the sink suffices.
const storeTimeout = 2 * time.Second

// loadStored returns the stored checkpoint, the zero one if there is none.
func (e *Engine) loadStored(ctx context.Context) (bridge.Checkpoint, error) {
	if e.cfg.exactlyOnce() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, storeTimeout)
		defer cancel()
	}
	stored, err := e.ports.Store.Load(ctx)
	if err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) {
		return bridge.Checkpoint{}, fmt.Errorf("load the checkpoint: %w", err)
	}
	return stored, nil
}

// The maximum durations of one Sink.Recover. Between two attempts the state is shown and,
// in at-least-once mode, commands are read. In exactly-once mode an overloaded cluster may
// take ten seconds for each commit, and another producer's open transaction delays reading
// by up to its timeout.
const (
	sinkTimeout        = 10 * time.Second
	sinkTimeoutExactly = 45 * time.Second
)

// startStream begins a new stream, unless the topic already holds events of the stream.
// Then the checkpoint was lost, and starting over would publish all events again.
func (s *stream) startStream(ctx context.Context) (bridge.Checkpoint, error) {
	asking, cancel := context.WithTimeout(ctx, sinkTimeoutExactly)
	defer cancel()
	holds, err := s.e.ports.Sink.Holds(asking)
	if err != nil {
		return bridge.Checkpoint{}, fmt.Errorf("search for earlier events: %w", err)
	}
	if holds {
		return bridge.Checkpoint{}, CheckpointLost()
	}
	s.log.Info("starting a new stream", "start", s.e.cfg.Origin.StartText())
	first := s.session.stamp(bridge.Checkpoint{Origin: s.e.cfg.Origin}, bridge.KindStart, bridge.Version{})
	if s.e.applying { // the settings of a command's process are not the stream's
		first.Origin.Request = ""
	}
	// This is committed before the first request, so that a restart does not move "now".
	return first, s.commitCheckpoint(ctx, bridge.Checkpoint{}, first)
}

// updateOrigin writes changed settings into a checkpoint from which nothing was read yet,
// as after a first run with a wrong key. It accepts an earlier start, but no later one:
// with "now", events between two starts would be skipped. Windows cannot start at the
// earliest event. A command changes nothing, because the settings of its process are not the
// stream's.
func (s *stream) updateOrigin(ctx context.Context) error {
	have, want := s.committed.Origin, s.e.cfg.Origin
	if !s.committed.Unread() || s.e.applying {
		return nil
	}
	if want.End == 0 && want.Start > have.Start && (have.Start != 0 || !s.e.cfg.listing()) {
		if !s.e.cfg.RelativeStart {
			s.log.Warn("configured start ignored: it is later than the stream's start", "begun", have.StartText(),
				"hint", s.e.cfg.words(bridge.HintStartLater))
		}
		want.Start = have.Start
	}
	if want.Same(have) && want.Start == have.Start && want.Request == have.Request {
		return nil
	}
	next := s.committed.Checkpoint
	next.Origin, next.Listing = want, nil // before the stamp, which sets the format
	return s.record(ctx, s.session.stamp(next, bridge.KindStart, s.committed.Version.Next()))
}
