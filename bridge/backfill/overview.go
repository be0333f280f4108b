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
}

// Status is the job's state, or Interrupted.
func (l *Listed) Status() State {
	if l.State == Running && len(l.Processes) == 0 {
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
		if all[i].Processes, err = j.log.Members(ctx, jobs[i].ID); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// CountWindows counts the windows of all jobs by state. An unfinished window has the state
// of its job. age is as in List.
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
			count[string(all[i].Status())] += open
		}
	}
	return count, nil
}
