package process

import (
	"context"
	"errors"
	"time"

	"exportbridge/bridge"
)

const (
	// jobsInterval is how old the metrics of backfills and replays may be. A look
	// is a short connection to Kafka, that reads what has come since the last one,
	// for all streams.
	jobsInterval = 30 * time.Second
	// deniedInterval is for who may not look: brokers log whom they refuse.
	deniedInterval = 30 * time.Minute
)

// watchJobs keeps the metrics of the stream's backfills and replays, which are
// processes that nobody scrapes, while the stream is this process's.
func (p *Process) watchJobs(ctx context.Context, st *stream) {
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
				next = now.Add(p.showWindows(ctx, st))
			}
		}
	}
}

// showWindows looks at the jobs once, and returns when to look again.
func (p *Process) showWindows(ctx context.Context, st *stream) time.Duration {
	count, err := st.windows(ctx, jobsInterval/2)
	p.metrics.Windows(st.name, count)
	fault, ok := errors.AsType[*bridge.Fault](err)
	switch {
	case err == nil || ctx.Err() != nil:
	case ok && fault.Class == bridge.Permanent:
		p.log.Info("backfills and replays are not counted", logStream, st.name, logError, err, logHint, fault.Hint)
		return deniedInterval
	default:
		p.log.Debug("backfills and replays not counted", logStream, st.name, logError, err)
	}
	return jobsInterval
}
