package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
)

// recovered has the checkpoints that a session finds when it begins. A zero Checkpoint
// means that there is none.
type recovered struct {
	sink     bridge.Checkpoint // checkpoint of the sink
	store    bridge.Checkpoint // checkpoint of the store
	storeErr error             // why the store is not known, or nil
}

// newest returns the checkpoint with the greatest known version.
func (rec *recovered) newest() bridge.Checkpoint {
	if rec.sink.Zero() || rec.store.Version.Compare(rec.sink.Version) > 0 {
		return rec.store
	}
	return rec.sink
}

// resumption is the checkpoint that a session resumes from, and what happens first. The
// zero value begins a new stream.
type resumption struct {
	bridge.Checkpoint
	newEpoch string         // why a new epoch begins at the checkpoint, or empty
	newest   bridge.Version // version that the new epoch must exceed
	lost     error          // the loss in Kafka, or nil
	overlap  bool           // the topic may hold events after the checkpoint
}

// merge returns the checkpoint to resume from. committed is the last one of this process.
func (rec recovered) merge(c *Config, r *run, committed bridge.Checkpoint) (resumption, error) {
	if c.exactlyOnce() {
		return rec.mergeExactly(c, committed)
	}
	return rec.mergeAtLeast(c, r, committed)
}

// Resumption returns the checkpoint at which a new process resumes from those of the sink and the
// store, or the fault that blocks it. lost is the loss in the sink that OnCheckpointLoss decided.
func (c *Config) Resumption(sink, store bridge.Checkpoint) (at bridge.Checkpoint, lost, err error) {
	to, err := recovered{sink: sink, store: store}.merge(c, &run{}, bridge.Checkpoint{})
	return to.Checkpoint, to.lost, err
}

// CheckpointLost is the fault of a stream without a checkpoint whose topic holds its events.
func CheckpointLost() *bridge.Fault {
	return bridge.BlockHintf("checkpoint-lost", bridge.ReasonCheckpointLost,
		bridge.HintCheckpointLost, "the checkpoint is lost: the topic holds events of this stream")
}

// mergeExactly merges in exactly-once mode, in which the sink's checkpoint is
// authoritative. The store has a copy. A newer copy means that the sink lost data, or that
// the stream was in at-least-once mode before.
func (rec recovered) mergeExactly(cfg *Config, committed bridge.Checkpoint) (resumption, error) {
	if committed.Mode == bridge.ExactlyOnce && committed.Version.Compare(rec.newest().Version) > 0 {
		rec.store = committed // this process saw its commit, whatever the store has
	}
	switch {
	case rec.sink.Zero() && rec.store.Zero() && rec.storeErr != nil:
		return resumption{}, bridge.StoreNeeded(rec.storeErr)
	case rec.storeErr != nil && !rec.sink.Zero() && rec.sink.Mode != bridge.ExactlyOnce:
		return resumption{}, fmt.Errorf("the previous delivery was at-least-once, and the store is unavailable: %w",
			rec.storeErr)
	case rec.sink.Zero() && rec.store.Zero():
		return resumption{}, nil
	case rec.store.Version.Compare(rec.sink.Version) > 0 || rec.sink.Zero():
		return rec.mergeAhead(cfg.OnCheckpointLoss)
	case bridge.Diverged(rec.sink, rec.store):
		return resumption{}, bridge.DivergedFault(rec.sink, rec.store)
	case rec.sink.Mode != bridge.ExactlyOnce:
		return rec.resumeAt(rec.sink, "delivery changed to exactly-once"), nil
	}
	return resumption{Checkpoint: rec.sink}, nil
}

// resumeAt resumes at c in a new epoch, so that histories that were written separately are
// never taken for one history.
func (rec recovered) resumeAt(c bridge.Checkpoint, why string) resumption {
	return resumption{Checkpoint: c, newEpoch: why, newest: rec.newest().Version}
}

// mergeAhead decides when the store is newer than the sink.
func (rec recovered) mergeAhead(policy string) (to resumption, err error) {
	if rec.store.Mode == bridge.AtLeastOnce {
		return rec.resumeAt(rec.store, "delivery changed to exactly-once"), nil
	}
	have := "no checkpoint"
	if !rec.sink.Zero() {
		have = "checkpoint " + rec.sink.Version.String()
	}
	lost := fmt.Errorf("data lost in Kafka: it has %s, but %s (last change: %s) was committed", have, rec.store.Version,
		rec.store.ChangeText())
	switch {
	case policy == lossStop:
		return resumption{lost: lost}, &bridge.Fault{
			Class: bridge.Permanent, Code: "checkpoint-behind", Reason: bridge.ReasonCheckpoint,
			Err: lost, HintCode: bridge.HintCheckpointBehind}
	case policy == lossRedis && bridge.Diverged(rec.sink, rec.store): // the checkpoint in Redis would undo later commands
		return resumption{lost: lost}, bridge.DivergedFault(rec.sink, rec.store)
	case policy == lossRedis || rec.sink.Zero():
		to = rec.resumeAt(rec.store, "Kafka lost its checkpoint")
		to.overlap = true
	default:
		to = rec.resumeAt(rec.sink, "Kafka lost data")
	}
	to.lost = lost
	return to, nil
}

// mergeAtLeast merges in at-least-once mode, in which the store is authoritative. The
// sink's copy may be a few seconds old. The last checkpoint of this process counts too.
func (rec recovered) mergeAtLeast(cfg *Config, r *run, committed bridge.Checkpoint) (resumption, error) {
	if rec.storeErr != nil {
		return resumption{}, rec.storeErr
	}
	c := rec.store
	switch {
	case rec.store.Zero():
		c = committed
	case !committed.Zero() && !r.ours(rec.store, committed) && rec.store.Epoch == committed.Epoch:
		return resumption{}, bridge.DivergedFault(committed, rec.store)
	case committed.Version.Compare(rec.store.Version) > 0:
		c = committed
	}
	if !rec.sink.Zero() && (c.Zero() || rec.sink.Version.Compare(c.Version) > 0) {
		if bridge.Diverged(rec.sink, c) {
			return resumption{}, bridge.DivergedFault(rec.sink, c)
		}
		c = rec.sink
	}
	if !c.Zero() && c.Mode != cfg.Mode {
		return rec.resumeAt(c, "delivery changed to at-least-once"), nil
	}
	return resumption{Checkpoint: c}, nil
}

// forReset returns the checkpoint that a reset starts from while the session cannot resume:
// the newest one, or that of the sink if the histories diverged. The zero checkpoint means
// that committed is the newest.
func (rec recovered) forReset(committed bridge.Checkpoint) bridge.Checkpoint {
	newest := rec.newest()
	switch {
	case bridge.Diverged(rec.sink, newest) || bridge.Diverged(rec.sink, committed):
		return rec.sink
	case !committed.Zero() && newest.Version.Compare(committed.Version) <= 0:
		return bridge.Checkpoint{}
	}
	return newest
}

// resume makes the checkpoint durable from which the session resumes, and returns it.
func (s *stream) resume(ctx context.Context, rec recovered, to resumption) (bridge.Checkpoint, error) {
	c := to.Checkpoint
	switch {
	case c.Zero():
		return s.startStream(ctx)
	case to.newEpoch != "":
		return s.beginEpoch(ctx, rec.store, to)
	case s.e.cfg.exactlyOnce():
		return c, nil
	case rec.store.Zero():
		s.log.Warn("the store lost the checkpoint; rewriting it", "checkpoint", c.Version.String())
	case c.Version != rec.store.Version:
		s.log.Warn("the store rolled back to an older checkpoint; rewriting the newer one",
			"stored", rec.store.Version.String(), "checkpoint", c.Version.String())
	}
	// An epoch counts only once the sink has it, because the sink fences. Without this
	// rule, a fenced session could begin an epoch in the store, which a later exactly-once
	// session would take for the newest.
	if rec.sink.Zero() || rec.sink.Epoch != c.Epoch {
		if _, err := s.publish(ctx, bridge.Batch{Checkpoint: c, From: c}, 0); err != nil {
			return c, err
		}
	}
	if c.Version == rec.store.Version {
		return c, nil
	}
	return c, s.advance(ctx, rec.store, c)
}

// beginEpoch begins a new epoch. from is the checkpoint in the store.
func (s *stream) beginEpoch(ctx context.Context, from bridge.Checkpoint, to resumption) (bridge.Checkpoint, error) {
	c := to.Checkpoint
	switch {
	case to.lost == nil:
	case to.overlap:
		s.log.Error("resuming from the store's checkpoint; later events that the topic holds are not published twice, "+
			"earlier ones that Kafka lost are not published again", "error", to.lost.Error())
	default:
		s.log.Error("resuming from Kafka's checkpoint; later events may be published twice", "error", to.lost.Error())
	}
	if to.overlap {
		if s.e.cfg.OnCheckpointLoss == lossRedis {
			found, err := s.session.findTopics(ctx)
			if err != nil {
				return bridge.Checkpoint{}, err
			}
			c.Topics, c.Listing = bridge.AsFound(c.Topics, found), c.Listing.AsFound(found)
		}
		c = s.e.overlapped(c)
	}
	if s.e.applying { // the command begins its own epoch
		c.Version = to.newest
		return c, nil
	}
	next := s.session.stamp(c, bridge.KindReset, bridge.Version{Epoch: max(to.newest.Epoch, c.Epoch) + 1})
	next.Change = s.e.ownChange(c, to.newEpoch)
	next.Change.Unread = c.Unread() && to.lost == nil
	s.log.Warn("new epoch", "why", to.newEpoch, "from", c.Version.String(), "was", string(c.Mode),
		"to", next.Version.String())
	return next, s.commitCheckpoint(ctx, from, next)
}

// overlapped returns c with an overlap, or with a listing, which always reads the topic back.
// The store is a copy that may be behind, so the topic may hold events after c.
func (e *Engine) overlapped(c bridge.Checkpoint) bridge.Checkpoint {
	if !e.cfg.listing() {
		c.BeginOverlap(&c, e.overlapStart(&c, &c), c.Topics)
		return c
	}
	at := c.Position()
	if w, ok := at.Watermark(); ok && c.Listing == nil {
		c.Listing = bridge.BeginListing(w.At, c.Topics)
	}
	return c
}

// ownChange returns the change of an epoch that the program itself begins at the position
// of c. It names the last command, whose operator may still wait for the answer.
func (e *Engine) ownChange(c bridge.Checkpoint, why string) *bridge.Change {
	return &bridge.Change{
		ID: strings.ToLower(rand.Text()[:6]), Kind: bridge.KindReset, Who: e.cfg.Owner, Reason: why, From: c.Version,
		At:    time.Now().UnixMilli(),
		After: c.LastCommand(), AcceptSource: c.PendingSource(),
	}
}
