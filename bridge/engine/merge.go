package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
)

// recovered is what a session finds when it begins. Zero Checkpoints stand for
// none.
type recovered struct {
	sink     bridge.Checkpoint // the sink's
	store    bridge.Checkpoint // the store's
	storeErr error             // why the store is not known, if it is not
}

// newest returns the checkpoint with the greatest known version.
func (k *recovered) newest() bridge.Checkpoint {
	if k.sink.Zero() || k.store.Version.Compare(k.sink.Version) > 0 {
		return k.store
	}
	return k.sink
}

// resumption is the checkpoint that a session resumes from, and what happens first. The
// zero value begins a new stream.
type resumption struct {
	bridge.Checkpoint
	newEpoch string         // why a new epoch begins at the checkpoint; empty if none does
	newest   bridge.Version // the new epoch is later
	lost     error          // what Kafka lost
	overlap  bool           // the topic may hold events after the checkpoint
}

// merge returns the checkpoint to resume from. committed is the last one of this process.
func (k recovered) merge(c *Config, r *run, committed bridge.Checkpoint) (resumption, error) {
	if c.exactlyOnce() {
		return k.mergeExactly(c, committed)
	}
	return k.mergeAtLeast(c, r, committed)
}

// mergeExactly: the sink's checkpoint is authoritative in exactly-once mode. The store
// has a copy: a newer one means that the sink lost data, or that the stream was in
// at-least-once mode before.
func (k recovered) mergeExactly(cfg *Config, committed bridge.Checkpoint) (resumption, error) {
	if committed.Mode == bridge.ExactlyOnce && committed.Version.Compare(k.newest().Version) > 0 {
		k.store = committed // this process saw it committed, whatever the store says
	}
	switch {
	case k.sink.Zero() && k.store.Zero() && k.storeErr != nil:
		return resumption{}, bridge.StoreNeeded(k.storeErr)
	case k.storeErr != nil && !k.sink.Zero() && k.sink.Mode != bridge.ExactlyOnce:
		return resumption{}, fmt.Errorf("the previous delivery was at-least-once, and the store is unavailable: %w",
			k.storeErr)
	case k.sink.Zero() && k.store.Zero():
		return resumption{}, nil
	case k.store.Version.Compare(k.sink.Version) > 0 || k.sink.Zero():
		return k.mergeAhead(cfg.OnCheckpointLoss)
	case bridge.Diverged(k.sink, k.store):
		return resumption{}, bridge.DivergedFault(k.sink, k.store)
	case k.sink.Mode != bridge.ExactlyOnce:
		return k.resumeAt(k.sink, "delivery changed to exactly-once"), nil
	}
	return resumption{Checkpoint: k.sink}, nil
}

// resumeAt resumes at c in a new epoch: two histories that were written apart are then
// never taken for one.
func (k recovered) resumeAt(c bridge.Checkpoint, why string) resumption {
	return resumption{Checkpoint: c, newEpoch: why, newest: k.newest().Version}
}

// mergeAhead decides when the store is newer than the sink.
func (k recovered) mergeAhead(policy string) (to resumption, err error) {
	if k.store.Mode == bridge.AtLeastOnce {
		return k.resumeAt(k.store, "delivery changed to exactly-once"), nil
	}
	have := "no checkpoint"
	if !k.sink.Zero() {
		have = "checkpoint " + k.sink.Version.String()
	}
	lost := fmt.Errorf("data lost in Kafka: it has %s, but %s of change %q was committed", have, k.store.Version,
		k.store.ChangeID())
	switch {
	case policy == lossStop:
		return resumption{lost: lost}, &bridge.Fault{
			Class: bridge.Permanent, Code: "checkpoint-behind", Reason: bridge.ReasonCheckpoint,
			Err: lost, HintCode: bridge.HintCheckpointBehind}
	case policy == lossRedis && bridge.Diverged(k.sink, k.store): // the store's would undo later commands
		return resumption{lost: lost}, bridge.DivergedFault(k.sink, k.store)
	case policy == lossRedis || k.sink.Zero():
		to = k.resumeAt(k.store, "Kafka lost its checkpoint")
		to.overlap = true
	default:
		to = k.resumeAt(k.sink, "Kafka lost data")
	}
	to.lost = lost
	return to, nil
}

// mergeAtLeast: the store is authoritative in at-least-once mode. The sink's copy may be
// a few seconds old. The last checkpoint of this process counts too.
func (k recovered) mergeAtLeast(cfg *Config, r *run, committed bridge.Checkpoint) (resumption, error) {
	if k.storeErr != nil {
		return resumption{}, k.storeErr
	}
	c := k.store
	switch {
	case k.store.Zero():
		c = committed
	case !committed.Zero() && !r.ours(k.store, committed) && k.store.Epoch == committed.Epoch:
		return resumption{}, bridge.DivergedFault(committed, k.store)
	case committed.Version.Compare(k.store.Version) > 0:
		c = committed
	}
	if !k.sink.Zero() && (c.Zero() || k.sink.Version.Compare(c.Version) > 0) {
		if bridge.Diverged(k.sink, c) {
			return resumption{}, bridge.DivergedFault(k.sink, c)
		}
		c = k.sink
	}
	if !c.Zero() && c.Mode != cfg.Mode {
		return k.resumeAt(c, "delivery changed to at-least-once"), nil
	}
	return resumption{Checkpoint: c}, nil
}

// forReset returns the checkpoint that a reset resumes from while nothing is decided:
// the newest one, or the sink's if the histories diverged; the zero one if committed
// is it.
func (k recovered) forReset(committed bridge.Checkpoint) bridge.Checkpoint {
	newest := k.newest()
	switch {
	case bridge.Diverged(k.sink, newest) || bridge.Diverged(k.sink, committed):
		return k.sink
	case !committed.Zero() && newest.Version.Compare(committed.Version) <= 0:
		return bridge.Checkpoint{}
	}
	return newest
}

// resume makes the checkpoint durable that the session resumes from, and returns it.
func (s *stream) resume(ctx context.Context, k recovered, to resumption) (bridge.Checkpoint, error) {
	c := to.Checkpoint
	switch {
	case c.Zero():
		return s.startStream(ctx)
	case to.newEpoch != "":
		return s.beginEpoch(ctx, k.store, to)
	case s.e.cfg.exactlyOnce():
		return c, nil
	case k.store.Zero():
		s.log.Warn("the store lost the checkpoint; rewriting it", "checkpoint", c.Version.String())
	case c.Version != k.store.Version:
		s.log.Warn("the store rolled back to an older checkpoint; rewriting the newer one",
			"stored", k.store.Version.String(), "checkpoint", c.Version.String())
	}
	// Each epoch is in the sink, under its fencing, before it counts. Otherwise a fenced
	// session could begin an epoch in the store, and a later exactly-once session would
	// take that for the newest.
	if k.sink.Zero() || k.sink.Epoch != c.Epoch {
		if _, err := s.publish(ctx, bridge.Batch{Checkpoint: c, From: c}, 0); err != nil {
			return c, err
		}
	}
	if c.Version == k.store.Version {
		return c, nil
	}
	return c, s.advance(ctx, k.store, c)
}

// beginEpoch begins a new epoch. from is what the store holds.
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
	if s.e.applying { // the command's own epoch follows
		c.Version = to.newest
		return c, nil
	}
	next := s.session.stamp(c, bridge.KindReset, bridge.Version{Epoch: max(to.newest.Epoch, c.Epoch) + 1})
	next.Change = s.e.ownChange(c, to.newEpoch)
	s.log.Warn("new epoch", "why", to.newEpoch, "from", c.Version.String(), "was", string(c.Mode),
		"to", next.Version.String())
	return next, s.commitCheckpoint(ctx, from, next)
}

// overlapped returns c with an overlap: the store is a copy that may be behind, so that
// the topic may hold events after c.
func (e *Engine) overlapped(c bridge.Checkpoint) bridge.Checkpoint {
	switch {
	case e.cfg.listing() && c.Listing == nil:
		at := c.Position()
		if w, ok := at.Watermark(); ok {
			c.Listing = bridge.BeginListing(w.At, c.Topics)
		}
		return c
	case e.cfg.listing() || e.ports.Published == nil: // the listing knows where to look
		return c
	}
	c.BeginOverlap(&c, e.overlapStart(&c, &c), c.Topics)
	return c
}

// ownChange records that the program itself begins an epoch at the position of
// c. Who asked for the change before it may still wait for the answer.
func (e *Engine) ownChange(c bridge.Checkpoint, why string) *bridge.Change {
	return &bridge.Change{
		ID: strings.ToLower(rand.Text()[:6]), Kind: bridge.KindReset, Who: e.cfg.Owner, Reason: why, From: c.Version,
		At:    time.Now().UnixMilli(),
		After: c.LastCommand(), AcceptSource: c.PendingSource(),
	}
}
