package reconcile

import (
	"context"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
)

const (
	// clocksDiffer is the tolerated difference between the clocks of the API's servers, and of the bridge.
	clocksDiffer = 3 * time.Second
	// listedWithin is how long after the ingestion time of an event the API may list it.
	listedWithin = 5 * time.Minute
	// trailTimeout bounds the search for the last checkpoint at the end of the export.
	trailTimeout = 30 * time.Second
	// drainTimeout is how long a repair waits for a checkpoint at the end of the
	// export. A stream that has been quiet for long commits one every 5 minutes.
	drainTimeout  = 6 * time.Minute
	drainInterval = 500 * time.Millisecond
	// stillKept is how long a range that a rejection names stays kept: retention goes on until the
	// command is repeated, first as a rehearsal.
	stillKept = 10 * time.Minute
)

// atEnd reports whether a checkpoint was committed at the end of the export: the stream
// has read everything that was listed at the checkpoint's position time.
func atEnd(c *bridge.Checkpoint) bool { return c.Drained && c.EndedEmpty == 0 }

// Position returns the newest checkpoint of a stream. If a range up to to, in milliseconds
// since the epoch, ends after its position, the position is the one that the owner reports.
// read reports whether the stream has read everything before Settled: the position of a
// stream that is behind is only the greatest event time, and earlier events may follow.
func Position(ctx context.Context, l LiveStream, to int64) (live bridge.Checkpoint, read bool, err error) {
	if live, err = bridge.Newest(ctx, l); err != nil {
		return live, false, err
	}
	readOn(ctx, l, &live, to)
	s, ok := l.Status(ctx)
	return live, live.Listing != nil || atEnd(&live) || ok && s.CaughtUp, nil
}

// readOn advances the live position to the one that the owner reports, if the range ends
// after it: a quiet stream commits its position only every 5 minutes. A stream that has
// caught up has committed everything that was listed at the position that it reports.
func readOn(ctx context.Context, l LiveStream, live *bridge.Checkpoint, to int64) {
	if live.Zero() || to <= live.Settled() {
		return
	}
	s, ok := l.Status(ctx)
	if ok && s.Leader && s.CaughtUp && s.Version.Epoch == live.Epoch {
		live.PositionTime = max(live.PositionTime, s.Position.UnixMilli())
	}
}

// repairable returns why the range must not be repaired.
func (c *comparison) repairable(ctx context.Context) error {
	live := &c.start
	switch {
	case live.Zero():
		return reject(NeverRan, "stream %s has not started: it will publish the range itself", c.Stream)
	case live.PositionTime == 0 && live.Kind == bridge.KindData:
		return reject(NotAtEnd, "no event of stream %s has had a time, so its position is unknown "+
			"until the end of the export: it may still publish missing events", c.Stream)
	case live.PositionTime == 0:
		return reject(PositionUnknown,
			"stream %s was moved and has not read a page since: it may still publish missing events", c.Stream)
	case c.To > live.Settled():
		e := reject(NotPassed, "the range ends after the live position %s: "+
			"the stream may still publish missing events", bridge.InstantText(live.Settled()))
		if c.From < live.Settled() {
			e.Position = live.Settled()
		}
		return e
	}
	if err := live.OriginConflict(c.Origin); err != nil {
		return reject(OtherOrigin, "%v", err)
	}
	if err := live.RoutesConflict(c.kept[0].Topic, c.Routes); err != nil {
		return reject(OtherRoutes, "%v", err)
	}
	from := c.kept[0].From // the earliest of the topics
	for i := range c.kept {
		k := &c.kept[i]
		if lost := bridge.TopicRecreated(live.Topics, k.Topic, k.ID); lost != nil {
			return reject(TopicLost, "%v", lost)
		}
		if i <= c.routed() {
			from = min(from, k.From)
		}
	}
	if c.From < from {
		e := reject(NotKept, "the topic keeps events from %s on: "+
			"retention has deleted older ones, and would delete them again", bridge.InstantText(from))
		if later := from + stillKept.Milliseconds(); later < c.To {
			e.Position = later
		}
		return e
	}
	return c.overlapsBackfill(ctx)
}

// checkRequest rejects settings that request another list than the live stream.
func (c *comparison) checkRequest() error {
	if elsewhere := c.start.RequestChange(c.Origin.Request).Elsewhere(); len(elsewhere) > 0 {
		return reject(OtherSource, "the settings are not those of stream %s: %s changed",
			c.Stream, strings.Join(elsewhere, ", "))
	}
	return nil
}

// checkSource rejects a page of another source than the live stream's, before the events
// of the page are counted or published.
func (c *comparison) checkSource(page *bridge.Page) error {
	if err := c.start.Source.Conflict(page.Source); err != nil {
		return reject(OtherSource, "%v", err)
	}
	if page.ServerTime.After(c.asOf) { // the next page may come from a server whose clock is behind
		c.asOf = page.ServerTime
	}
	if page.ServerTime.IsZero() && c.Mode != Compare {
		return reject(NoServerTime, "the API sends no Date header: "+
			"without its clock nothing shows which events the stream may still publish")
	}
	return nil
}

// overlapsBackfill rejects a range that an unfinished backfill overlaps.
func (c *comparison) overlapsBackfill(ctx context.Context) error {
	open, err := c.Live.Backfills(ctx)
	if err != nil {
		return err
	}
	for _, b := range open {
		if b.From < c.To && c.From < b.To {
			e := reject(BackfillOpen, "backfill %s of %s to %s is unfinished: it may still publish missing events",
				b.ID, bridge.BoundText(b.From), bridge.BoundText(b.To))
			e.Backfill = b.ID
			return e
		}
	}
	return nil
}

// frontier bounds the events that the stream can no longer publish.
type frontier struct {
	// epoch is the stream's; in another epoch the stream may read everything again.
	epoch int64
	// ingested is the ingestion time up to which the stream has read the export, in
	// milliseconds since the epoch; 0 if unknown.
	ingested int64
	// drained is true once awaitEnd has proved that the stream has read everything that
	// a part has read. Each part without ingestion times calls awaitEnd.
	drained bool
}

// frontier reads the frontier from the checkpoint topic: the last time that the stream
// was at the end of the export. A checkpoint before the end proves nothing: its position
// is the greatest event time, whatever the order in which the API lists events.
func (c *comparison) frontier(ctx context.Context) (frontier, error) {
	limited, cancel := context.WithTimeout(ctx, trailTimeout)
	defer cancel()
	f, epoch := frontier{epoch: c.start.Epoch}, c.start.Epoch
	err := c.Live.Walk(limited, func(found bridge.Checkpoint) bool {
		if found.Epoch < epoch {
			return false
		}
		if atEnd(&found) && found.PositionByAPI {
			f.ingested = found.PositionTime - clocksDiffer.Milliseconds()
			return false
		}
		if found.Seq == 0 && found.Change != nil && !found.Change.Moves() {
			epoch = found.Change.From.Epoch // the change kept the position
		}
		return true
	})
	if limited.Err() != nil { // if trailTimeout ended the search, there is no such checkpoint nearby
		return f, ctx.Err()
	}
	return f, err
}

// passed reports whether the stream can no longer publish an event with this ingestion
// time, 0 if it has none.
func (f *frontier) passed(ingested int64) bool {
	return ingested != 0 && ingested <= f.ingested-listedWithin.Milliseconds()
}

// awaits reports whether the stream must reach the end of the export once more to prove
// that it has not published an event with this ingestion time, and will not: the API may
// have listed the event late.
func (f *frontier) awaits(ingested int64) bool {
	return !f.passed(ingested) && ingested <= max(0, f.ingested)
}

// awaitEnd waits until the running stream commits a checkpoint at the end of the export
// that is later than the last page that was read, by the API's clock. An event that the API
// listed before and that the stream has not published by then is never published by it.
func (c *comparison) awaitEnd(ctx context.Context) error {
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
	for {
		newest, err := bridge.Newest(ctx, c.Live)
		if err != nil {
			return err
		}
		if newest.Paused(time.Now()) {
			return unproven(StreamPaused, "the stream is paused")
		}
		late := c.asOf.Add(time.Second + clocksDiffer) // a Date is in whole seconds
		if atEnd(&newest) && newest.PositionByAPI && time.UnixMilli(newest.PositionTime).After(late) {
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
		at := "unknown until the next page"
		if newest.PositionTime != 0 {
			at = bridge.InstantText(newest.PositionTime)
		}
		return unproven(NotAtEnd, "it has not reached the end of the export within %s, its position is %s",
			drainTimeout, at)
	}
}

// unproven rejects the repair of events that the stream may still publish.
func unproven(why Reason, format string, args ...any) error {
	return reject(why, "missing events lack an ingestion time, so the stream must reach "+
		"the end of the export before they can be repaired: %s", fmt.Sprintf(format, args...))
}

// unmoved returns an error if the topic was recreated after its marks were read, or if the
// stream was moved after its frontier was read. A move between this check and the repair's
// commit has the effect of any later move: the stream publishes the event again.
func (c *comparison) unmoved(ctx context.Context) error {
	if err := c.keep(ctx); err != nil {
		return err
	}
	found, err := bridge.Newest(ctx, c.Live)
	if err == nil && found.Epoch != c.repair.epoch {
		err = reject(Moved, "the stream was moved meanwhile, from epoch %d to %d: "+
			"it may still publish missing events", c.repair.epoch, found.Epoch)
	}
	return err
}
