package process

import (
	"context"
	"slices"

	"exportbridge/bridge/backfill"
	"exportbridge/bridge/deadletter"
	"exportbridge/cmd/internal/config"
)

// unwired copies settings for jobs and operators. Wiring a stream sets where its settings
// report the health of Kafka. Jobs and operators must not report there.
func unwired(s *config.Settings) *config.Settings {
	own := *s
	own.Streams = slices.Clone(s.Streams)
	return &own
}

// adopt adds a stream to the metrics and to the limit of a shutdown.
func (p *Process) adopt(st *stream) {
	p.metrics.AddStream(st.name)
	p.metrics.CountLosses(st.name, st.sink.Losses)
	p.metrics.CountRefused(st.name, st.sink.Refused)
	if longest := int64(st.shutdown); longest > p.shutdown.Load() {
		p.shutdown.Store(longest)
	}
}

// operate serves the streams of the settings to operators, and runs their jobs. The streams
// must not be wired yet.
func (p *Process) operate(s *config.Settings) error {
	planners, err := p.planners(unwired(s))
	if err != nil {
		return err
	}
	controllers, records := p.options.Control(p.redis, s)
	p.operators.Store(&operators{controllers, records})
	if p.jobs == nil {
		p.jobs = backfill.NewHost(planners, p.logJob)
	}
	p.jobs.SetPlanners(planners)
	if p.lanes == nil && p.fleet != nil && !p.options.Limits.Bounded() {
		p.lanes = backfill.NewLanes(planners, p.logLane, func(j *backfill.Job) { p.logJob(j, nil) })
	}
	if p.lanes != nil {
		p.lanes.SetPlanners(planners)
	}
	return nil
}

// liveRecords reads the records of the present streams of the process.
type liveRecords struct{ p *Process }

// DeadLetters implements ops.Records.
func (l liveRecords) DeadLetters(ctx context.Context, stream string, limit int) ([]deadletter.DeadLetter, error) {
	return l.p.operators.Load().records.DeadLetters(ctx, stream, limit)
}

// Jobs implements ops.Records.
func (l liveRecords) Jobs(ctx context.Context) ([]backfill.Listed, error) {
	return l.p.operators.Load().records.Jobs(ctx)
}
