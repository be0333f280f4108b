package backfill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
)

const (
	// ownTimeout bounds the wait for ownership of the job, beyond the session of
	// another process.
	ownTimeout = 30 * time.Second
	// leaveTimeout bounds leaving the job's group.
	leaveTimeout = 3 * time.Second
	// changeGrace is how long a run that stops waits for its last change of the job.
	// The next run repeats that change.
	changeGrace = 3 * time.Second
)

// Why a run stops before all windows have ended.
var (
	// ErrCancelled means that the job was cancelled while it ran.
	ErrCancelled = errors.New("the job was cancelled")
	// ErrPaused means that the job was paused while it ran.
	ErrPaused = errors.New("the job was paused")
	errLost   = errors.New("ownership of the job was lost")
)

// Owner assigns a job to one of several processes.
type Owner interface {
	bridge.Owner
	Close(ctx context.Context) error
}

// leave closes an Owner, also once ctx has ended.
func leave(ctx context.Context, owner Owner) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	_ = owner.Close(ctx) // after a failure the session times out
}

// Setup has the configuration and the ports of a window's engine. A Run sets the
// window's bounds and names.
type Setup struct {
	Config engine.Config
	Source bridge.Source
	// Ranges wraps the Source to list ranges. Only jobs of a stream that follows windows need
	// it: the Source of one that follows a cursor reads ranges directly.
	Ranges func(bridge.Source) bridge.Source
	Sink   bridge.Sink
	// Close closes both ports.
	Close func()
}

// Run runs a job in this process, with an engine for each window.
type Run struct {
	planner *Planner
	job     Job
	by      string        // the operator, recorded in the job
	owner   Owner         // acquires the job for this process; Do closes it
	limit   *rate.Limiter // of all windows together
	// lane is the lane that it runs, nil in a run of the whole job; over is the finished
	// job, set by the run of a lane that ended its last window. left: the lane is not to run
	// any more.
	lane bridge.Ownership
	over *Job
	left bool
	// maxWindows bounds the windows that run at a time, as the job's Parallel does; 0
	// is no bound.
	maxWindows int
	// warnOutside logs events outside the range once.
	warnOutside sync.Once

	mu      sync.Mutex             // guards all below
	engines map[int]*engine.Engine // of the running windows
	// windows are the job's, with the newest counts.
	windows []Window
	// source is the job's or, if that is unknown, the first that a window has found.
	source bridge.SourceIdentity
	paged  bool // the API has named a next page
}

// Run returns the run of a committed job, from Begin or Resume, for the operator by.
func (p *Planner) Run(job Job, by string) *Run {
	r := p.newRun(job, by)
	r.owner = p.Owner(job.ID)
	r.setLimit(&job, 1)
	return r
}

func (p *Planner) newRun(job Job, by string) *Run {
	return &Run{
		planner: p, job: job, by: by, limit: rate.NewLimiter(rate.Inf, 1),
		engines: make(map[int]*engine.Engine), windows: slices.Clone(job.Windows), source: job.Source,
		paged: job.Paged || slices.ContainsFunc(job.Windows, func(w Window) bool { return w.Pages > 1 }),
	}
}

// setLimit gives the run a share of the job's rate limit. The limiter of a lane starts empty:
// its first request waits, too, so that many lanes, or restarts of lanes, do not exceed the
// limit.
func (r *Run) setLimit(job *Job, share float64) {
	limit := rate.Inf
	if perSecond := cmp.Or(job.RateLimit, r.planner.RateLimit); perSecond > 0 {
		limit = rate.Limit(perSecond * share)
	}
	starts := r.lane != nil && r.limit.Limit() == rate.Inf
	if r.limit.SetLimit(limit); starts {
		r.limit.Allow()
	}
}

// Do runs all windows to their end and returns the job in its last state. ErrCancelled
// means that the job was cancelled, bridge.ErrNotOwner that another process owns it. After
// any other error the job can be resumed.
func (r *Run) Do(ctx context.Context) (Job, error) {
	defer leave(ctx, r.owner)
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
		// Another process owns the job, which own reports, or Kafka was unreachable.
	}
}

// state is the job with the newest counts.
func (r *Run) state() Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := r.job
	job.Windows = slices.Clone(r.windows)
	return job
}

// own acquires the job, unless another process owns it. It retries unreachable brokers.
func (r *Run) own(ctx context.Context) (bridge.Ownership, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, r.planner.SessionTimeout+ownTimeout)
		owned, err := r.owner.Acquire(limited)
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

// watched runs the windows until all have ended, the job is cancelled or ownership
// is lost.
func (r *Run) watched(ctx context.Context, owned bridge.Ownership) error {
	ctx, stop := context.WithCancelCause(ctx)
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	helpers.Go(func() {
		err := r.planner.Jobs.Watch(beside, r.job.ID, func(j Job) {
			switch {
			case j.State == Cancelled:
				stop(fmt.Errorf("%w%s", ErrCancelled, j.ByWhom()))
			case j.Paused && j.Revision > r.job.Revision:
				stop(fmt.Errorf("%w%s", ErrPaused, j.ByWhom()))
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

// runAll runs the windows, several at a time. The first error stops the other windows at
// the end of their transactions.
func (r *Run) runAll(ctx context.Context, stop context.CancelCauseFunc) error {
	var left []int
	for n := range r.windows { // nothing changes them yet
		if r.windows[n].Ended == "" {
			left = append(left, n)
		}
	}
	if n := len(r.job.Windows) - 1; r.job.Ended() > n {
		left = []int{n} // its session checks whether the topic is still the job's
	}
	queue := make(chan int)
	var workers sync.WaitGroup
	for range min(r.job.AtOnce(), cmp.Or(r.maxWindows, len(left)), len(left)) {
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
	setup, err := r.planner.Open(&r.job, n)
	if err != nil {
		return err
	}
	defer setup.Close()
	w, cfg := r.job.Windows[n], setup.Config
	cfg.Stream, cfg.Topic, cfg.TopicIDs, cfg.Mode = r.job.WindowName(n), r.job.Topic, r.job.topicIDs(), bridge.ExactlyOnce
	cfg.Routes = r.job.Routes
	cfg.Origin = bridge.Origin{
		Resource: r.job.Resource, Events: r.job.Events, ItemID: cfg.Origin.ItemID, Start: w.From, End: w.To,
	}
	cfg.OnInvalidCursor, cfg.MarksEnd = "stop", r.job.MarksEnd || r.job.lists() // a window has no history
	cfg.CursorHeeded = r.cursorHeeded()
	source := bridge.Source(windowSource{setup.Source, r, &cfg})
	if r.job.lists() {
		source = setup.Ranges(source)
	}
	ports := engine.Ports{Source: source, Sink: windowSink{setup.Sink, r, cfg.Log}}
	if r.lane != nil {
		ports.Owner = held{r.lane}
	}
	e, err := engine.New(cfg, ports)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.engines[n] = e
	r.mu.Unlock()
	if err := e.Run(ctx); err != nil || w.Ended != "" {
		return err
	}
	return r.windowEnded(ctx, n, e.Status())
}

// cursorHeeded reports whether the API is known to heed the cursor. A window that read the first page twice has
// two pages.
func (r *Run) cursorHeeded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.job.CursorHeeded || slices.ContainsFunc(r.windows, func(w Window) bool { return w.Pages > 2 })
}

// windowEnded records the result of a window that has ended. The window's checkpoint has
// that result already: after a failure it is recorded at the end of the job, or by the
// next process.
func (r *Run) windowEnded(ctx context.Context, n int, s bridge.Status) error {
	result := r.job.Windows[n]
	result.Events, result.Pages, result.DeadLettered = s.Events, s.Pages, s.DeadLettered
	result.Outside, result.Dropped = s.Outside, s.Dropped
	if s.Ended != "" && s.EndedEmpty == 0 {
		result.Pages++ // the last page, whose cursor stays; empty pages have others
	}
	result.Position, result.EndedEmpty = cmp.Or(bridge.Millis(s.Position), result.Position), s.EndedEmpty
	_, result.Ended, _ = strings.Cut(s.Ended, "ended ")
	r.mu.Lock()
	delete(r.engines, n)
	r.windows[n] = result
	r.mu.Unlock()
	if s.Ended == "" {
		return nil
	}
	job, err := r.change(ctx, func(have *Job) error {
		have.Windows[n] = result
		if r.lane != nil {
			r.finish(have)
		}
		return nil
	})
	if err == nil && r.lane != nil {
		if job.State == Done {
			r.over = &job
		}
		// Lanes sees it earlier, unless it cannot list the jobs.
		r.left = !job.inFleet() || job.Lanes != r.job.Lanes
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // see above
	}
	return err
}

// change commits a change of the job. It retries unreachable brokers until ctx ends. Then
// the attempt in progress has changeGrace to finish.
func (r *Run) change(ctx context.Context, change func(have *Job) error) (Job, error) {
	attempt, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(changeGrace, cancel) })()
	for {
		job, err := r.planner.Jobs.change(attempt, r.job.ID, func(have Job) (Job, error) {
			if !have.sameBounds(&r.job) {
				return have, reject(OtherPlan, &have, "the plan of job %s is missing in its topic", r.job.ID)
			}
			err := change(&have)
			return have, err
		})
		fault, ok := errors.AsType[*bridge.Fault](err)
		switch {
		case ok && fault.Class == bridge.Permanent:
			return job, err
		case ctx.Err() != nil && (ok || errors.Is(err, context.Canceled)):
			return job, ctx.Err()
		case !ok:
			return job, err
		}
		if r.planner.Retrying != nil {
			r.planner.Retrying(err)
		}
	}
}

// done commits that the job is done, unless it was cancelled.
func (r *Run) done(ctx context.Context) (Job, error) {
	job, err := r.change(ctx, func(have *Job) error {
		if have.State == Cancelled {
			return fmt.Errorf("%w%s", ErrCancelled, have.ByWhom())
		}
		copy(have.Windows, r.windows)
		r.finish(have)
		return nil
	})
	if err != nil {
		return r.state(), err
	}
	return job, nil
}

// finish has a job be done if all of its windows have ended.
func (r *Run) finish(have *Job) {
	if have.State == Running && have.Ended() == len(have.Windows) {
		have.State, have.Changed, have.By, have.Why = Done, time.Now().UnixMilli(), r.by, ""
		have.Paused = false
	}
}

// windowSource is the Source of a window.
type windowSource struct {
	bridge.Source
	run *Run
	cfg *engine.Config
}

// Fetch implements bridge.Source. Requests wait for the rate limit of the job.
func (s windowSource) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	resume := bridge.Waiting(ctx)
	err := s.run.limit.Wait(ctx)
	resume()
	if err != nil {
		return nil, fmt.Errorf("wait for the rate limit of the job: %w", err)
	}
	return s.Source.Fetch(ctx, at)
}

// Decode implements bridge.Source. It rejects a page of another source than the job's
// other pages, and one that may hide the rest of the window, before the window publishes any
// of it.
func (s windowSource) Decode(page *bridge.Page) error {
	if err := s.Source.Decode(page); err != nil {
		return err
	}
	return cmp.Or(s.run.sameSource(page.Source), s.cutOff(page))
}

// cutOff returns the fault of a page that names no next one, although more events may follow. The
// end of a list that is read by windows is proven.
func (s windowSource) cutOff(page *bridge.Page) error {
	if s.run.job.lists() {
		return nil
	}
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	s.run.paged = s.run.paged || page.Next != "" || page.At.Cursor != ""
	if s.run.paged || s.cfg.EndExplicit || page.Items <= 1 || page.Items < s.cfg.PageSize {
		return nil
	}
	return bridge.Blockf("cut-off", bridge.ReasonConfig, "if more events follow, set EXPORT_CURSOR_FIELD to where "+
		"the next cursor is; cancel the job, and begin one with more windows or another EXPORT_PAGE_SIZE",
		"a full page of %d items names no next one: more events may follow", page.Items)
}

// windowSink is the Sink of a window.
type windowSink struct {
	bridge.Sink
	run *Run
	log *slog.Logger // nil for none
}

// Recover implements bridge.Sink. It rejects a checkpoint of another source: another
// process may have written it since this one read the job.
func (s windowSink) Recover(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	c, err := s.Sink.Recover(ctx, owned)
	if err == nil {
		err = s.run.sameSource(c.Source)
	}
	return c, err
}

// Publish implements bridge.Sink. The first events outside the range are logged.
func (s windowSink) Publish(ctx context.Context, b bridge.Batch) (bridge.Receipt, error) {
	receipt, err := s.Sink.Publish(ctx, b)
	if c := &b.Checkpoint; err == nil && c.Outside > 0 && s.log != nil {
		s.run.warnOutside.Do(func() {
			s.log.Warn("events have a time outside the requested range",
				"events", c.Outside, "of", c.Events, "hint", outsideHint)
		})
	}
	return receipt, err
}

// sameSource rejects a source that a window has found and that is not the job's.
func (r *Run) sameSource(found bridge.SourceIdentity) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = cmp.Or(r.source, found)
	return r.source.Conflict(found)
}

// Progress is the progress of a run.
type Progress struct {
	// Ended of Windows have ended.
	Ended, Windows int
	Events         int64
	// Share and Worked are those of Job.Progress.
	Share, Worked float64
	// Trouble is why a window waits, or empty.
	Trouble string
}

// Progress returns the progress. It may be called concurrently.
func (r *Run) Progress() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	job, trouble := Job{Windows: slices.Clone(r.windows)}, ""
	for n := range job.Windows {
		e, w := r.engines[n], &job.Windows[n]
		if e == nil {
			continue
		}
		s := e.Status()
		w.Events, w.Position = max(w.Events, s.Events), cmp.Or(bridge.Millis(s.Position), w.Position)
		trouble = cmp.Or(s.Error, trouble)
	}
	p := Progress{Ended: job.Ended(), Windows: len(job.Windows), Events: job.Totals().Events, Trouble: trouble}
	p.Share, p.Worked = job.Progress()
	return p
}
