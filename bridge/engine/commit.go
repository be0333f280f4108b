package engine

import (
	"context"
	"time"

	"exportbridge/bridge"
)

// commit makes the batch and the position after it durable.
//
// In exactly-once mode the sink commits in one step: a crash before it leaves nothing of
// the batch, a crash after it leaves all. In at-least-once mode there are two steps: the
// sink acknowledges every event, then the checkpoint moves past the events. A crash before
// the end of the first step repeats at most these pages. A crash between the steps repeats
// all of these pages. A crash after the second step repeats nothing.
//
// If moved is set, commit also saves a cursor that only moved past empty pages.
func (f *follower) commit(hard context.Context, moved bool) error {
	b := f.batch
	f.batch = batch{}
	if b.pages > 0 {
		f.schedule.fetches.reset()
		f.blockedOn, f.schedule.suspect, f.schedule.outage = "", nil, nil
	}
	moved = moved && f.at.Cursor != f.committed.Cursor
	if !moved && !f.worthCommit(b) {
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
	if was, now := from.Overlap, next.Overlap; was != nil && !was.Done && now != nil && now.Done {
		f.known.Published = nil
		f.log.Warn("overlap re-read finished", "from", bridge.InstantText(now.From), "until", bridge.InstantText(now.Until),
			"dropped_as_known", now.Dropped)
	}
	f.schedule.sessions.reset()
	f.schedule.newEvents = f.run.account(f.e, f.found, receipt, b, next.PositionTime) || f.schedule.newEvents
	f.found = bridge.Observation{Times: f.found.Times[:0]}
	f.publishStatus()
	return nil
}

// heartbeat commits a heartbeat. It confirms ownership, and restores a store that lost the
// checkpoint.
func (f *follower) heartbeat(ctx context.Context) error {
	if f.at.Cursor != f.committed.Cursor {
		return f.commit(ctx, true)
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

// drainTimeout bounds the time that drain adds to an orderly stop.
const drainTimeout = 2 * time.Second

// drain ends an orderly run with a heartbeat, which restores a store that lost the
// checkpoint. Without the heartbeat, the next run reads a few empty pages again.
func (f *follower) drain(hard context.Context) {
	f.stopFetching()
	if f.session.ready {
		ctx, cancel := context.WithTimeout(hard, drainTimeout)
		defer cancel()
		if err := f.heartbeat(ctx); err != nil {
			f.log.Debug("final heartbeat failed", "error", err.Error())
		}
	}
	f.log.Info("stream stopped", "checkpoint", f.committed.Version.String(),
		"cursor", bridge.CursorHash(f.committed.Cursor), "published", f.run.totals.published)
}
