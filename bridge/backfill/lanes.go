package backfill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"exportbridge/bridge"
)

const (
	// lanesInterval is the time between two listings of the jobs of all streams.
	lanesInterval = 3 * time.Second
	// laneRetry is how long a lane that stopped early is left to other processes.
	laneRetry = 30 * time.Second
	// deniedRetry applies where listing the jobs fails permanently, as without permission:
	// brokers log each refusal.
	deniedRetry = 30 * time.Second
)

// Lanes runs lanes of jobs in a process of a fleet, those that the fleet assigns to it: it
// offers all lanes of the unfinished jobs of its streams. A lane stops at the end of its
// transactions when its job is paused, cancelled or done, when its stream is removed, and
// when Run ends. All methods may be called concurrently.
type Lanes struct {
	// stopped is that of NewLanes.
	stopped func(stream, job string, lane int, err error)
	ended   func(*Job)
	wake    chan struct{}

	mu       sync.Mutex // guards all below
	planners []*Planner // replaced as a whole, never changed
	lanes    map[laneKey]*laneRun
}

// laneKey identifies a lane. A job that is divided anew has other lanes.
type laneKey struct {
	stream, job string
	lane, lanes int
}

// denial is why the jobs of a stream could not be listed, and when to list them again.
type denial struct {
	why   string
	until time.Time
}

// laneRun is a lane that this process offers.
type laneRun struct {
	stop context.CancelFunc
	run  *Run // nil while this process does not run it; guarded by Lanes.mu
}

// NewLanes returns the lanes of the jobs of some streams. It calls stopped when a lane stops
// early and is tried again later, and ended when this process has committed the end of a job.
func NewLanes(planners []*Planner, stopped func(stream, job string, lane int, err error), ended func(*Job)) *Lanes {
	return &Lanes{
		planners: planners, stopped: stopped, ended: ended, wake: make(chan struct{}, 1), lanes: make(map[laneKey]*laneRun),
	}
}

// SetPlanners changes the streams, and has their jobs listed at once. Lanes of other streams
// stop; lanes that run go on as they were planned.
func (l *Lanes) SetPlanners(planners []*Planner) {
	l.mu.Lock()
	l.planners = planners
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run runs lanes until ctx ends, and returns when all have stopped. It is called once.
func (l *Lanes) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(lanesInterval)
	defer tick.Stop()
	denied := make(map[string]denial) // by stream
	for {
		l.look(ctx, denied, func(key laneKey) context.CancelFunc {
			lane, stop := context.WithCancel(ctx)
			running.Go(func() {
				defer stop()
				l.serve(lane, key)
			})
			return stop
		})
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.wake:
			clear(denied)
		}
	}
}

// look lists the jobs, stops the lanes that are not to run any more, and starts those that
// are to be offered from now on.
func (l *Lanes) look(ctx context.Context, denied map[string]denial, start func(laneKey) context.CancelFunc) {
	wanted, unknown := l.list(ctx, denied)
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, run := range l.lanes {
		switch job := wanted[key]; {
		case job != nil && run.run != nil:
			run.run.setLimit(job, job.laneShare())
		case job == nil && !unknown[key.stream]:
			run.stop()
		}
	}
	for key := range wanted {
		if l.lanes[key] == nil && ctx.Err() == nil {
			l.lanes[key] = &laneRun{stop: start(key)}
		}
	}
}

// list returns the lanes that are to run, with their jobs, and the streams whose jobs it
// could not list.
func (l *Lanes) list(ctx context.Context, denied map[string]denial) (wanted map[laneKey]*Job, unknown map[string]bool) {
	l.mu.Lock()
	planners := l.planners
	l.mu.Unlock()
	wanted, unknown = make(map[laneKey]*Job), make(map[string]bool)
	for _, p := range planners {
		was := denied[p.Name()]
		if unknown[p.Name()] = time.Now().Before(was.until); unknown[p.Name()] {
			continue
		}
		jobs, err := p.Jobs.List(ctx, lanesInterval/2)
		switch unknown[p.Name()] = err != nil; {
		case err == nil:
			delete(denied, p.Name())
		case bridge.FaultOf(err).Class == bridge.Permanent && ctx.Err() == nil:
			denied[p.Name()] = denial{err.Error(), time.Now().Add(deniedRetry)}
			if err.Error() != was.why {
				l.stopped(p.Name(), "", 0, err)
			}
		}
		for i := range jobs {
			if !jobs[i].inFleet() {
				continue
			}
			for _, lane := range jobs[i].openLanes() {
				wanted[laneKey{p.Name(), jobs[i].ID, lane, jobs[i].Lanes}] = &jobs[i]
			}
		}
	}
	return wanted, unknown
}

// serve offers a lane until nothing of it is left, it is stopped, or this process cannot
// acquire it. Then others can have the lane for a while, before look offers it anew.
func (l *Lanes) serve(ctx context.Context, key laneKey) {
	defer l.withdraw(key)
	p := l.planner(key.stream)
	if p == nil {
		return
	}
	if err := l.offer(ctx, p, key); err != nil {
		l.stopped(key.stream, key.job, key.lane, err)
		bridge.Sleep(ctx, laneRetry)
	}
}

// offer offers a lane and runs it whenever the fleet assigns it to this process. A lane that
// stops early is offered again after laneRetry. An error means that this process cannot
// acquire the lane.
func (l *Lanes) offer(ctx context.Context, p *Planner, key laneKey) error {
	owner, err := p.Lane(key.job, key.lane)
	if err != nil {
		return err
	}
	defer leave(ctx, owner)
	for ctx.Err() == nil {
		grant, err := owner.Acquire(ctx)
		switch {
		case ctx.Err() != nil && err != nil:
			return nil
		case err != nil:
			return err
		}
		over, err := l.runLane(ctx, key, grant)
		grant.Release()
		switch {
		case over || ctx.Err() != nil:
			return nil
		case err != nil:
			l.stopped(key.stream, key.job, key.lane, err)
			bridge.Sleep(ctx, laneRetry)
		}
	}
	return nil
}

// planner returns the Planner of a stream, nil if there is none any more.
func (l *Lanes) planner(stream string) *Planner {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.planners {
		if p.Name() == stream {
			return p
		}
	}
	return nil
}

func (l *Lanes) withdraw(key laneKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lanes, key)
}

// runLane runs a lane that this process owns. It reports whether nothing of it is left here.
func (l *Lanes) runLane(ctx context.Context, key laneKey, grant bridge.Ownership) (over bool, err error) {
	p := l.planner(key.stream)
	if p == nil {
		return true, nil
	}
	job, err := p.Resumable(ctx, &Resumption{ID: key.job})
	if rejected, ok := errors.AsType[*RejectedError](err); ok {
		switch rejected.Reason {
		case IsDone, WasCancelled, Unknown:
			return true, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("begin a lane of job %s: %w", key.job, err)
	}
	if !job.inFleet() || job.Lanes != key.lanes {
		return true, nil
	}
	run := p.newRun(job, job.Who)
	run.lane = grant
	run.setLimit(&job, job.laneShare())
	l.show(key, run)
	err = run.runLane(ctx, key.lane)
	l.show(key, nil)
	if run.over != nil {
		l.ended(run.over)
	}
	select {
	case <-grant.Lost():
		return false, nil
	default:
		return err == nil, err
	}
}

func (l *Lanes) show(key laneKey, run *Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lanes[key].run = run
}
