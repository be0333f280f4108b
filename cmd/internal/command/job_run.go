package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// begin commits the plan, and carries it out.
func (p *jobPlan) begin(ctx context.Context) error {
	if err := p.createTopics(ctx); err != nil {
		return cli.Explain(err)
	}
	if err := p.jobs.Begin(ctx, p.job); err != nil {
		return jobError(err)
	}
	n, err := p.jobs.Tidy(ctx, time.Now())
	if n > 0 {
		fmt.Fprintf(p.app.Stderr, "  removed the records of %s that ended more than %d days ago\n", cli.Counted(n, "job"), int(backfill.Kept.Hours()/24))
	}
	if err != nil { // no reason not to go on
		fmt.Fprintf(p.app.Stderr, "  removing the records of old jobs failed: %v\n", err)
	}
	p.announce()
	return p.carryOut(ctx)
}

// createTopics creates what a new job needs. A job that goes on creates nothing:
// what it has published would be missing in a topic that is new.
func (p *jobPlan) createTopics(ctx context.Context) error {
	live := p.st.Kafka.Needs()
	if gone, err := live.Vanished(ctx); err != nil {
		return err
	} else if len(gone) > 0 && p.kind == backfill.Backfill {
		return gone[0]
	}
	if p.kind == backfill.Replay {
		if _, err := live.CreateLike(ctx, p.job.Topic); err != nil {
			return err
		}
	} else if !p.st.Kafka.CreateTopics {
		if err := p.wantTopic(ctx, &p.st.Kafka); err != nil {
			return err
		}
	}
	cfg := p.st.Kafka.OfWindow(windowOf(&p.job, 0))
	window := cfg.Needs()
	_, err := window.Create(ctx)
	if err == nil {
		p.job.TopicID, err = window.TopicID(ctx)
	}
	return err
}

// goOn takes up a job that was interrupted.
func (p *jobPlan) goOn(ctx context.Context) (err error) {
	r := &backfill.Resumption{
		ID: p.resume, Kind: p.kind, Resource: p.st.Export.Resource, SessionTimeout: p.st.Kafka.SessionTimeout,
		Waiting: func(process string) {
			fmt.Fprintf(p.app.Stderr, "  waiting for %s to release the job, for at most %s if it was killed\n", process, p.st.Kafka.SessionTimeout)
		},
	}
	if p.limitGiven {
		r.RateLimit = &p.limit
	}
	if p.parallelGiven {
		r.Parallel = &p.parallel
	}
	resume := p.jobs.Resumable
	if p.execute {
		resume = p.jobs.Resume
	}
	p.job, err = resume(ctx, r)
	if refused, ok := errors.AsType[*backfill.RefusedError](err); ok && refused.Reason == backfill.IsDone {
		p.job = refused.Job
		return p.report(0)
	}
	if err != nil {
		return jobError(err)
	}
	p.perSecond = cmp.Or(p.job.RateLimit, p.perSecond)
	p.parallel = p.job.AtOnce()
	p.st.Export.PageSize = cmp.Or(p.job.PageSize, p.st.Export.PageSize)
	p.st.Engine.PageSize = p.st.Export.PageSize
	if !p.execute {
		return p.print()
	}
	p.announce()
	return p.carryOut(ctx)
}

// jobError gives an error of a job its exit code and its hint.
func jobError(err error) error {
	refused, ok := errors.AsType[*backfill.RefusedError](err)
	switch {
	case !ok && errors.Is(err, bridge.ErrNotOwner):
		return &cli.Error{Code: cli.ExitNotOwner, Err: err, Hint: "wait for the other process or stop it"}
	case !ok:
		return cli.Explain(err)
	}
	j := &refused.Job
	e := &cli.Error{Code: cli.ExitFailed, Err: err, Hint: "exportbridge backfill list"}
	switch refused.Reason {
	case backfill.OtherKind:
		e.Code, e.Hint = cli.ExitUsage, fmt.Sprintf("exportbridge %s --resume %s", j.Kind, j.ID)
	case backfill.WasCancelled:
		e.Hint = jobAnew(j)
	case backfill.OtherResource:
		e.Code, e.Hint = cli.ExitUsage, "EXPORT_RESOURCE="+j.Resource
	case backfill.InUse:
		e.Code, e.Hint = cli.ExitNotOwner, "wait for that process or stop it"
	}
	return e
}

// jobAnew says how what is left of a job that was cancelled can be published.
func jobAnew(j *backfill.Job) string {
	flag := ""
	if j.Kind == backfill.Backfill {
		flag = " --allow-overlap" // what it has published stays
	}
	return fmt.Sprintf("start a new job for the remaining windows in exportbridge backfill list --json: exportbridge %s --from ... --to ...%s", j.Kind, flag)
}

// carryOut runs the windows of a committed job to their end, and says how far it
// came.
func (p *jobPlan) carryOut(ctx context.Context) error {
	process.TuneMemory(p.app.Environ)
	line, began := process.NewStatusLine(p.app.Stderr), time.Now()
	run := backfill.NewRun(p.job, backfill.Worker{
		Jobs: p.jobs, Open: func(j *backfill.Job, n int) (*backfill.Engine, error) { return p.openWindow(line, j, n) },
		Owner: p.log.Owner(p.job.ID), SessionTimeout: p.st.Kafka.SessionTimeout, RateLimit: p.perSecond, By: operator(),
		Retrying: func(err error) { fmt.Fprintf(line, "  retrying: %s\n", process.Printable(err.Error())) },
	})
	telling, stop := context.WithCancel(context.WithoutCancel(ctx))
	var teller sync.WaitGroup
	teller.Go(func() { tellProgress(telling, line, run, began) })
	job, err := run.Do(ctx)
	stop()
	teller.Wait()
	p.job = job
	if err != nil {
		return p.interrupted(err)
	}
	return p.report(time.Since(began))
}

// openWindow makes what a window runs on.
func (p *jobPlan) openWindow(line *process.StatusLine, j *backfill.Job, n int) (*backfill.Engine, error) {
	log := process.NewLogger(line, p.quiet(), p.app.Environ)
	export := p.st.Export
	export.Events, export.RateLimit = j.Events, "" // they share one limit
	api, err := exportapi.New(export)
	if err != nil {
		return nil, err
	}
	kafka := p.st.Kafka.OfWindow(windowOf(j, n))
	kafka.Log, kafka.Report = log.With(process.LogComponent, "kafka"), process.LogChanges(log, "kafka")
	sink, err := kafkasink.New(kafka)
	if err != nil {
		api.Close()
		return nil, err
	}
	cfg := p.st.Engine
	cfg.Owner, cfg.Log = p.s.Owner(), log
	return &backfill.Engine{Config: cfg, Source: api, Sink: sink, Close: func() {
		sink.Close()
		api.Close()
		process.FlushLog(log)
	}}, nil
}

// quiet is the configuration of the log: what a window says of its going well
// is in the progress.
func (p *jobPlan) quiet() *config.Process {
	c := p.s.Process
	if c.LogLevel == "info" {
		c.LogLevel = "warn"
	}
	return &c
}

// interrupted says how far the job came and how to go on with it.
func (p *jobPlan) interrupted(cause error) error {
	resume := fmt.Sprintf("exportbridge %s --resume %s --execute", p.kind, p.job.ID)
	events, _, _ := p.job.Counts()
	e := &cli.Error{Code: cli.ExitFailed, Hint: resume}
	far := fmt.Sprintf("job %s has %d of %s done, %d events so far", p.job.ID, p.job.Ended(), cli.Counted(len(p.job.Windows), "window"), events)
	if blocked, ok := errors.AsType[*bridge.BlockedError](cause); ok {
		e.Code, e.Hint = cli.ExitRefused, blockedHint(blocked, &p.job)+"; then "+resume
	} else if known, ok := errors.AsType[*cli.Error](jobError(cause)); ok && known.Hint != "" {
		e.Code, e.Hint = known.Code, known.Hint+"; then "+resume
	}
	switch {
	case errors.Is(cause, backfill.ErrCancelled):
		e.Hint = "exportbridge backfill list"
	case errors.Is(cause, context.Canceled):
		e.Code, cause = cli.ExitInterrupted, errors.New("interrupted")
	}
	e.Err = fmt.Errorf("%w; %s", cause, far)
	return e
}

// blockedHint is what to do about a window that cannot go on. Its cursor is
// nobody's to move.
func blockedHint(blocked *bridge.BlockedError, j *backfill.Job) string {
	fault, ok := errors.AsType[*bridge.Fault](blocked.Err)
	switch {
	case blocked.Reason == bridge.ReasonCursor:
		return fmt.Sprintf("cancel the job, whose cursor the API no longer accepts: exportbridge backfill cancel %s --execute, then start a new job for the remaining windows", j.ID)
	case ok && fault.Code == bridge.CodeTopicLost:
		return fmt.Sprintf("restore the topic if possible; or cancel the job: exportbridge backfill cancel %s --execute, then start a new job for the whole range", j.ID)
	}
	return blocked.Hint
}
