package engine

import (
	"context"
	"time"

	"exportbridge/bridge"
)

// commit makes the batch at hand and the position after it durable.
//
// Exactly once that is one step of the sink: a crash before it leaves nothing
// of the batch, one after it all. At least once there are two, in this order:
// the sink has acknowledged every event, then the checkpoint moves over them.
// A crash before the first is done repeats at most these pages; one between
// the two repeats exactly them; after the second nothing comes again.
func (f *follower) commit(hard context.Context) error {
	b := f.batch
	f.batch = batch{}
	if b.pages > 0 {
		f.schedule.fetches.reset()
		f.blockedOn, f.schedule.suspect, f.schedule.outage = "", nil, nil
	}
	if !f.worthCommit(b) {
		return nil
	}
	next := f.nextCheckpoint(bridge.KindData)
	next.RecentCursors = f.at.Recent()
	from := f.committed.Checkpoint
	receipt, err := f.publish(hard, bridge.Batch{Checkpoint: next, From: from}, b.pages)
	if err != nil {
		return err
	}
	if err := f.storeCheckpoint(hard, from, next); err != nil {
		return err
	}
	f.adopt(next)
	f.reportOverlap(from.Overlap)
	f.schedule.sessions.reset()
	f.schedule.newEvents = f.account(receipt, b) || f.schedule.newEvents
	f.publishStatus()
	return nil
}

// flush commits the empty pages since the last commit.
func (f *follower) flush(ctx context.Context) error {
	if !f.session.ready || f.at.Cursor == f.committed.Cursor {
		return nil
	}
	f.batch.due = true
	return f.commit(ctx)
}

// heartbeat commits a heartbeat: it confirms ownership and restores a store
// that lost the checkpoint.
func (f *follower) heartbeat(ctx context.Context) error {
	if f.at.Cursor != f.committed.Cursor {
		return f.flush(ctx)
	}
	next := f.nextCheckpoint(bridge.KindHeartbeat)
	state, fault := f.state, f.fault
	if err := f.record(ctx, next); err != nil {
		return err
	}
	f.schedule.sessions.reset()
	f.setState(state, fault)
	return nil
}

// drainTimeout bounds what an orderly stop adds to what is in flight.
const drainTimeout = 2 * time.Second

// drain ends an orderly run with a flush or a heartbeat, so that a store that
// lost the checkpoint has it again. Else the next run reads a few empty pages again.
func (f *follower) drain(hard context.Context) {
	f.stopFetching()
	if f.session.ready {
		ctx, cancel := context.WithTimeout(hard, drainTimeout)
		defer cancel()
		if err := f.heartbeat(ctx); err != nil {
			f.log.Warn("final commit failed", "error", err.Error())
		}
	}
	f.log.Info("stream stopped", "checkpoint", f.committed.Version.String(), "cursor", bridge.CursorHash(f.committed.Cursor), "published", f.run.totals.published)
}

// account reports a commit to the observer, counts it, and reports whether it has events.
func (s *stream) account(r bridge.Receipt, b batch) (published bool) {
	dead := 0
	for _, n := range r.DeadLettered {
		dead += n
	}
	s.run.totals.published += int64(r.Published)
	s.run.totals.deadLettered += int64(dead)
	s.run.totals.repeated += int64(s.found.Repeated)
	if s.run.totals.atBorder == 0 && s.found.AtBorder > 0 {
		s.log.Info("pages begin with items that ended the page before; they are dropped", "border_repeats", s.found.AtBorder)
	}
	s.run.totals.atBorder += int64(s.found.AtBorder)
	s.run.totals.keyless += int64(s.found.Keyless)
	if n := s.run.totals.keyless; !s.run.keylessLogged && s.keyless() {
		s.run.keylessLogged = true
		s.log.Warn("no event has a key", "events", n, "pointer", s.e.cfg.KeyPointer, "hint", s.e.cfg.words(bridge.HintKeyless))
	}
	s.run.totals.rate.add(time.Now(), r.Published+dead, s.committed.PositionTime)
	if dead > 0 && time.Since(s.run.deadLettersLogged) > time.Minute {
		s.run.deadLettersLogged = time.Now()
		s.log.Warn("items sent to the dead-letter topic", "items", r.DeadLettered, "in_this_run", s.run.totals.deadLettered,
			"hint", s.e.cfg.words(bridge.HintDeadLetters))
	}
	if s.found.Shared > 0 && time.Since(s.run.sharedLogged) > time.Minute {
		s.run.sharedLogged = time.Now()
		s.log.Warn("different items share an id", "items", s.found.Shared,
			"on_shared_id", s.e.cfg.OnSharedID, "hint", s.e.cfg.words(bridge.HintSharedID))
	}
	o := s.found
	o.What, o.Pages, o.Events, o.Receipt = bridge.ObserveCommit, b.pages, r.Published, r
	o.Unaccounted = max(0, b.events-r.Published-dead)
	s.e.observe(o)
	s.found = bridge.Observation{Times: o.Times[:0]}
	return r.Published+dead > 0
}
