package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/cmd/internal/config"
)

// jobRun is one process at work on a job. Every window is a bridge of its own.
type jobRun struct {
	*jobPlan
	line  *statusLine
	limit *rate.Limiter // of all windows together; nil is none
	began time.Time

	mu    sync.Mutex             // guards all below
	parts map[int]*bridge.Bridge // the windows that run
	// windows are the job's, as far as is known.
	windows []kafkasink.JobWindow
}

// Why the windows are stopped before they are done.
var (
	errJobCancelled = errors.New("the job was cancelled")
	errJobLost      = errors.New("the job is not this process's any more")
)

// carryOut runs the windows of a committed job to their end, and says how far it
// came.
func (p *jobPlan) carryOut(ctx context.Context) error {
	tuneMemory(p.app.environ)
	r := &jobRun{
		jobPlan: p, line: newStatusLine(p.app.stderr), began: time.Now(),
		parts: make(map[int]*bridge.Bridge), windows: append([]kafkasink.JobWindow(nil), p.job.Windows...),
	}
	if p.perSecond > 0 {
		r.limit = rate.NewLimiter(rate.Limit(p.perSecond), 1)
	}
	group := p.jobs.Owner(p.job.ID)
	defer func() {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		_ = group.Close(leaving) // what is not left ends with its session
	}()
	for {
		tenure, err := p.own(ctx, group)
		if err != nil {
			return r.interrupted(err)
		}
		err = r.watched(ctx, tenure)
		tenure.Release()
		switch {
		case err == nil:
			return r.done(ctx)
		case !errors.Is(err, errJobLost):
			return r.interrupted(err)
		}
		// Another process has it, which own finds out, or Kafka was away.
	}
}

// watched runs the windows until all are done, or the job is not to go on.
func (r *jobRun) watched(ctx context.Context, tenure bridge.Ownership) error {
	ctx, stop := context.WithCancelCause(ctx)
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	helpers.Go(func() { r.tellProgress(beside) })
	helpers.Go(func() {
		err := r.jobs.Watch(beside, r.job.ID, func(j kafkasink.Job) {
			if j.State == kafkasink.JobCancelled {
				stop(fmt.Errorf("%w%s", errJobCancelled, byWhom(&j)))
			}
		})
		if err != nil {
			stop(fmt.Errorf("watch the job: %w", err))
		}
	})
	helpers.Go(func() {
		select {
		case <-tenure.Lost():
			stop(errJobLost)
		case <-beside.Done():
		}
	})
	err := r.runAll(ctx, stop)
	end()
	helpers.Wait()
	stop(nil)
	return err
}

// runAll runs the windows, so many at a time. The first that cannot go on stops
// the others, at the end of their transactions.
func (r *jobRun) runAll(ctx context.Context, stop context.CancelCauseFunc) error {
	var left []int
	for n := range r.windows { // nobody changes them yet
		if r.windows[n].Ended == "" {
			left = append(left, n)
		}
	}
	queue := make(chan int)
	var workers sync.WaitGroup
	for range min(r.parallel, len(left)) {
		workers.Go(func() {
			for n := range queue {
				if err := r.runWindow(ctx, n); err != nil {
					stop(err)
				}
			}
		})
	}
	for _, n := range left {
		select {
		case queue <- n:
		case <-ctx.Done():
		}
	}
	close(queue)
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// runWindow runs one window to its end, or until ctx ends.
func (r *jobRun) runWindow(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return nil
	}
	log := newLogger(r.line, r.quiet(), r.app.environ)
	defer flushLog(log)
	export := r.st.Export
	export.Events, export.RateLimit = r.job.Events, ""
	api, err := exportapi.New(export)
	if err != nil {
		return err
	}
	defer api.Close()
	kafka := r.st.Kafka.OfWindow(&r.job, n)
	kafka.Log, kafka.Report = log.With(logComponent, "kafka"), sayChanges(log, "kafka")
	sink, err := kafkasink.New(kafka)
	if err != nil {
		return err
	}
	defer sink.Close()
	cfg := r.st.Engine
	cfg.Stream, cfg.Topic, cfg.Mode, cfg.Owner, cfg.Log = kafka.Stream, kafka.Topic, kafka.Mode, r.s.Owner(), log
	cfg.TopicID = r.job.TopicID
	w := r.job.Windows[n]
	cfg.Origin = bridge.Origin{Resource: r.job.Resource, Events: r.job.Events, Start: w.From, End: w.To}
	cfg.OnInvalidCursor = "stop" // a window has no history to go back in
	b, err := bridge.New(cfg, bridge.Ports{Source: r.limited(api), Sink: sink})
	if err != nil {
		return err
	}
	r.runs(n, b)
	if err := b.Run(ctx); err != nil {
		return err
	}
	return r.windowEnded(ctx, n, b.Status())
}

// quiet is the configuration of the log: what a window says of its going well
// is in the progress.
func (r *jobRun) quiet() *config.Process {
	c := r.s.Process
	if c.LogLevel == "info" {
		c.LogLevel = "warn"
	}
	return &c
}

// runs lets the progress see a window that runs.
func (r *jobRun) runs(n int, b *bridge.Bridge) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts[n] = b
}

// windowEnded records what became of a window, if it has ended. Its checkpoint
// said so before: where the record is not made, the end of the job makes it, or
// the next process finds out.
func (r *jobRun) windowEnded(ctx context.Context, n int, s bridge.Status) error {
	result := r.job.Windows[n]
	result.Events, result.Pages, result.DeadLettered = s.Events, s.Pages, s.DeadLettered
	if !s.Position.IsZero() {
		result.Position = s.Position.UnixMilli()
	}
	_, result.Ended, _ = strings.Cut(s.Ended, "ended ")
	r.mu.Lock()
	delete(r.parts, n)
	r.windows[n] = result
	r.mu.Unlock()
	if s.Ended == "" {
		return nil
	}
	_, err := r.change(ctx, func(have *kafkasink.Job) error {
		have.Windows[n] = result
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // see above
	}
	return err
}

// change commits a change of the job. Brokers that do not answer are waited for
// until ctx ends; what is under way then is finished.
func (r *jobRun) change(ctx context.Context, change func(have *kafkasink.Job) error) (kafkasink.Job, error) {
	for {
		job, err := r.jobs.Change(context.WithoutCancel(ctx), r.job.ID, func(have kafkasink.Job) (kafkasink.Job, error) {
			if len(have.Windows) != len(r.job.Windows) {
				return have, fmt.Errorf("the plan of job %s is gone from its topic", r.job.ID)
			}
			err := change(&have)
			return have, err
		})
		fault, ok := errors.AsType[*bridge.Fault](err)
		if !ok || fault.Class == bridge.Permanent || ctx.Err() != nil {
			return job, err
		}
		fmt.Fprintf(r.line, "  tries again: %v\n", err)
	}
}

// done commits that the job is done, unless somebody has cancelled it, and
// reports.
func (r *jobRun) done(ctx context.Context) error {
	job, err := r.change(ctx, func(have *kafkasink.Job) error {
		if have.State == kafkasink.JobCancelled {
			return fmt.Errorf("%w%s", errJobCancelled, byWhom(have))
		}
		copy(have.Windows, r.windows)
		have.State, have.Changed, have.By = kafkasink.JobDone, time.Now().UnixMilli(), operator()
		return nil
	})
	if err != nil {
		return r.interrupted(err)
	}
	r.job = job
	return r.report(time.Since(r.began))
}

// interrupted says how far the job came and how to go on with it.
func (r *jobRun) interrupted(cause error) error {
	resume := fmt.Sprintf("exportbridge %s --resume %s --execute", r.kind, r.job.ID)
	state := kafkasink.Job{Windows: r.windows}
	events, _, _ := state.Counts()
	e := &exitError{code: exitFailed, hint: resume}
	far := fmt.Sprintf("job %s has %d of %s done, %d events so far", r.job.ID, state.Done(), counted(len(r.windows), "window"), events)
	switch {
	case errors.Is(cause, errJobCancelled):
		e.hint = "exportbridge backfill list"
	case errors.Is(cause, context.Canceled):
		e.code, cause = exitInterrupted, errors.New("interrupted")
	}
	if known, ok := errors.AsType[*exitError](cause); ok {
		e.code, e.hint = known.code, known.hint+"; then "+resume
	}
	if blocked, ok := errors.AsType[*bridge.BlockedError](cause); ok {
		e.code, e.hint = exitRefused, blockedHint(blocked, &r.job)+"; then "+resume
	}
	e.err = fmt.Errorf("%w; %s", cause, far)
	return e
}

// blockedHint is what to do about a window that cannot go on. Its cursor is
// nobody's to move.
func blockedHint(blocked *bridge.BlockedError, j *kafkasink.Job) string {
	fault, ok := errors.AsType[*bridge.Fault](blocked.Err)
	switch {
	case blocked.Reason == bridge.ReasonCursor:
		return fmt.Sprintf("the API gave the cursor up: exportbridge backfill cancel %s --execute, and a new job for the windows that are left", j.ID)
	case ok && fault.Code == bridge.CodeTopicLost:
		return fmt.Sprintf("bring the topic back if you can; or begin again: exportbridge backfill cancel %s --execute, and a new job for all of it", j.ID)
	}
	return blocked.Hint
}

// limited has all windows share one limit.
func (r *jobRun) limited(api bridge.Source) bridge.Source {
	if r.limit == nil {
		return api
	}
	return limitedSource{api, r.limit}
}

// limitedSource is a Source whose requests wait for their turn.
type limitedSource struct {
	bridge.Source
	limit *rate.Limiter
}

// Fetch implements bridge.Source.
func (l limitedSource) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	if err := l.limit.Wait(ctx); err != nil {
		return nil, fmt.Errorf("wait for the turn that --rate-limit gives: %w", err)
	}
	return l.Source.Fetch(ctx, at)
}
