package backfill

import (
	"context"
	"fmt"
	"time"

	"exportbridge/bridge"
)

// walkTimeout bounds how long the stream's checkpoints are read.
const walkTimeout = 30 * time.Second

// newest returns the live stream's newest checkpoint, the zero value if there is none.
func newest(ctx context.Context, live bridge.CheckpointLog) (bridge.Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, walkTimeout)
	defer cancel()
	return bridge.Newest(ctx, live)
}

// overlaps describes in a sentence each which parts of a backfill the stream and an
// earlier backfill have published or will publish. begun is false if the stream has
// no checkpoint.
func (p *Planner) overlaps(ctx context.Context, plan *Job) (texts []string, begun bool, err error) {
	text, begun, err := overlapWithStream(ctx, plan, p.Live)
	if err != nil {
		return nil, begun, err
	}
	if text != "" {
		texts = append(texts, text)
	}
	all, err := p.Jobs.List(ctx, 0)
	for i := range all {
		if text := plan.overlapWithJob(&all[i]); text != "" {
			texts = append(texts, text)
			break
		}
	}
	return texts, begun, err
}

// overlapWithJob describes the range of another backfill if the job has a part of it; empty
// if not.
func (j *Job) overlapWithJob(other *Job) string {
	if other.Kind != Backfill || !other.Publishes(j.Topics()) || other.From >= j.To || j.From >= other.To {
		return ""
	}
	return fmt.Sprintf("backfill %s (%s) covers %s to %s",
		other.ID, other.State, bridge.BoundText(other.From), bridge.BoundText(other.To))
}

// overlapWithStream describes which part of the job the stream has published or will
// publish; empty if none. An epoch of the stream covers the range from its start to its
// last position. The newest epoch continues, and its checkpoint has the ranges of earlier ones;
// those of older versions have only their own.
func overlapWithStream(ctx context.Context, plan *Job, live bridge.CheckpointLog) (text string, begun bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, walkTimeout)
	defer cancel()
	var above *bridge.Checkpoint // the newest of the last epoch shown
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

// overlapWithEarlier describes which part of the job epochs before that of c have published.
func (j *Job) overlapWithEarlier(c *bridge.Checkpoint) string {
	for _, r := range c.Earlier {
		if r.From < j.To && j.From < r.To {
			return fmt.Sprintf("before its reset (%d.0 or earlier), stream %s published %s to %s", c.Epoch, j.Stream,
				bridge.BoundText(r.From), bridge.BoundText(r.To-1))
		}
	}
	return ""
}

func (j *Job) overlapWith(c *bridge.Checkpoint, newest bool) string {
	position := max(c.PositionTime, c.LastEventTime)
	end := position + 1
	if newest {
		end = c.Origin.End
	}
	switch outside := j.To <= c.Origin.Start || end != 0 && j.From >= end; {
	case outside && newest:
		return j.overlapWithEarlier(c)
	case outside:
		return ""
	}
	text := fmt.Sprintf("stream %s exports events from %s on", j.Stream, bridge.BoundText(c.Origin.Start))
	switch {
	case !newest:
		return fmt.Sprintf("before its reset (%d.0 or later), stream %s published %s to %s", c.Epoch+1, j.Stream,
			bridge.BoundText(c.Origin.Start), bridge.BoundText(position))
	case j.From > position:
		return text + " and will publish this range itself; its position is " + bridge.BoundText(position)
	}
	return text + " and has published them up to " + bridge.BoundText(position)
}
