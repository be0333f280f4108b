package backfill

import (
	"context"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// walkTimeout bounds how long the stream's checkpoints are read.
const walkTimeout = 30 * time.Second

// LiveStream has the checkpoints of the live stream.
type LiveStream interface {
	// Walk shows the committed checkpoints to visit, newest first, until it
	// returns false.
	Walk(ctx context.Context, visit func(bridge.Checkpoint) bool) error
}

// newest returns the live stream's newest checkpoint, the zero value if there is none.
func newest(ctx context.Context, live LiveStream) (found bridge.Checkpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, walkTimeout)
	defer cancel()
	err = live.Walk(ctx, func(c bridge.Checkpoint) bool {
		found = c
		return false
	})
	return found, err
}

// Overlap describes in a sentence each which parts of a backfill the stream and an
// earlier backfill have published or will publish. begun is false if the stream has
// no checkpoint: its first run will find the backfill's events in the topic.
func (j *Jobs) Overlap(ctx context.Context, plan *Job, live LiveStream) (overlaps []string, begun bool, err error) {
	text, begun, err := overlapWithStream(ctx, plan, live)
	if err != nil {
		return nil, begun, err
	}
	if text != "" {
		overlaps = append(overlaps, text)
	}
	all, err := j.List(ctx, 0)
	for i := range all {
		if other := &all[i]; other.Kind == Backfill && other.Topic == plan.Topic && other.overlaps(plan) {
			overlaps = append(overlaps, fmt.Sprintf("backfill %s (%s) covers %s to %s", other.ID, other.State, bound(other.From), bound(other.To)))
			break
		}
	}
	return overlaps, begun, err
}

// overlapWithStream describes which part of the job the stream has published or will
// publish; empty if none. Each epoch of the stream covers its start to its last
// position; the newest one continues.
func overlapWithStream(ctx context.Context, plan *Job, live LiveStream) (text string, begun bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, walkTimeout)
	defer cancel()
	var above *bridge.Checkpoint // the newest of the epoch before
	err = live.Walk(ctx, func(c bridge.Checkpoint) bool {
		if above == nil || c.Epoch != above.Epoch {
			if text = plan.overlapWith(&c, above == nil); text != "" {
				return false
			}
			above = &c
		}
		return c.Epoch > 0
	})
	return text, above != nil || text != "", err
}

func (j *Job) overlapWith(c *bridge.Checkpoint, newest bool) string {
	position := max(c.PositionTime, c.LastEventTime)
	end := position + 1
	if newest {
		end = c.Origin.End
	}
	if j.To <= c.Origin.Start || end != 0 && j.From >= end {
		return ""
	}
	text := fmt.Sprintf("stream %s exports events from %s on", j.Stream, bound(c.Origin.Start))
	switch {
	case !newest:
		return fmt.Sprintf("before its reset (%d.0 or later), stream %s published %s to %s", c.Epoch+1, j.Stream,
			bound(c.Origin.Start), bound(position))
	case j.From > position:
		return text + " and will publish this range itself; its position is " + bound(position)
	}
	return text + " and has published them up to " + bound(position)
}

// bound formats a bound, in milliseconds since the epoch.
func bound(ms int64) string {
	if ms == 0 {
		return "the earliest event"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}
