package backfill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"exportbridge/bridge"
)

const (
	// HostedWindows is the maximum number of windows that a Host runs at a time,
	// hostedParallel the default of a job.
	HostedWindows  = 4
	hostedParallel = 2
	// keptTroubles is the number of troubles that a Host remembers.
	keptTroubles = 32
)

// ErrStopping means that the process of a Host is shutting down.
var ErrStopping = errors.New("the process is shutting down")

// Host runs jobs in a process that also runs streams: few windows at a time. When the Host
// stops, its jobs stop at the end of their transactions and can be resumed in any process.
// All methods may be called concurrently.
type Host struct {
	ended   func(job *Job, err error)
	starts  chan *hosted
	stopped chan struct{} // closed when no job starts any more

	mu       sync.Mutex         // guards all below
	planners []*Planner         // never changed, but replaced
	jobs     map[string]*hosted // unfinished jobs

	troubles []trouble // oldest first
}

// hosted is a job that this process runs.
type hosted struct {
	id      string
	stream  string
	windows int                                     // that run at a time
	begin   func(ctx context.Context) (*Run, error) // commits the begin of the job
	begun   chan error                              // of begin

	run  *Run               // nil before it has begun; guarded by Host.mu
	stop context.CancelFunc // nil before Run takes the job; guarded by Host.mu
}

// trouble is why a job stopped early.
type trouble struct{ id, text string }

// NewHost returns the host of the jobs of some streams. It calls ended with each job that
// has ended or stopped, and with the error of its Run.
func NewHost(planners []*Planner, ended func(job *Job, err error)) *Host {
	return &Host{
		planners: planners, ended: ended, starts: make(chan *hosted), stopped: make(chan struct{}),
		jobs: make(map[string]*hosted),
	}
}

// Run runs the started jobs until ctx ends, and returns when all have stopped. It is
// called once.
func (h *Host) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	defer close(h.stopped)
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-h.starts:
			running.Go(func() { h.carryOut(ctx, j) })
		}
	}
}

// carryOut begins a job and runs it to its end.
func (h *Host) carryOut(ctx context.Context, j *hosted) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	h.mu.Lock()
	j.stop = stop
	h.stopRemoved()
	h.mu.Unlock()
	run, err := j.begin(ctx)
	if err != nil {
		h.release(j)
		j.begun <- err
		return
	}
	run.maxWindows = HostedWindows
	h.mu.Lock()
	j.run = run
	h.mu.Unlock()
	j.begun <- nil
	job, err := run.Do(ctx)
	if err != nil && !errors.Is(err, ErrCancelled) && !errors.Is(err, ErrPaused) {
		h.mu.Lock()
		h.troubles = append(h.troubles[max(0, len(h.troubles)+1-keptTroubles):], trouble{j.id, err.Error()})
		h.mu.Unlock()
	}
	h.release(j)
	h.ended(&job, err)
}

// Plan plans a job of a stream, as Planner.Plan does. A job of a Host runs at most
// HostedWindows windows at a time, two by default.
func (h *Host) Plan(ctx context.Context, stream string, s *Spec) (*Plan, error) {
	p, err := h.planner(stream)
	if err != nil {
		return nil, err
	}
	own := *s
	if own.Windows = s.windows(); own.Parallel == 0 {
		own.Parallel = min(own.Windows, hostedParallel)
	}
	if own.Parallel > HostedWindows {
		return nil, Invalid("parallel", "is above %d, the maximum beside running streams", HostedWindows)
	}
	return p.Plan(ctx, &own, time.Now())
}

// SetPlanners changes the streams. The jobs of streams that are removed stop at the end of
// their transactions and can be resumed. All others go on as they were planned.
func (h *Host) SetPlanners(planners []*Planner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.planners = planners
	h.stopRemoved()
}

// stopRemoved stops the jobs of streams that the Host no longer has. The caller holds mu.
func (h *Host) stopRemoved() {
	for _, j := range h.jobs {
		if j.stop != nil && !slices.ContainsFunc(h.planners, func(p *Planner) bool { return p.Name() == j.stream }) {
			j.stop()
		}
	}
}

func (h *Host) all() []*Planner {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.planners
}

func (h *Host) planner(stream string) (*Planner, error) {
	for _, p := range h.all() {
		if p.Name() == stream {
			return p, nil
		}
	}
	return nil, fmt.Errorf("unknown stream %q", stream)
}

// Start begins a planned job. It returns when the job is committed and runs. If ctx ends
// earlier, the job may begin nevertheless.
func (h *Host) Start(ctx context.Context, plan *Plan) error {
	p, err := h.planner(plan.Job.Stream)
	if err != nil {
		return err
	}
	return h.start(ctx, &plan.Job, func(ctx context.Context) (*Run, error) {
		job, err := p.Begin(ctx, plan)
		if err != nil {
			return nil, err
		}
		_, _ = p.Jobs.Tidy(ctx, time.Now()) // the next job repeats it
		return p.Run(job, job.Who), nil
	})
}

// Resume resumes a job that no process runs, for the operator by, like Start. Without
// execute, Resume only checks whether the job can be resumed. A job that was planned for
// more than HostedWindows windows at a time keeps its plan.
func (h *Host) Resume(ctx context.Context, id, by string, execute bool) (Job, error) {
	r := &Resumption{ID: id, hasty: true} // an HTTP request cannot wait for another process
	p, job, err := h.search(func(p *Planner) (Job, error) { return p.Resumable(ctx, r) })
	if p == nil || err != nil || !execute {
		return job, err
	}
	return job, h.start(ctx, &job, func(ctx context.Context) (*Run, error) {
		job, err := p.Resume(ctx, r)
		if err != nil {
			return nil, err
		}
		return p.Run(job, by), nil
	})
}

// Cancel cancels a job of any process, as Jobs.Cancel does.
func (h *Host) Cancel(ctx context.Context, c Cancellation, execute bool) (job Job, err error) {
	_, job, err = h.search(func(p *Planner) (Job, error) { return p.Jobs.Cancel(ctx, c, execute) })
	return job, err
}

// search asks the streams for a job until one knows it. What keeps a stream from an answer, such
// as a job that it cannot read, counts only if no other stream knows the job.
func (h *Host) search(ask func(*Planner) (Job, error)) (*Planner, Job, error) {
	var unknown, unanswered error
	for _, p := range h.all() {
		job, err := ask(p)
		_, refused := errors.AsType[*RejectedError](err)
		fault, faulty := errors.AsType[*bridge.Fault](err)
		switch {
		case isUnknown(err):
			unknown = err
		case err == nil, refused:
			return p, job, err
		case faulty && fault.Class == bridge.Transient:
			return nil, job, err // Kafka is away, for all streams
		default:
			unanswered = cmp.Or(unanswered, err)
		}
	}
	return nil, Job{}, cmp.Or(unanswered, unknown)
}

func isUnknown(err error) bool {
	refused, ok := errors.AsType[*RejectedError](err)
	return ok && refused.Reason == Unknown
}

func (h *Host) start(ctx context.Context, job *Job, begin func(context.Context) (*Run, error)) error {
	windows := min(job.AtOnce(), len(job.Windows)-job.Ended(), HostedWindows)
	j := &hosted{id: job.ID, stream: job.Stream, windows: windows, begin: begin, begun: make(chan error, 1)}
	if err := h.reserve(job, j); err != nil {
		return err
	}
	select {
	case h.starts <- j:
	case <-h.stopped:
		h.release(j)
		return ErrStopping
	case <-ctx.Done():
		h.release(j)
		return ctx.Err()
	}
	select {
	case err := <-j.begun:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve adds a job, unless the process would run too many windows.
func (h *Host) reserve(job *Job, j *hosted) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	windows := j.windows
	for id, other := range h.jobs {
		if id == j.id {
			return reject(InUse, job, "this process is running job %s", id)
		}
		windows += other.windows
	}
	if windows > HostedWindows {
		return reject(Busy, job, "this process runs at most %d windows at a time, and its jobs have %d of them",
			HostedWindows, windows-j.windows)
	}
	h.jobs[j.id] = j
	return nil
}

func (h *Host) release(j *hosted) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.jobs, j.id)
}

// Trouble returns why a job waits in this process, or why it stopped in this process and
// is Interrupted; empty if neither. It remembers the last 32 stopped jobs.
func (h *Host) Trouble(l *Listed) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.jobs[l.ID]; j != nil {
		if j.run == nil {
			return ""
		}
		return j.run.Progress().Trouble
	}
	if l.Status() == Interrupted {
		for _, t := range slices.Backward(h.troubles) {
			if t.id == l.ID {
				return t.text
			}
		}
	}
	return ""
}
