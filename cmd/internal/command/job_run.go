package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/process"
)

// hosts returns the number of processes that can run the job in lanes, and whether they
// will. A job with lanes keeps them unless --here is set, even if no process is there at
// the moment.
func (p *jobPlan) hosts(ctx context.Context, hasLanes bool) (n int, inLanes bool) {
	if p.here || !p.execute {
		return 0, false
	}
	hosts, err := p.beside.Jobs.Hosts(ctx)
	if err == nil && len(hosts) > 0 {
		return len(hosts), true
	}
	where, why := "runs here", "no process runs the stream, or all have BRIDGE_OWNERSHIP=stream"
	if hasLanes {
		where = "keeps its lanes without --here"
	}
	if err != nil {
		why = fmt.Sprintf("the processes that could run it are unknown: %v", err)
	}
	fmt.Fprintf(p.app.Stderr, "  the job %s: %s\n", where, why)
	return 0, hasLanes
}

// begin commits the plan, and runs the job or hands it over.
func (p *jobPlan) begin(ctx context.Context, plan *backfill.Plan) (err error) {
	hosts, inLanes := p.hosts(ctx, false)
	if inLanes {
		plan.Job.Divide()
	}
	if p.job, err = p.beside.Begin(ctx, plan); err != nil {
		return jobError(err)
	}
	n, err := p.beside.Jobs.Tidy(ctx, time.Now())
	if n > 0 {
		fmt.Fprintf(p.app.Stderr, "  removed the records of %s that ended more than %d days ago\n",
			cli.Counted(n, "job"), int(backfill.Kept.Hours()/24))
	}
	if err != nil { // the new job is not affected
		fmt.Fprintf(p.app.Stderr, "  removing the records of old jobs failed: %v\n", err)
	}
	return p.start(ctx, hosts)
}

// start runs a committed job, unless other processes run it.
func (p *jobPlan) start(ctx context.Context, hosts int) error {
	if p.job.Lanes == 0 {
		p.announce()
		return p.carryOut(ctx)
	}
	if *p.json {
		report := reportOf(&p.job)
		report.Executed = true
		return cli.PrintJSON(p.app.Stdout, report)
	}
	to := ""
	if hosts > 0 {
		to = " to " + cli.Counted(hosts, "process")
	}
	last := fmt.Sprintf("job %s; handed over%s. To see the progress: exportbridge backfill watch %[1]s", p.job.ID, to)
	return p.write(p.app.Stdout, p.app.Advice(last, ""))
}

// goOn resumes an interrupted job.
func (p *jobPlan) goOn(ctx context.Context) (err error) {
	r := &backfill.Resumption{ID: p.resume, Kind: p.kind, Waiting: func(process string) {
		fmt.Fprintf(p.app.Stderr, "  waiting for %s to release the job, for at most %s if it was killed\n", process,
			p.beside.SessionTimeout)
	}}
	if p.limitGiven {
		r.RateLimit = &p.request.RateLimit
	}
	if p.parallelGiven {
		r.Parallel = &p.request.Parallel
	}
	hosts, inLanes := 0, false
	p.job, err = p.beside.Resumable(ctx, r)
	if err == nil && p.execute {
		resume := p.beside.Resume
		if hosts, inLanes = p.hosts(ctx, p.job.Lanes > 0); inLanes {
			resume = p.beside.HandOver
		}
		p.job, err = resume(ctx, r)
	}
	if refused, ok := errors.AsType[*backfill.RejectedError](err); ok && refused.Reason == backfill.IsDone {
		p.job = refused.Job
		return p.report(0)
	}
	if err != nil {
		return jobError(err)
	}
	p.kind = p.job.Kind
	if !p.execute {
		return p.print()
	}
	return p.start(ctx, hosts)
}

// jobError adds the exit code and the hint to an error of a job.
func jobError(err error) error {
	refused, ok := errors.AsType[*backfill.RejectedError](err)
	switch {
	case !ok && errors.Is(err, bridge.ErrNotOwner):
		return cli.Errorf(cli.ExitNotOwner, "wait for the other process or stop it", "%w", err)
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
	case backfill.OtherSource:
		e.Hint = bridge.SameRequestHint
	case backfill.OtherOrigin:
		e.Code, e.Hint = cli.ExitUsage, bridge.SameOriginHint
	case backfill.OtherRoutes:
		e.Code, e.Hint = cli.ExitUsage, bridge.SameRoutesHint
	case backfill.NoBounds:
		return cli.Boundless(err)
	case backfill.Overlaps:
		e.Hint = "choose another range, or add --allow-overlap to publish it again, with the same ce_id"
	case backfill.WasPaused:
		e.Hint = fmt.Sprintf("to end the pause: exportbridge backfill resume %s --execute", j.ID)
	case backfill.InUse:
		e.Code, e.Hint = cli.ExitNotOwner, "wait for that process or stop it"
	}
	return e
}

// jobAnew returns the hint for a cancelled job: how to begin it again.
func jobAnew(j *backfill.Job) string {
	flag := ""
	if j.Kind == backfill.Backfill {
		flag = " --allow-overlap" // the events that the job published stay
	}
	return fmt.Sprintf("exportbridge backfill list --json shows the remaining windows; start a new job for them: "+
		"exportbridge %s --from ... --to ...%s", j.Kind, flag)
}

// carryOut runs the windows of a committed job, and prints the result.
func (p *jobPlan) carryOut(ctx context.Context) error {
	process.TuneMemory(p.app.Environ)
	defer process.FlushLog(p.log)
	began, run := time.Now(), p.beside.Run(p.job, cli.Operator())
	stop := tellProgress(p.line, run.Progress)
	job, err := run.Do(ctx)
	stop()
	p.job = job
	if err != nil {
		return p.interrupted(err)
	}
	return p.report(time.Since(began))
}

// interrupted adds the progress of the job, and the hint to resume it, to an error.
func (p *jobPlan) interrupted(cause error) error {
	resume := fmt.Sprintf("exportbridge %s --resume %s --execute", p.kind, p.job.ID)
	events := p.job.Totals().Events
	e := &cli.Error{Code: cli.ExitFailed, Hint: resume, Unsure: true} // the job has begun
	far := fmt.Sprintf("job %s has %d of %s done, %s so far", p.job.ID, p.job.Ended(),
		cli.Counted(len(p.job.Windows), "window"), cli.Counted(events, "event"))
	if _, blocked := errors.AsType[*bridge.BlockedError](cause); blocked {
		e.Code, e.Hint = cli.ExitRefused, process.JobHint(cause, &p.job, resume)
	} else if known, ok := errors.AsType[*cli.Error](jobError(cause)); ok && known.Hint != "" {
		e.Code, e.Hint = known.Code, known.Hint+"; then "+resume
	}
	switch {
	case errors.Is(cause, backfill.ErrCancelled):
		e.Hint = "exportbridge backfill list"
	case errors.Is(cause, backfill.ErrPaused):
		e.Hint = "exportbridge backfill resume " + p.job.ID + " --execute"
	case errors.Is(cause, context.Canceled):
		e.Code, cause = cli.ExitInterrupted, errors.New("interrupted")
	}
	e.Err = fmt.Errorf("%w; %s", cause, far)
	return e
}
