package backfill

import (
	"cmp"
	"context"

	"exportbridge/bridge"
)

// Divide has a fleet run the job, in as many lanes as windows may run at a time. It keeps the
// lanes of a job that has some.
func (j *Job) Divide() {
	j.Lanes = cmp.Or(j.Lanes, min(j.AtOnce(), len(j.Windows), bridge.MaxLanes))
}

// inFleet reports whether a fleet runs the job.
func (j *Job) inFleet() bool { return j.State == Running && j.Lanes > 0 && !j.Paused }

// laneWindows returns the unfinished windows of a lane.
func (j *Job) laneWindows(lane int) (left []int) {
	for n := lane; n < len(j.Windows); n += j.Lanes {
		if j.Windows[n].Ended == "" {
			left = append(left, n)
		}
	}
	return left
}

// openLanes returns the lanes with unfinished windows. If there are none, the first lane
// commits that the job is done.
func (j *Job) openLanes() (open []int) {
	for lane := range j.Lanes {
		if len(j.laneWindows(lane)) > 0 {
			open = append(open, lane)
		}
	}
	if len(open) == 0 {
		open = []int{0}
	}
	return open
}

// laneShare returns a lane's share of the job's rate limit. Lanes are never added, so a
// lane with outdated knowledge takes a smaller share: all lanes together do not exceed the
// limit.
func (j *Job) laneShare() float64 { return 1 / float64(len(j.openLanes())) }

// held is the Owner of the windows of a lane, which this process owns.
type held struct{ bridge.Ownership }

// Acquire implements bridge.Owner. The run of a lane that is lost ends.
func (h held) Acquire(ctx context.Context) (bridge.Ownership, error) {
	select {
	case <-h.Lost():
		<-ctx.Done()
		return nil, ctx.Err()
	default:
		return h, nil
	}
}

// Release implements bridge.Ownership. The next window needs the lane.
func (h held) Release() {}

// runLane runs the unfinished windows of a lane, one after the other. It returns nil if ctx
// ends, or the lane is lost.
func (r *Run) runLane(ctx context.Context, lane int) error {
	ctx, end := bridge.WhileOwned(ctx, r.lane)
	defer end()
	left := r.job.laneWindows(lane)
	for _, n := range left {
		if err := r.runWindow(ctx, n); err != nil && ctx.Err() == nil {
			return err
		}
		if r.left {
			return nil
		}
	}
	if len(left) > 0 || r.job.Ended() < len(r.job.Windows) || ctx.Err() != nil {
		return nil
	}
	job, err := r.change(ctx, func(have *Job) error {
		r.finish(have)
		return nil
	})
	if err == nil && job.State == Done {
		r.over = &job
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the next process commits it
	}
	return err
}
