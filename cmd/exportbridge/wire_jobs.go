package main

import (
	"context"
	"time"

	"exportbridge/bridge/kafkasink"
)

// jobsInterval is how old the metrics of backfills and replays may be. Each
// look is a short connection to Kafka.
const jobsInterval = 30 * time.Second

// watchJobs keeps the metrics of the stream's backfills and replays, which are
// processes that nobody scrapes, while the stream is this process's.
func (p *process) watchJobs(ctx context.Context, st *stream) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	var next time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			switch {
			case !st.bridge.Status().Leader:
				p.metrics.Windows(st.name, nil)
				next = time.Time{}
			case now.After(next):
				p.metrics.Windows(st.name, p.countWindows(ctx, st))
				next = now.Add(jobsInterval)
			}
		}
	}
}

// countWindows returns nil where the windows are not known.
func (p *process) countWindows(ctx context.Context, st *stream) map[string]int {
	jobs, err := listJobs(ctx, st.jobs)
	if err != nil {
		if ctx.Err() == nil {
			p.log.Debug("backfills not counted", logStream, st.name, logError, err)
		}
		return nil
	}
	count := make(map[string]int)
	for i := range jobs {
		done := jobs[i].WindowsDone
		count[string(kafkasink.JobDone)] += done
		if rest := len(jobs[i].Windows) - done; rest > 0 {
			count[jobs[i].stateText()] += rest
		}
	}
	return count
}
