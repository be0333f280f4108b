package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/internal/failpoint"
)

// advanceRetryMax is the longest wait between two tries to reach the store.
const advanceRetryMax = 5 * time.Second

// commit makes the batch at hand and head durable.
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
		f.schedule.blockedOn, f.schedule.suspect, f.schedule.outage = "", nil, nil
	}
	if !f.worthCommit(b) {
		return nil
	}
	next := f.nextCheckpoint(bridge.KindData)
	next.RecentCursors = f.at.Recent()
	from := f.committed.Checkpoint
	if failpoint.Broken(failpoint.BreakAdopt) {
		f.adopt(next)
	}
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
	f.account(receipt, b)
	return nil
}

// storeCheckpoint advances the store from from to the checkpoint just
// published: at least once this is the commit itself, exactly once a copy that
// the mirror writes.
func (f *follower) storeCheckpoint(ctx context.Context, from, next bridge.Checkpoint) error {
	if f.e.cfg.exactlyOnce() {
		f.ownership.mirror.offer(next)
		return nil
	}
	return f.advance(ctx, from, next)
}

// publish commits a batch that has so many pages.
func (f *follower) publish(ctx context.Context, batch bridge.Batch, pages int) (bridge.Receipt, error) {
	if err := batch.Checkpoint.Validate(); err != nil { // no session could go on from it
		return bridge.Receipt{}, &sessionError{foreign(fmt.Errorf("commit checkpoint %s: %w: %w", batch.Checkpoint.Version, bridge.ErrForeign, err))}
	}
	began := time.Now()
	f.e.watchdog.wait()
	receipt, err := f.e.ports.Sink.Publish(ctx, batch)
	f.e.watchdog.work()
	took := time.Since(began)
	if err != nil {
		f.session.open = false
		err = &sessionError{fmt.Errorf("publish %d pages up to checkpoint %s: %w", pages, batch.Checkpoint.Version, err)}
	}
	if err == nil && f.session.topics != nil && receipt.Topics != nil {
		f.session.topics = f.session.carryOver(f.session.topics, receipt.Topics, f.committed.Version)
	}
	f.observePublish(took, pages, err)
	return receipt, err
}

// observePublish reports the outcome of a batch and adapts the batch size to
// it.
func (f *follower) observePublish(took time.Duration, pages int, err error) {
	o := bridge.Observation{What: bridge.ObservePublish, Took: took, Code: "ok"}
	if err != nil {
		o.Code = bridge.FaultOf(err).Code
	}
	f.e.observe(o)
	f.sizer.committed(pages, took, err)
	if f.e.cfg.exactlyOnce() {
		f.e.observe(bridge.Observation{What: bridge.ObserveTransaction, Took: took, Code: transactionCode(err)})
	}
}

func transactionCode(err error) string {
	switch {
	case err == nil:
		return "committed"
	case errors.Is(err, bridge.ErrFenced):
		return "fenced"
	}
	return "unknown" // the next session finds out
}

// advance moves the stored checkpoint and retries while the store is
// unreachable: after a lost response the outcome is unknown, and only repeating
// the same step settles it.
func (f *follower) advance(ctx context.Context, from, to bridge.Checkpoint) error {
	for n := 1; ; n++ {
		began := time.Now()
		f.e.watchdog.wait()
		err := f.e.ports.Store.Advance(ctx, from, to)
		f.e.watchdog.work()
		o := bridge.Observation{What: bridge.ObserveCheckpoint, Took: time.Since(began), Code: "ok"}
		switch {
		case err == nil:
			f.e.observe(o)
			return nil
		case errors.Is(err, bridge.ErrConflict):
			o.Code = "conflict"
			f.e.observe(o)
			stored, loadErr := f.e.ports.Store.Load(ctx)
			if loadErr != nil || n > triesBeforeBlock || !f.run.rolledBack(stored, f.committed.Checkpoint, to) {
				return &sessionError{fmt.Errorf("advance checkpoint to %s: %w", to.Version, err)}
			}
			from = stored
			continue
		case errors.Is(err, bridge.ErrForeign):
			return &sessionError{foreign(err)}
		}
		o.Code = "error"
		f.e.observe(o)
		if ctx.Err() != nil {
			return &sessionError{fmt.Errorf("advance checkpoint to %s: %w", to.Version, ctx.Err())}
		}
		fault := *bridge.FaultOf(err)
		fault.Err = fmt.Errorf("advance checkpoint to %s: %w", to.Version, err)
		if fault.Class == bridge.Permanent { // waiting does not help: block, and say so
			return &sessionError{&fault}
		}
		f.schedule.due = time.Now().Add(backoff(n, advanceRetryMax))
		f.setState(bridge.StateBackoff, &fault)
		f.e.sleepUntil(ctx, f.schedule.due)
	}
}

// foreign is the fault for a foreign value in the store. The store's own hint,
// which names the key, has precedence.
func foreign(err error) *bridge.Fault {
	if known, ok := errors.AsType[*bridge.Fault](err); ok && known.Reason == bridge.ReasonCheckpoint && known.Hint != "" {
		f := *known
		f.Err = err
		return &f
	}
	return &bridge.Fault{Class: bridge.Permanent, Code: "foreign", Reason: bridge.ReasonCheckpoint, Err: err, Advice: bridge.HintForeign}
}

// adopt makes a durable checkpoint the current one.
func (f *follower) adopt(c bridge.Checkpoint) {
	f.progress.adopt(c)
	f.run.seenIDs[c.ChangeID()] = struct{}{}
	f.run.committed = time.Now()
}

// rejoin adopts a checkpoint that may come from another process.
func (f *follower) rejoin(c bridge.Checkpoint) {
	if c.Epoch != f.committed.Epoch || c.ChangeID() != f.committed.ChangeID() { // who began it may have accepted another topic
		f.forgetRewind()
	}
	f.at = f.committed.Rejoin(c)
	f.adopt(c)
}

// nextCheckpoint is the checkpoint of the next commit, in this epoch.
func (f *follower) nextCheckpoint(kind bridge.Kind) bridge.Checkpoint {
	c := f.session.stamp(f.at.Checkpoint, kind, f.committed.Version.Next())
	c.MarksEnd = f.at.KnowsEnd(&f.e.rules)
	return c
}

// flush commits the empty pages between the last commit and head.
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
	if err := f.commitCheckpoint(ctx, f.committed.Checkpoint, next); err != nil {
		return err
	}
	f.adopt(next)
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

// account reports a commit to the observer and the status.
func (f *follower) account(r bridge.Receipt, b batch) {
	dead := 0
	for _, n := range r.DeadLettered {
		dead += n
	}
	f.schedule.newEvents = f.schedule.newEvents || r.Published+dead > 0
	f.run.totals.published += int64(r.Published)
	f.run.totals.deadLettered += int64(dead)
	f.run.totals.repeated += int64(f.found.Repeated)
	if f.run.totals.atBorder == 0 && f.found.AtBorder > 0 {
		f.log.Info("pages begin with items that ended the page before; they are dropped", "border_repeats", f.found.AtBorder)
	}
	f.run.totals.atBorder += int64(f.found.AtBorder)
	f.run.totals.keyless += int64(f.found.Keyless)
	if n := f.run.totals.keyless; !f.run.keylessLogged && f.keyless() {
		f.run.keylessLogged = true
		f.log.Warn("no event has a key", "events", n, "pointer", f.e.cfg.KeyPointer, "hint", f.e.cfg.words(bridge.HintKeyless))
	}
	f.run.totals.rate.add(time.Now(), r.Published+dead, f.committed.PositionTime)
	if dead > 0 && time.Since(f.run.deadLettersLogged) > time.Minute {
		f.run.deadLettersLogged = time.Now()
		f.log.Warn("items sent to the dead-letter topic", "items", r.DeadLettered, "in_this_run", f.run.totals.deadLettered,
			"hint", f.e.cfg.words(bridge.HintDeadLetters))
	}
	if f.found.Shared > 0 && time.Since(f.run.sharedLogged) > time.Minute {
		f.run.sharedLogged = time.Now()
		f.log.Warn("different items share an id", "items", f.found.Shared,
			"on_shared_id", f.e.cfg.OnSharedID, "hint", f.e.cfg.words(bridge.HintSharedID))
	}
	o := f.found
	o.What, o.Pages, o.Events, o.Receipt = bridge.ObserveCommit, b.pages, r.Published, r
	o.Unaccounted = max(0, b.events-r.Published-dead)
	f.e.observe(o)
	f.found = bridge.Observation{Times: o.Times[:0]}
	f.publishStatus()
}
