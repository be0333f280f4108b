package process

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
)

// LaneCapacity is the number of lanes of jobs that the process runs at a time.
const LaneCapacity = backfill.HostedWindows

const (
	// jobsInterval is the maximum age of the metrics of backfills and replays. Each update
	// reads the new records of all streams' jobs over a short connection.
	jobsInterval = 30 * time.Second
	// deniedInterval replaces jobsInterval if authorization fails, because brokers log each
	// failure.
	deniedInterval = 30 * time.Minute
)

// watchJobs updates the metrics of the backfills and replays of the streams that this
// process owns.
func (p *Process) watchJobs(ctx context.Context) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	next := make(map[*stream]time.Time) // of owned streams
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			running := p.streams.list()
			maps.DeleteFunc(next, func(st *stream, _ time.Time) bool {
				replaced := !slices.Contains(running, st)
				if replaced { // another process may own the stream from now on
					p.metrics.Windows(st.name, nil)
				}
				return replaced
			})
			for _, st := range running {
				due, owned := next[st]
				switch leads := st.bridge.Leads(); {
				case !leads && owned:
					p.metrics.Windows(st.name, nil)
					delete(next, st)
				case leads && now.After(due):
					next[st] = now.Add(p.showWindows(ctx, st))
				}
			}
		}
	}
}

// showWindows updates the metrics once and returns the time to the next update.
func (p *Process) showWindows(ctx context.Context, st *stream) time.Duration {
	count, err := st.windows(ctx, jobsInterval/2)
	p.metrics.Windows(st.name, count)
	fault, ok := errors.AsType[*bridge.Fault](err)
	switch {
	case err == nil || ctx.Err() != nil:
	case ok && fault.Class == bridge.Permanent:
		p.log.Info("metrics of backfills and replays disabled", logStream, st.name, logError, err, logHint, fault.Hint)
		return deniedInterval
	default:
		p.log.Debug("metrics of backfills and replays not updated", logStream, st.name, logError, err)
	}
	return jobsInterval
}

// logLane logs why a lane of a job stopped early. If job is empty, it logs why the jobs of
// the stream cannot be listed.
func (p *Process) logLane(stream, job string, lane int, err error) {
	log := p.log.With(logStream, stream)
	hint := JobHint(err, &backfill.Job{ID: job}, "")
	if fault, ok := errors.AsType[*bridge.Fault](err); ok {
		hint = cmp.Or(hint, fault.Hint)
	}
	hint = p.streams.advice(hint, stream)
	if job == "" {
		log.Warn("jobs not run in lanes", logError, err, logHint, hint)
		return
	}
	log.Warn("lane of a job stopped; retrying", "job", job, "lane", lane+1, logError, err, logHint, hint)
}
