package backfill

import (
	"context"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// walkTimeout bounds how long the stream's checkpoints are read.
const walkTimeout = 30 * time.Second

// LiveStream tells where the live stream is, and was.
type LiveStream interface {
	// Walk shows the committed checkpoints to visit, newest first, until it
	// returns false; heartbeats are left out, but for the newest of all.
	Walk(ctx context.Context, visit func(bridge.Checkpoint) bool) error
}

// Overlap says what of a backfill is published already, or will be, each in a
// sentence: by the stream, and by a backfill before. begun is false where the
// stream has no checkpoint: its first run will find the events in the topic.
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
			overlaps = append(overlaps, fmt.Sprintf("the backfill %s (%s) has published from %s to %s, or a part of it", other.ID, other.State, bound(other.From), bound(other.To)))
			break
		}
	}
	return overlaps, begun, err
}

// overlapWithStream says what of the job the stream has published or will, or
// nothing. Each epoch of the stream is an export of its own, from its start to
// where it was left; the newest one goes on.
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
	text := fmt.Sprintf("stream %s exports what is from %s on", j.Stream, bound(c.Origin.Start))
	switch {
	case !newest:
		return fmt.Sprintf("stream %s has published what is from %s to %s, before it was reset to epoch %d or later", j.Stream,
			bound(c.Origin.Start), bound(position), c.Epoch+1)
	case j.From > position:
		return text + ", is at " + bound(position) + ", and will publish the rest itself"
	}
	return text + ", and has published it up to " + bound(position)
}

// bound is an instant for people, in milliseconds since the epoch.
func bound(ms int64) string {
	if ms == 0 {
		return "the earliest event"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)
}
