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

// mergeExactly: what the sink committed is the truth. The store is a copy, so
// one that is newer means that the sink lost data, or that the stream was
// delivered at least once before.
func (r *recovery) mergeExactly(ctx context.Context, k recovered) (bridge.Checkpoint, error) {
	if r.committed.Mode == bridge.ExactlyOnce && r.committed.Version.Compare(k.newest().Version) > 0 {
		k.store = r.committed.Checkpoint // this process saw it committed, whatever the store says
	}
	switch {
	case k.sink.Zero() && k.store.Zero() && k.storeErr != nil:
		return bridge.Checkpoint{}, bridge.StoreNeeded(k.storeErr)
	case k.storeErr != nil && !k.sink.Zero() && k.sink.Mode != bridge.ExactlyOnce:
		return bridge.Checkpoint{}, fmt.Errorf("the previous delivery was at-least-once, and the store is unavailable: %w", k.storeErr)
	case k.sink.Zero() && k.store.Zero():
		return r.startStream(ctx)
	case k.store.Version.Compare(k.sink.Version) > 0 || k.sink.Zero():
		return r.mergeAhead(ctx, k)
	case bridge.Diverged(k.sink, k.store):
		return bridge.Checkpoint{}, bridge.DivergedFault(k.sink, k.store)
	case k.sink.Mode != bridge.ExactlyOnce:
		return r.newEpoch(ctx, k, k.sink, "delivery changed to exactly-once")
	}
	return k.sink, nil
}

// mergeAhead decides when the store is newer than the sink.
func (r *recovery) mergeAhead(ctx context.Context, k recovered) (bridge.Checkpoint, error) {
	if k.store.Mode == bridge.AtLeastOnce {
		return r.newEpoch(ctx, k, k.store, "delivery changed to exactly-once")
	}
	have := "no checkpoint"
	if !k.sink.Zero() {
		have = "checkpoint " + k.sink.Version.String()
	}
	lost := fmt.Errorf("data lost in Kafka: it has %s, but %s of change %q was committed", have, k.store.Version, k.store.ChangeID())
	r.incidents.countLoss(r.e, &bridge.Fault{Code: bridge.CodeTopicLost, Err: lost})
	switch policy := r.e.cfg.OnCheckpointLoss; {
	case policy == lossStop:
		return bridge.Checkpoint{}, &bridge.Fault{
			Class: bridge.Permanent, Code: "checkpoint-behind", Reason: bridge.ReasonCheckpoint, Err: lost, HintCode: bridge.HintCheckpointBehind}
	case policy == lossRedis && bridge.Diverged(k.sink, k.store): // more than a loss: what was asked for since would be undone
		return bridge.Checkpoint{}, bridge.DivergedFault(k.sink, k.store)
	case policy == lossRedis || k.sink.Zero():
		r.log.Error("resuming from the store's checkpoint; later events that the topic holds are not published twice, earlier ones that Kafka lost are not published again", "error", lost.Error())
		if policy == lossRedis {
			found, err := r.session.findTopics(ctx)
			if err != nil {
				return bridge.Checkpoint{}, err
			}
			k.store.Topics = bridge.AsFound(k.store.Topics, found)
		}
		return r.newEpoch(ctx, k, r.e.overlapped(k.store), "Kafka lost its checkpoint")
	}
	r.log.Error("resuming from Kafka's checkpoint; later events may be published twice", "error", lost.Error())
	return r.newEpoch(ctx, k, k.sink, "Kafka lost data")
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

// mergeAtLeast: the store is the truth, the sink has a copy that may be a few
// seconds old. What this process knows from before counts too.
func (r *recovery) mergeAtLeast(ctx context.Context, k recovered) (bridge.Checkpoint, error) {
	if k.storeErr != nil {
		return bridge.Checkpoint{}, k.storeErr
	}
	c, from := k.store, k.store
	switch {
	case k.store.Zero():
		c = r.committed.Checkpoint
	case !r.committed.Zero() && !r.run.ours(k.store, r.committed.Checkpoint) && k.store.Epoch == r.committed.Epoch:
		return bridge.Checkpoint{}, bridge.DivergedFault(r.committed.Checkpoint, k.store)
	case r.committed.Version.Compare(k.store.Version) > 0:
		c = r.committed.Checkpoint
	}
	if !k.sink.Zero() && (c.Zero() || k.sink.Version.Compare(c.Version) > 0) {
		if bridge.Diverged(k.sink, c) {
			return bridge.Checkpoint{}, bridge.DivergedFault(k.sink, c)
		}
		c = k.sink
	}
	switch {
	case c.Zero():
		return r.startStream(ctx)
	case c.Mode != r.e.cfg.Mode:
		return r.newEpoch(ctx, k, c, "delivery changed to at-least-once")
	case from.Zero():
		r.log.Warn("the store lost the checkpoint; rewriting it", "checkpoint", c.Version.String())
	case c.Version != from.Version:
		r.log.Warn("the store rolled back to an older checkpoint; rewriting the newer one",
			"stored", from.Version.String(), "checkpoint", c.Version.String())
	default:
		return c, r.registerEpoch(ctx, k, c)
	}
	if err := r.registerEpoch(ctx, k, c); err != nil {
		return c, err
	}
	return c, r.advance(ctx, from, c)
}

// registerEpoch tells the sink of an epoch that it has not heard of. Every epoch of
// an at-least-once stream is in the sink, under its fencing, before it counts:
// else a session that was fenced could still begin one in the store, and a
// later exactly-once session would take it for the newest.
func (r *recovery) registerEpoch(ctx context.Context, k recovered, c bridge.Checkpoint) error {
	if !k.sink.Zero() && k.sink.Epoch == c.Epoch {
		return nil
	}
	_, err := r.publish(ctx, bridge.Batch{Checkpoint: c, From: c}, 0)
	return err
}

// newEpoch begins a new epoch at the position of c. Two histories that were
// written apart can so never be taken for one.
func (r *recovery) newEpoch(ctx context.Context, k recovered, c bridge.Checkpoint, why string) (bridge.Checkpoint, error) {
	next := r.session.stamp(c, bridge.KindReset, bridge.Version{Epoch: max(k.newest().Epoch, c.Epoch) + 1})
	if r.applying { // the command's own epoch follows
		c.Version = k.newest().Version
		return c, nil
	}
	next.Change = r.e.ownChange(c, why)
	r.log.Warn("new epoch", "why", why, "from", c.Version.String(), "was", string(c.Mode), "to", next.Version.String())
	return next, r.commitCheckpoint(ctx, k.store, next)
}

// ownChange records that the program itself begins an epoch at the position of
// c. Who asked for the change before it may still wait for the answer.
func (e *Engine) ownChange(c bridge.Checkpoint, why string) *bridge.Change {
	return &bridge.Change{
		ID: strings.ToLower(rand.Text()[:6]), Kind: bridge.KindReset, Who: e.cfg.Owner, Reason: why, From: c.Version, At: time.Now().UnixMilli(),
		After: c.LastCommand(), AcceptSource: c.PendingSource(),
	}
}
