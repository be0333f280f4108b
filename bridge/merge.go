package bridge

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

// knowledge is what a session finds when it begins. Zero Checkpoints stand for
// none.
type knowledge struct {
	kept   Checkpoint // the sink's
	stored Checkpoint // the store's
	away   error      // why the store is not known, if it is not
}

// newest returns the checkpoint at the greatest place that is known.
func (k *knowledge) newest() Checkpoint {
	if k.kept.Zero() || k.stored.Place.Compare(k.kept.Place) > 0 {
		return k.stored
	}
	return k.kept
}

// apart reports whether both changed in one epoch: two histories of the stream.
func apart(c, other Checkpoint) bool {
	return !c.Zero() && !other.Zero() && c.Epoch == other.Epoch && c.ChangeID() != other.ChangeID()
}

// merge finds the checkpoint to go on from, and makes it durable where it is
// not what the delivery mode's truth already holds.
func (f *follower) merge(ctx context.Context, k knowledge) (Checkpoint, error) {
	if f.exactlyOnce() {
		return f.mergeExactly(ctx, k)
	}
	return f.mergeAtLeast(ctx, k)
}

// mergeExactly: what the sink committed is the truth. The store is a copy, so
// one that is newer means that the sink lost data, or that the stream was
// delivered at least once before.
func (f *follower) mergeExactly(ctx context.Context, k knowledge) (Checkpoint, error) {
	if f.cp.Mode == ExactlyOnce && f.cp.Place.Compare(k.newest().Place) > 0 {
		k.stored = f.cp // this process saw it committed, whatever the store says
	}
	if Broken(BreakMirror) && !k.stored.Zero() {
		return k.stored, nil
	}
	switch {
	case k.kept.Zero() && k.stored.Zero() && k.away != nil:
		return Checkpoint{}, fmt.Errorf("the sink has no checkpoint, so the store must be asked: %w", k.away)
	case k.away != nil && !k.kept.Zero() && k.kept.Mode != ExactlyOnce:
		return Checkpoint{}, fmt.Errorf("the stream was delivered at least once before, so the store must be asked: %w", k.away)
	case k.kept.Zero() && k.stored.Zero():
		return f.begin(ctx)
	case k.stored.Place.Compare(k.kept.Place) > 0 || k.kept.Zero():
		return f.mergeAhead(ctx, k)
	case apart(k.kept, k.stored):
		return Checkpoint{}, twoHistories(k.kept, k.stored)
	case k.kept.Mode != ExactlyOnce:
		return f.mint(ctx, k, k.kept, "delivery is exactly-once from here on")
	}
	return k.kept, nil
}

// mergeAhead decides when the store is newer than the sink.
func (f *follower) mergeAhead(ctx context.Context, k knowledge) (Checkpoint, error) {
	if k.stored.Mode == AtLeastOnce {
		return f.mint(ctx, k, k.stored, "delivery is exactly-once from here on")
	}
	have := "no checkpoint"
	if !k.kept.Zero() {
		have = "checkpoint " + k.kept.Place.String()
	}
	lost := fmt.Errorf("data was lost in Kafka: it has %s, %s of change %q was committed", have, k.stored.Place, k.stored.ChangeID())
	switch policy := f.b.cfg.OnCheckpointLoss; {
	case policy == lossStop:
		return Checkpoint{}, &Fault{
			Class: Permanent, Code: "checkpoint-behind", Reason: ReasonCheckpoint, Err: lost,
			Hint: "find out what Kafka lost, then BRIDGE_ON_CHECKPOINT_LOSS=kafka (events come twice) or redis (events may be missing), or exportbridge cursor reset",
		}
	case policy == lossRedis && apart(k.kept, k.stored): // more than a loss: what was asked for since would be undone
		return Checkpoint{}, twoHistories(k.kept, k.stored)
	case policy == lossRedis || k.kept.Zero():
		f.log.Error("goes on from the store's checkpoint; events that Kafka lost are not published again", "error", lost.Error())
		if policy == lossRedis { // what is missing is accepted, another topic is not
			k.stored.Topics = withoutReach(k.stored.Topics)
		}
		return f.mint(ctx, k, k.stored, "Kafka lost its checkpoint")
	}
	if Broken(BreakEpoch) {
		return k.kept, nil
	}
	f.log.Error("goes on from Kafka's checkpoint; events that were published after it may come again", "error", lost.Error())
	return f.mint(ctx, k, k.kept, "Kafka lost data")
}

// mergeAtLeast: the store is the truth, the sink has a copy that may be a few
// seconds old. What this process knows from before counts too.
func (f *follower) mergeAtLeast(ctx context.Context, k knowledge) (Checkpoint, error) {
	if k.away != nil {
		return Checkpoint{}, k.away
	}
	c, from := k.stored, k.stored
	switch {
	case k.stored.Zero():
		c = f.cp
	case !f.cp.Zero() && !f.ours(k.stored) && k.stored.Epoch == f.cp.Epoch:
		return Checkpoint{}, twoHistories(f.cp, k.stored)
	case f.cp.Place.Compare(k.stored.Place) > 0:
		c = f.cp
	}
	if !k.kept.Zero() && (c.Zero() || k.kept.Place.Compare(c.Place) > 0) {
		if apart(k.kept, c) {
			return Checkpoint{}, twoHistories(k.kept, c)
		}
		c = k.kept
	}
	switch {
	case c.Zero():
		return f.begin(ctx)
	case c.Mode != f.b.cfg.Mode:
		return f.mint(ctx, k, c, "delivery is at-least-once from here on")
	case from.Zero():
		f.log.Warn("the store lost the checkpoint, writing it again", "checkpoint", c.Place.String())
	case c.Place != from.Place:
		f.log.Warn("the store fell back to an older checkpoint, writing the newer one again",
			"stored", from.Place.String(), "checkpoint", c.Place.String())
	default:
		return c, f.introduce(ctx, k, c)
	}
	if err := f.introduce(ctx, k, c); err != nil {
		return c, err
	}
	return c, f.advance(ctx, from, c)
}

// introduce tells the sink of an epoch that it has not heard of. Every epoch of
// an at-least-once stream is in the sink, under its fencing, before it counts:
// else a session that was fenced could still begin one in the store, and a
// later exactly-once session would take it for the newest.
func (f *follower) introduce(ctx context.Context, k knowledge, c Checkpoint) error {
	if !k.kept.Zero() && k.kept.Epoch == c.Epoch {
		return nil
	}
	_, err := f.publish(ctx, Batch{Checkpoint: c, From: c}, 0)
	return err
}

// mint begins a new epoch at the position of c. Two histories that were
// written apart can so never be taken for one.
func (f *follower) mint(ctx context.Context, k knowledge, c Checkpoint, why string) (Checkpoint, error) {
	next := f.stampEpoch(c, KindReset, k.newest().Epoch+1)
	if f.applying { // the command's own epoch follows
		c.Place = k.newest().Place
		return c, nil
	}
	next.Change = f.ownChange(c, why)
	f.log.Warn("a new epoch begins", "why", why, "from", c.Place.String(), "was", string(c.Mode), "to", next.Place.String())
	return next, f.secure(ctx, k.stored, next)
}

// ownChange records that the program itself begins an epoch at the position of
// c. Who asked for the change before it may still wait for the answer.
func (f *follower) ownChange(c Checkpoint, why string) *Change {
	return &Change{
		ID: strings.ToLower(rand.Text()[:6]), Kind: KindReset, Who: f.b.cfg.Owner, Reason: why, From: c.Place, At: time.Now().UnixMilli(),
		After: c.asked(),
	}
}

// secure makes a checkpoint without events durable, where the delivery mode
// has its truth. from is what the store holds.
func (f *follower) secure(ctx context.Context, from, next Checkpoint) error {
	if _, err := f.publish(ctx, Batch{Checkpoint: next, From: f.cp}, 0); err != nil {
		return err
	}
	return f.keep(ctx, from, next)
}

// ours reports whether a stored checkpoint is one that this process went
// through or, being of an older epoch, what its own stream was before: epochs
// only grow, so the store fell back.
func (f *follower) ours(stored Checkpoint) bool {
	_, known := f.seenIDs[stored.ChangeID()]
	return known || stored.Epoch < f.cp.Epoch
}

func twoHistories(ours, theirs Checkpoint) *Fault {
	return &Fault{
		Class: Permanent, Code: "checkpoint", Reason: ReasonCheckpoint,
		Hint: "two histories of one stream: exportbridge cursor history, then exportbridge cursor reset to where it shall go on",
		Err:  fmt.Errorf("the store holds %s of change %q, this stream was at %s of change %q", theirs.Place, theirs.ChangeID(), ours.Place, ours.ChangeID()),
	}
}
