package main

import (
	"context"
	"errors"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkasink"
)

const (
	// jobsInterval is how old the metrics of backfills and replays may be. Each
	// look is a short connection to Kafka.
	jobsInterval = 30 * time.Second
	// deniedInterval is for who may not look: brokers log whom they refuse.
	deniedInterval = 30 * time.Minute
)

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
				count, err := st.countWindows(ctx)
				next = now.Add(jobsInterval)
				var fault *bridge.Fault
				switch {
				case err == nil || ctx.Err() != nil:
				case errors.As(err, &fault) && fault.Class == bridge.Permanent:
					next = now.Add(deniedInterval)
					p.log.Info("backfills and replays are not counted", logStream, st.name, logError, err, logHint, fault.Hint)
				default:
					p.log.Debug("backfills and replays not counted", logStream, st.name, logError, err)
				}
				p.metrics.Windows(st.name, count)
			}
		}
	}
}

// countWindows counts the windows by their state.
func (st *stream) countWindows(ctx context.Context) (map[string]int, error) {
	jobs, err := listJobs(ctx, st.jobs)
	if err != nil {
		return nil, err
	}
	count := make(map[string]int)
	for i := range jobs {
		done := jobs[i].WindowsDone
		count[string(kafkasink.JobDone)] += done
		if rest := len(jobs[i].Windows) - done; rest > 0 {
			count[jobs[i].stateText()] += rest
		}
	}
	return count, nil
}
