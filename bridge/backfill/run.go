package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
)

const (
	// ownTimeout bounds the wait for the job to be this process's, beyond the
	// session of another one.
	ownTimeout = 30 * time.Second
	// leaveTimeout bounds the goodbye to the other processes.
	leaveTimeout = 3 * time.Second
)

// Why the windows are stopped before they are done.
var (
	// ErrCancelled says that the job was cancelled while it ran.
	ErrCancelled = errors.New("the job was cancelled")
	errLost      = errors.New("the job is not this process's any more")
)

// Owner says which of several processes works on a job.
type Owner interface {
	bridge.Owner
	Close(ctx context.Context) error
}

// Engine is what a window runs on: a configuration, of which a Run sets
// what is the window's, and its ports.
type Engine struct {
	Config bridge.Config
	Source bridge.Source
	Sink   bridge.Sink
	// Close ends both.
	Close func()
}

// Worker is what a process needs to work on a job.
type Worker struct {
	Jobs *Jobs
	// Open makes what window n of the job runs on.
	Open func(j *Job, n int) (*Engine, error)
	// Owner makes the job this process's. Run.Do closes it.
	Owner Owner
	// SessionTimeout is how long a dead process has the job.
	SessionTimeout time.Duration
	// RateLimit is how many requests a second all windows together may make; 0
	// is no limit.
	RateLimit float64
	// By is who works on the job.
	By string
	// Retrying, if not nil, is told why a change of the job is tried again.
	Retrying func(error)
}

// Run is one process at work on a job. Every window is a bridge of its own.
type Run struct {
	Worker
	job   Job
	limit *rate.Limiter // of all windows together; nil is none

	mu    sync.Mutex             // guards all below
	parts map[int]*bridge.Bridge // the windows that run
	// windows are the job's, as far as is known.
	windows []Window
}

// NewRun returns the run of a job that is committed, by Jobs.Begin or
// Jobs.Resume.
func NewRun(job Job, w Worker) *Run {
	r := &Run{Worker: w, job: job, parts: make(map[int]*bridge.Bridge), windows: slices.Clone(job.Windows)}
	if w.RateLimit > 0 {
		r.limit = rate.NewLimiter(rate.Limit(w.RateLimit), 1)
	}
	return r
}

// Do runs the windows of the job to their end, and returns the job as far as it
// came. Without an error it is done. An ErrCancelled says that somebody has
// cancelled it, a bridge.ErrNotOwner that another process has it; after any
// error it can be resumed, unless it was cancelled.
func (r *Run) Do(ctx context.Context) (Job, error) {
	defer func() {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		_ = r.Owner.Close(leaving) // what is not left ends with its session
	}()
	for {
		owned, err := r.own(ctx)
		if err != nil {
			return r.state(), err
		}
		err = r.watched(ctx, owned)
		owned.Release()
		switch {
		case err == nil:
			return r.done(ctx)
		case !errors.Is(err, errLost):
			return r.state(), err
		}
		// Another process has it, which own finds out, or Kafka was away.
	}
}

// state is the job as far as it is known.
func (r *Run) state() Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := r.job
	job.Windows = slices.Clone(r.windows)
	return job
}

// own makes the job this process's, unless another one has it. Brokers that are
// away are waited for.
func (r *Run) own(ctx context.Context) (bridge.Ownership, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, r.SessionTimeout+ownTimeout)
		owned, err := r.Owner.Acquire(limited)
		cancel()
		switch {
		case err == nil:
			return owned, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, bridge.ErrNotOwner), !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
	}
}

// watched runs the windows until all have ended, or the job is not to go on.
func (r *Run) watched(ctx context.Context, owned bridge.Ownership) error {
	ctx, stop := context.WithCancelCause(ctx)
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	helpers.Go(func() {
		err := r.Jobs.Watch(beside, r.job.ID, func(j Job) {
			if j.State == Cancelled {
				stop(fmt.Errorf("%w%s", ErrCancelled, j.ByWhom()))
			}
		})
		if err != nil {
			stop(fmt.Errorf("watch the job: %w", err))
		}
	})
	helpers.Go(func() {
		select {
		case <-owned.Lost():
			stop(errLost)
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
func (r *Run) runAll(ctx context.Context, stop context.CancelCauseFunc) error {
	var left []int
	for n := range r.windows { // nobody changes them yet
		if r.windows[n].Ended == "" {
			left = append(left, n)
		}
	}
	queue := make(chan int)
	var workers sync.WaitGroup
	for range min(r.job.AtOnce(), len(left)) {
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
func (r *Run) runWindow(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return nil
	}
	e, err := r.Open(&r.job, n)
	if err != nil {
		return err
	}
	defer e.Close()
	w, cfg := r.job.Windows[n], e.Config
	cfg.Stream, cfg.Topic, cfg.TopicID, cfg.Mode = r.job.WindowName(n), r.job.Topic, r.job.TopicID, bridge.ExactlyOnce
	cfg.Origin = bridge.Origin{Resource: r.job.Resource, Events: r.job.Events, Start: w.From, End: w.To}
	cfg.OnInvalidCursor = "stop" // a window has no history to go back in
	b, err := bridge.New(cfg, bridge.Ports{Source: r.limited(e.Source), Sink: e.Sink})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.parts[n] = b
	r.mu.Unlock()
	if err := b.Run(ctx); err != nil {
		return err
	}
	return r.windowEnded(ctx, n, b.Status())
}

// windowEnded records what became of a window, if it has ended. Its checkpoint
// said so before: where the record is not made, the end of the job makes it, or
// the next process finds out.
func (r *Run) windowEnded(ctx context.Context, n int, s bridge.Status) error {
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
	_, err := r.change(ctx, func(have *Job) error {
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
func (r *Run) change(ctx context.Context, change func(have *Job) error) (Job, error) {
	for {
		job, err := r.Jobs.change(context.WithoutCancel(ctx), r.job.ID, func(have Job) (Job, error) {
			if !have.sameBounds(&r.job) {
				return have, refuse(OtherPlan, &have, "the plan of job %s is gone from its topic", r.job.ID)
			}
			err := change(&have)
			return have, err
		})
		fault, ok := errors.AsType[*bridge.Fault](err)
		if !ok || fault.Class == bridge.Permanent || ctx.Err() != nil {
			return job, err
		}
		if r.Retrying != nil {
			r.Retrying(err)
		}
	}
}

// done commits that the job is done, unless somebody has cancelled it.
func (r *Run) done(ctx context.Context) (Job, error) {
	job, err := r.change(ctx, func(have *Job) error {
		if have.State == Cancelled {
			return fmt.Errorf("%w%s", ErrCancelled, have.ByWhom())
		}
		copy(have.Windows, r.windows)
		have.State, have.Changed, have.By = Done, time.Now().UnixMilli(), r.By
		return nil
	})
	if err != nil {
		return r.state(), err
	}
	return job, nil
}

// limited has all windows share one limit.
func (r *Run) limited(source bridge.Source) bridge.Source {
	if r.limit == nil {
		return source
	}
	return limitedSource{source, r.limit}
}

// limitedSource is a Source whose requests wait for their turn.
type limitedSource struct {
	bridge.Source
	limit *rate.Limiter
}

// Fetch implements bridge.Source.
func (l limitedSource) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	if err := l.limit.Wait(ctx); err != nil {
		return nil, fmt.Errorf("wait for the rate limit of the job: %w", err)
	}
	return l.Source.Fetch(ctx, at)
}

// Progress is how far a run is.
type Progress struct {
	// Ended of Windows have ended.
	Ended, Windows int
	Events         int64
	// Share is how much of the time between the job's bounds is published, from
	// 0 to 1.
	Share float64
	// Trouble is what a window waits for, or empty.
	Trouble string
}

// Progress returns how far the run is. It may be called at any time.
func (r *Run) Progress() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{Windows: len(r.windows)}
	var passed, all float64
	for n := range r.windows {
		w := r.windows[n]
		if b := r.parts[n]; b != nil {
			s := b.Status()
			w.Events = max(w.Events, s.Events)
			if !s.Position.IsZero() {
				w.Position = s.Position.UnixMilli()
			}
			if s.Error != "" {
				p.Trouble = s.Error
			}
		}
		length := float64(w.To - w.From)
		all += length
		p.Events += w.Events
		switch {
		case w.Ended != "":
			p.Ended++
			passed += length
		case w.Position > w.From:
			passed += float64(min(w.Position, w.To) - w.From)
		}
	}
	p.Share = passed / all
	return p
}
