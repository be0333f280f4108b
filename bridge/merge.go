package bridge

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge/internal/failpoint"
)

// recovered is what a session finds when it begins. Zero Checkpoints stand for
// none.
type recovered struct {
	sink     Checkpoint // the sink's
	store    Checkpoint // the store's
	storeErr error      // why the store is not known, if it is not
}

// newest returns the checkpoint with the greatest known version.
func (k *recovered) newest() Checkpoint {
	if k.sink.Zero() || k.store.Version.Compare(k.sink.Version) > 0 {
		return k.store
	}
	return k.sink
}

// diverged reports whether both changed in one epoch: two histories of the stream.
func diverged(c, other Checkpoint) bool {
	return !c.Zero() && !other.Zero() && c.Epoch == other.Epoch && c.ChangeID() != other.ChangeID()
}

// merge finds the checkpoint to go on from, and makes it durable where it is
// not what the delivery mode's truth already holds.
func (r *recovery) merge(ctx context.Context, k recovered) (Checkpoint, error) {
	if r.b.cfg.exactlyOnce() {
		return r.mergeExactly(ctx, k)
	}
	return r.mergeAtLeast(ctx, k)
}

// mergeExactly: what the sink committed is the truth. The store is a copy, so
// one that is newer means that the sink lost data, or that the stream was
// delivered at least once before.
func (r *recovery) mergeExactly(ctx context.Context, k recovered) (Checkpoint, error) {
	if r.at.cp.Mode == ExactlyOnce && r.at.cp.Version.Compare(k.newest().Version) > 0 {
		k.store = r.at.cp // this process saw it committed, whatever the store says
	}
	if failpoint.Broken(failpoint.BreakMirror) && !k.store.Zero() {
		return k.store, nil
	}
	switch {
	case k.sink.Zero() && k.store.Zero() && k.storeErr != nil:
		return Checkpoint{}, fmt.Errorf("no checkpoint in the sink, and the store is unavailable: %w", k.storeErr)
	case k.storeErr != nil && !k.sink.Zero() && k.sink.Mode != ExactlyOnce:
		return Checkpoint{}, fmt.Errorf("the previous delivery was at-least-once, and the store is unavailable: %w", k.storeErr)
	case k.sink.Zero() && k.store.Zero():
		return r.startStream(ctx)
	case k.store.Version.Compare(k.sink.Version) > 0 || k.sink.Zero():
		return r.mergeAhead(ctx, k)
	case diverged(k.sink, k.store):
		return Checkpoint{}, divergedFault(k.sink, k.store)
	case k.sink.Mode != ExactlyOnce:
		return r.newEpoch(ctx, k, k.sink, "delivery changed to exactly-once")
	}
	return k.sink, nil
}

// mergeAhead decides when the store is newer than the sink.
func (r *recovery) mergeAhead(ctx context.Context, k recovered) (Checkpoint, error) {
	if k.store.Mode == AtLeastOnce {
		return r.newEpoch(ctx, k, k.store, "delivery changed to exactly-once")
	}
	have := "no checkpoint"
	if !k.sink.Zero() {
		have = "checkpoint " + k.sink.Version.String()
	}
	lost := fmt.Errorf("data lost in Kafka: it has %s, but %s of change %q was committed", have, k.store.Version, k.store.ChangeID())
	switch policy := r.b.cfg.OnCheckpointLoss; {
	case policy == lossStop:
		return Checkpoint{}, &Fault{
			Class: Permanent, Code: "checkpoint-behind", Reason: ReasonCheckpoint, Err: lost,
			Advice: HintCheckpointBehind,
		}
	case policy == lossRedis && diverged(k.sink, k.store): // more than a loss: what was asked for since would be undone
		return Checkpoint{}, divergedFault(k.sink, k.store)
	case policy == lossRedis || k.sink.Zero():
		r.log.Error("resuming from the store's checkpoint; events that Kafka lost are not republished", "error", lost.Error())
		if policy == lossRedis {
			found, err := r.session.findTopics(ctx)
			if err != nil {
				return Checkpoint{}, err
			}
			k.store.Topics = asFound(k.store.Topics, found)
		}
		return r.newEpoch(ctx, k, k.store, "Kafka lost its checkpoint")
	}
	if failpoint.Broken(failpoint.BreakEpoch) {
		return k.sink, nil
	}
	r.log.Error("resuming from Kafka's checkpoint; later events may be published twice", "error", lost.Error())
	return r.newEpoch(ctx, k, k.sink, "Kafka lost data")
}

// mergeAtLeast: the store is the truth, the sink has a copy that may be a few
// seconds old. What this process knows from before counts too.
func (r *recovery) mergeAtLeast(ctx context.Context, k recovered) (Checkpoint, error) {
	if k.storeErr != nil {
		return Checkpoint{}, k.storeErr
	}
	c, from := k.store, k.store
	switch {
	case k.store.Zero():
		c = r.at.cp
	case !r.at.cp.Zero() && !r.run.ours(k.store, r.at.cp) && k.store.Epoch == r.at.cp.Epoch:
		return Checkpoint{}, divergedFault(r.at.cp, k.store)
	case r.at.cp.Version.Compare(k.store.Version) > 0:
		c = r.at.cp
	}
	if !k.sink.Zero() && (c.Zero() || k.sink.Version.Compare(c.Version) > 0) {
		if diverged(k.sink, c) {
			return Checkpoint{}, divergedFault(k.sink, c)
		}
		c = k.sink
	}
	switch {
	case c.Zero():
		return r.startStream(ctx)
	case c.Mode != r.b.cfg.Mode:
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
func (r *recovery) registerEpoch(ctx context.Context, k recovered, c Checkpoint) error {
	if !k.sink.Zero() && k.sink.Epoch == c.Epoch {
		return nil
	}
	_, err := r.publish(ctx, Batch{Checkpoint: c, From: c}, 0)
	return err
}

// newEpoch begins a new epoch at the position of c. Two histories that were
// written apart can so never be taken for one.
func (r *recovery) newEpoch(ctx context.Context, k recovered, c Checkpoint, why string) (Checkpoint, error) {
	next := r.session.stamp(c, KindReset, Version{Epoch: max(k.newest().Epoch, c.Epoch) + 1})
	if r.requests.applying { // the command's own epoch follows
		c.Version = k.newest().Version
		return c, nil
	}
	next.Change = r.b.ownChange(c, why)
	r.log.Warn("new epoch", "why", why, "from", c.Version.String(), "was", string(c.Mode), "to", next.Version.String())
	return next, r.commitCheckpoint(ctx, k.store, next)
}

// ownChange records that the program itself begins an epoch at the position of
// c. Who asked for the change before it may still wait for the answer.
func (b *Bridge) ownChange(c Checkpoint, why string) *Change {
	return &Change{
		ID: strings.ToLower(rand.Text()[:6]), Kind: KindReset, Who: b.cfg.Owner, Reason: why, From: c.Version, At: time.Now().UnixMilli(),
		After: c.asked(),
	}
}

// commitCheckpoint makes a checkpoint without events durable, where the delivery mode
// has its truth. from is what the store holds.
func (f *follower) commitCheckpoint(ctx context.Context, from, next Checkpoint) error {
	if _, err := f.publish(ctx, Batch{Checkpoint: next, From: f.at.cp}, 0); err != nil {
		return err
	}
	return f.storeCheckpoint(ctx, from, next)
}

func divergedFault(ours, theirs Checkpoint) *Fault {
	return &Fault{
		Class: Permanent, Code: "checkpoint", Reason: ReasonCheckpoint,
		Advice: HintTwoHistories,
		Err:    fmt.Errorf("diverged histories: the store is at %s of change %q, this stream at %s of change %q", theirs.Version, theirs.ChangeID(), ours.Version, ours.ChangeID()),
	}
}
