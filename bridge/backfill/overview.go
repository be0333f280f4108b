package backfill

import (
	"context"
	"time"

	"exportbridge/bridge"
)

// Listed is a job and the processes that work on it.
type Listed struct {
	Job
	// Processes is only set for an unfinished job.
	Processes []bridge.Member `json:"processes,omitempty"`
	// LaneProcesses are the processes that run the lanes of an unfinished job, by lane;
	// empty for a lane that no process runs.
	LaneProcesses []string `json:"lane_processes,omitempty"`
}

// Status is the job's state, or Paused, Waiting or Interrupted.
func (l *Listed) Status() State {
	switch {
	case l.State == Running && l.Paused:
		return Paused
	case l.inFleet() && len(l.Processes) == 0:
		return Waiting
	case l.State == Running && len(l.Processes) == 0:
		return Interrupted
	}
	return l.State
}

// Overview returns the jobs as List does, each with its processes.
func (j *Jobs) Overview(ctx context.Context, age time.Duration) ([]Listed, error) {
	jobs, err := j.List(ctx, age)
	if err != nil {
		return nil, err
	}
	all := make([]Listed, len(jobs))
	for i := range jobs {
		all[i].Job = jobs[i]
		if jobs[i].State != Running {
			continue
		}
		if err := j.fillProcesses(ctx, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (j *Jobs) fillProcesses(ctx context.Context, l *Listed) (err error) {
	if l.Processes, err = j.log.Members(ctx, l.ID); err != nil || l.Lanes == 0 {
		return err
	}
	running, err := j.log.Lanes(ctx, l.ID, l.Lanes)
	l.LaneProcesses = make([]string, len(running))
	for n := range running {
		if running[n] != (bridge.Member{}) {
			l.LaneProcesses[n] = running[n].Name()
		}
	}
	return err
}

// CommittedProgress returns the progress as far as it is committed.
func (l *Listed) CommittedProgress() Progress {
	p := Progress{Ended: l.Ended(), Windows: len(l.Windows), Events: l.Totals().Events}
	p.Share, p.Worked = l.Progress()
	return p
}

// CountWindows counts the windows of all jobs by state. An unfinished window has the state
// of its job; one of a Waiting job counts as Interrupted, since no process may ever run it.
// age is as in List.
func (j *Jobs) CountWindows(ctx context.Context, age time.Duration) (map[string]int, error) {
	all, err := j.Overview(ctx, age)
	if err != nil {
		return nil, err
	}
	count := make(map[string]int)
	for i := range all {
		ended := all[i].Ended()
		count[string(Done)] += ended
		if open := len(all[i].Windows) - ended; open > 0 {
			state := all[i].Status()
			if state == Waiting {
				state = Interrupted
			}
			count[string(state)] += open
		}
	}
	return count, nil
}
