package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
)

const (
	// clocksDiffer is how far apart the clocks of this machine, of the bridge's
	// and of the API's may be.
	clocksDiffer = 3 * time.Second
	// drainTimeout is how long a repair waits for a checkpoint at the end of the
	// export. A bridge that has caught up commits one every 30 seconds, and asks
	// the API every EXPORT_POLL_INTERVAL_MAX.
	drainTimeout  = 2 * time.Minute
	drainInterval = 500 * time.Millisecond
)

// atEnd reports whether a checkpoint of a running stream was committed at the
// end of the export: all that was listed at its position time has been passed.
func atEnd(c *bridge.Checkpoint) bool { return c.Drained && c.EndedEmpty == 0 }

// frontier is what the stream can no longer publish.
type frontier struct {
	// epoch is that of the stream: in another one it may read everything anew.
	epoch int64
	// ingested is the time up to which the stream has read what the API took in,
	// in milliseconds since the epoch; 0 where it is not known.
	ingested int64
	// drained is when it was last proved that what this part has read before is
	// passed, whatever its times; zero where it is not.
	drained bool
}

// passed returns the frontier as the checkpoint topic shows it: the newest time
// at which the stream was at the end of the export. Where it is not there now,
// its position is the greatest event time that it has seen, which says nothing
// of the order in which the API lists events.
func (v *verifier) passed(ctx context.Context) (frontier, error) {
	ctx, cancel := context.WithTimeout(ctx, trailTimeout)
	defer cancel()
	sink, err := kafkasink.New(v.stream.Kafka)
	if err != nil {
		return frontier{}, err
	}
	defer sink.Close()
	f := frontier{epoch: v.live.Epoch}
	epoch := v.live.Epoch
	err = sink.Trail(ctx, func(c bridge.Checkpoint) bool {
		if c.Epoch < epoch {
			return false
		}
		if atEnd(&c) {
			f.ingested = c.PositionTime - clocksDiffer.Milliseconds()
			return false
		}
		if c.Seq == 0 && c.Change != nil && (c.Change.Kind == bridge.KindPause || c.Change.Kind == bridge.KindResume) {
			epoch = c.Change.From.Epoch // at the same place
		}
		return true
	})
	if ctx.Err() != nil { // too long ago to look for
		return f, context.Cause(ctx)
	}
	return f, explained(err)
}

// awaitEnd waits for a checkpoint of the running stream that was committed at
// the end of the export, which it asked for after the given time of our own
// clock. What the API listed at that time is published by then, or never will
// be.
func (v *verifier) awaitEnd(ctx context.Context, since time.Time) error {
	if err := v.wantRunning(ctx); err != nil {
		return err
	}
	fmt.Fprintf(v.app.stderr, "waits until stream %s is at the end of the export again: the events do not say when the API took them in\n", v.stream.Name)
	limited, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var newest bridge.Checkpoint
	var seen time.Time // when newest was seen first
	for {
		c, err := newestCheckpoint(ctx, v.stream)
		if err != nil {
			return err
		}
		if c.Place != newest.Place {
			newest, seen = c, time.Now()
		}
		if c.Paused(time.Now()) {
			return v.cannotTell("the stream is paused", "exportbridge resume, and the same command again")
		}
		// A checkpoint from the future has been written by a clock that is ahead.
		ahead := max(0, time.UnixMilli(newest.WrittenAt).Sub(seen))
		if atEnd(&newest) && time.UnixMilli(newest.PositionTime).After(since.Add(clocksDiffer+ahead)) {
			v.repair.epoch, v.repair.drained = newest.Epoch, true
			return nil
		}
		if waitFor(limited, drainInterval) == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		why := fmt.Sprintf("within %s the stream has not been at the end of the export, it is at %s", drainTimeout, positionText(&newest, time.Now()))
		return v.cannotTell(why, "the same command again when exportbridge status says that the stream has caught up")
	}
}

// wantRunning refuses to wait for a stream that nobody runs.
func (v *verifier) wantRunning(ctx context.Context) error {
	sink, err := kafkasink.New(v.stream.Kafka)
	if err != nil {
		return err
	}
	defer sink.Close()
	asking, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	members, err := sink.Members(asking)
	if err != nil {
		return explained(err)
	}
	if len(members) == 0 {
		return v.cannotTell("no process runs stream "+v.stream.Name, "exportbridge run, and the same command while it runs")
	}
	return nil
}

// cannotTell refuses to publish what the stream may still publish itself.
func (v *verifier) cannotTell(why, hint string) error {
	return &exitError{
		code: exitFailed, hint: hint,
		err: fmt.Errorf("missing events do not say when the API took them in, so only a stream at the end of the export shows that it will not publish them itself: %s", why),
	}
}

// errMoved: the stream was moved while it was repaired.
var errMoved = errors.New("the stream was moved meanwhile")

// unmoved reports whether the stream still goes on from where its frontier was
// seen. A move that comes between this and a repair's commit has the stream
// publish the event once more, as one that comes after the commit does.
func (v *verifier) unmoved(ctx context.Context) error {
	c, err := newestCheckpoint(ctx, v.stream)
	if err == nil && c.Epoch != v.repair.epoch {
		err = &exitError{
			code: exitFailed, err: fmt.Errorf("%w: it is in epoch %d, and was in %d; it may publish what is missing itself", errMoved, c.Epoch, v.repair.epoch),
			hint: "the same command again",
		}
	}
	return err
}

// overlapsBackfill refuses to repair what a backfill is about to publish.
func (v *verifier) overlapsBackfill(ctx context.Context) error {
	all, err := kafkasink.NewJobs(v.stream.Kafka).List(ctx)
	if err != nil {
		return explained(err)
	}
	for i := range all {
		j := &all[i]
		if j.Kind == kafkasink.JobBackfill && j.State == kafkasink.JobRunning && j.Topic == v.stream.Kafka.Topic && j.From < v.report.To && v.report.From < j.To {
			return &exitError{
				code: exitFailed, err: fmt.Errorf("backfill %s of %s to %s is not done: it may publish what is missing itself", j.ID, startText(j.From), startText(j.To)),
				hint: fmt.Sprintf("exportbridge backfill --resume %s --execute, or exportbridge backfill cancel %s --execute", j.ID, j.ID),
			}
		}
	}
	return nil
}
