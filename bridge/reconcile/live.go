package reconcile

import (
	"context"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
)

const (
	// clocksDiffer is how far apart the clocks of this machine, of the bridge's
	// and of the API's may be.
	clocksDiffer = 3 * time.Second
	// trailTimeout bounds the search for the last end of the export.
	trailTimeout = 30 * time.Second
	// drainTimeout is how long a repair waits for a checkpoint at the end of the
	// export. A bridge that has caught up commits one every 30 seconds, and asks
	// the API every EXPORT_POLL_INTERVAL_MAX.
	drainTimeout  = 2 * time.Minute
	drainInterval = 500 * time.Millisecond
)

// atEnd reports whether a checkpoint of a running stream was committed at the
// end of the export: all that was listed at its position time has been passed.
func atEnd(c *bridge.Checkpoint) bool { return c.Drained && c.EndedEmpty == 0 }

// newest returns the stream's newest checkpoint, the zero value where there is
// none.
func (c *comparison) newest(ctx context.Context) (newest bridge.Checkpoint, err error) {
	err = c.Live.Walk(ctx, func(found bridge.Checkpoint) bool {
		newest = found
		return false
	})
	return newest, err
}

// repairable reports why the range must not be repaired.
func (c *comparison) repairable(ctx context.Context) error {
	live := &c.start
	switch {
	case live.Zero():
		return refuse(NeverRan, "stream %s has no position yet: it will publish the window itself", c.Stream)
	case live.PositionTime == 0:
		return refuse(PositionUnknown, "stream %s was moved, and has not said since how far it is: what is missing may be on its way", c.Stream)
	case c.To > live.PositionTime:
		e := refuse(NotPassed, "the window ends after the live position %s: what is missing may be on its way", instant(live.PositionTime))
		e.Position = live.PositionTime
		return e
	case live.Origin.Resource != c.Origin.Resource || strings.Join(live.Origin.Events, ",") != strings.Join(c.Origin.Events, ","):
		return refuse(OtherOrigin, "the stream exports %s, these settings ask for %s", originText(live.Origin), originText(c.Origin))
	}
	return c.overlapsBackfill(ctx)
}

func originText(o bridge.Origin) string {
	if len(o.Events) == 0 {
		return o.Resource
	}
	return o.Resource + " (" + strings.Join(o.Events, ", ") + ")"
}

// overlapsBackfill refuses to repair what a backfill is about to publish.
func (c *comparison) overlapsBackfill(ctx context.Context) error {
	open, err := c.Live.Backfills(ctx)
	if err != nil {
		return err
	}
	for _, b := range open {
		if b.From < c.To && c.From < b.To {
			e := refuse(BackfillOpen, "backfill %s of %s to %s is not done: it may publish what is missing itself", b.ID, bound(b.From), bound(b.To))
			e.Backfill = b.ID
			return e
		}
	}
	return nil
}

func bound(ms int64) string {
	if ms == 0 {
		return "the earliest event"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}

// frontier is what the stream can no longer publish.
type frontier struct {
	// epoch is that of the stream: in another one it may read everything anew.
	epoch int64
	// ingested is the time up to which the stream has read what the API took in,
	// in milliseconds since the epoch; 0 where it is not known.
	ingested int64
	// drained is true while it is proved that what this part has read before is
	// passed, whatever its times.
	drained bool
}

// passed returns the frontier as the checkpoint topic shows it: the newest time
// at which the stream was at the end of the export. Where it is not there now,
// its position is the greatest event time that it has seen, which says nothing
// of the order in which the API lists events.
func (c *comparison) passed(ctx context.Context) (frontier, error) {
	ctx, cancel := context.WithTimeout(ctx, trailTimeout)
	defer cancel()
	f, epoch := frontier{epoch: c.start.Epoch}, c.start.Epoch
	err := c.Live.Walk(ctx, func(found bridge.Checkpoint) bool {
		if found.Epoch < epoch {
			return false
		}
		if atEnd(&found) {
			f.ingested = found.PositionTime - clocksDiffer.Milliseconds()
			return false
		}
		if found.Seq == 0 && found.Change != nil && (found.Change.Kind == bridge.KindPause || found.Change.Kind == bridge.KindResume) {
			epoch = found.Change.From.Epoch // at the same place
		}
		return true
	})
	if ctx.Err() != nil { // too long ago to look for
		return f, context.Cause(ctx)
	}
	return f, err
}

// awaitEnd waits for a checkpoint of the running stream that was committed at
// the end of the export, which it asked for after the given time of our own
// clock. What the API listed at that time is published by then, or never will
// be.
func (c *comparison) awaitEnd(ctx context.Context, since time.Time) error {
	if running, err := c.Live.Running(ctx); err != nil {
		return err
	} else if !running {
		return unproven(NotRunning, "no process runs stream %s", c.Stream)
	}
	if c.AwaitingEnd != nil {
		c.AwaitingEnd()
	}
	limited, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var newest bridge.Checkpoint
	var seen time.Time // when newest was seen first
	for {
		found, err := c.newest(ctx)
		if err != nil {
			return err
		}
		if found.Version != newest.Version {
			newest, seen = found, time.Now()
		}
		if found.Paused(time.Now()) {
			return unproven(StreamPaused, "the stream is paused")
		}
		// A checkpoint from the future has been written by a clock that is ahead.
		ahead := max(0, time.UnixMilli(newest.WrittenAt).Sub(seen))
		if atEnd(&newest) && time.UnixMilli(newest.PositionTime).After(since.Add(clocksDiffer+ahead)) {
			c.repair.epoch, c.repair.drained = newest.Epoch, true
			return nil
		}
		bridge.Sleep(limited, drainInterval)
		if limited.Err() == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return unproven(NotAtEnd, "within %s the stream has not been at the end of the export, its position is %s", drainTimeout, positionText(&newest))
	}
}

// unproven refuses to publish what the stream may still publish itself.
func unproven(why Reason, format string, args ...any) error {
	return refuse(why, "missing events do not say when the API took them in, so only a stream at the end of the export shows that it will not publish them itself: %s",
		fmt.Sprintf(format, args...))
}

func positionText(c *bridge.Checkpoint) string {
	if c.PositionTime == 0 {
		return "unknown until the next page"
	}
	return instant(c.PositionTime)
}

// unmoved reports whether the stream still goes on from where its frontier was
// seen. A move that comes between this and a repair's commit has the stream
// publish the event once more, as one that comes after the commit does.
func (c *comparison) unmoved(ctx context.Context) error {
	found, err := c.newest(ctx)
	if err == nil && found.Epoch != c.repair.epoch {
		err = refuse(Moved, "the stream was moved meanwhile: it is in epoch %d, and was in %d; it may publish what is missing itself", found.Epoch, c.repair.epoch)
	}
	return err
}
