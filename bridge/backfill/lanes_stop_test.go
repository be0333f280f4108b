package backfill_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/must"
)

// TestResumeGivesLanesBack: a resumption in one process that is given up while it waits leaves
// the job to the fleet, and a paused job paused.
func TestResumeGivesLanesBack(t *testing.T) {
	for _, paused := range []bool{false, true} {
		inWorld(t, 130, func(t *testing.T, w *world) {
			f := newFleet(w)
			w.begin(w.divided(120, 4, 2))
			w.log.members = func(string) []bridge.Member { return []bridge.Member{{Process: "killed"}} }
			if paused {
				must.Get(w.jobs.Pause(t.Context(), backfill.Cancellation{ID: "aaaaaa", By: "ann"}, true))(t)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
			defer cancel()
			if _, err := w.planner().Resume(ctx, &backfill.Resumption{ID: "aaaaaa"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("resume says %v", err)
			}
			if j := w.job(); j.Lanes != 2 || j.Paused != paused {
				t.Errorf("the job has %d lanes, paused: %t", j.Lanes, j.Paused)
			}
			f.start()
			<-time.After(10 * time.Minute)
			if state, done := w.job().State, backfill.Done; (state == done) == paused {
				t.Errorf("the job is %s, was paused before: %t", state, paused)
			}
		})
	}
}

// TestPauseOutlastsResumption: a resumption that still waits does not undo a later pause.
func TestPauseOutlastsResumption(t *testing.T) {
	for _, lanes := range []int{0, 2} {
		inWorld(t, 130, func(t *testing.T, w *world) {
			plan, resume := w.plan(120, 4), w.planner().HandOver
			if lanes > 0 {
				plan, resume = w.divided(120, 4, lanes), w.planner().Resume
			}
			w.begin(plan)
			var free atomic.Bool
			w.log.members = func(string) []bridge.Member {
				if free.Load() {
					return nil
				}
				return []bridge.Member{{Process: "other"}}
			}
			time.AfterFunc(2*time.Second, func() {
				if _, err := w.jobs.Pause(context.Background(), backfill.Cancellation{ID: "aaaaaa", By: "ann"}, true); err != nil {
					t.Error(err)
				}
				free.Store(true)
			})
			_, err := resume(t.Context(), &backfill.Resumption{ID: "aaaaaa"})
			refused, ok := errors.AsType[*backfill.RejectedError](err)
			if !ok || refused.Reason != backfill.WasPaused {
				t.Errorf("the resumption says %v", err)
			}
			if j := w.job(); !j.Paused || j.Lanes != lanes {
				t.Errorf("the job has %d lanes, want %d, paused: %t", j.Lanes, lanes, j.Paused)
			}
		})
	}
}

// denying is a Log that may refuse to list the jobs.
type denying struct {
	*planLog
	deny atomic.Bool
}

func (d *denying) Records(
	ctx context.Context, age time.Duration,
) (plans, checkpoints map[string]*kgo.Record, err error) {
	if d.deny.Load() && age > 0 {
		return nil, nil, &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth, Err: errors.New("denied")}
	}
	return d.planLog.Records(ctx, age)
}

// TestLaneStopsUnlisted: while a process cannot list the jobs, its lanes of a cancelled job end
// with their windows. The reason is reported once.
func TestLaneStopsUnlisted(t *testing.T) {
	inOwnWorld(t, 1300, func(t *testing.T, w *world) {
		d := &denying{planLog: w.log}
		w.jobs = backfill.NewJobs(d, stream)
		f := newFleet(w)
		w.begin(w.divided(1200, 40, 2))
		f.start()
		<-time.After(5 * time.Second)
		d.deny.Store(true)
		<-time.After(4 * time.Second)
		must.Get(w.jobs.Cancel(t.Context(), backfill.Cancellation{ID: "aaaaaa", By: "ann"}, true))(t)
		<-time.After(5 * time.Minute)
		if n := len(w.topic.Records()); n == 0 || n >= 1200 || w.runs() > 0 {
			t.Errorf("%d events are published, %d windows run", n, w.runs())
		}
		if _, said := f.told(); len(said) != 1 {
			t.Errorf("%d reasons are reported: %q", len(said), said)
		}
	})
}

// TestLaneStartsAfterDenial: a process that could not list the jobs looks again soon, and at
// once after a reload.
func TestLaneStartsAfterDenial(t *testing.T) {
	for _, reload := range []bool{false, true} {
		inWorld(t, 130, func(t *testing.T, w *world) {
			d := &denying{planLog: w.log}
			w.jobs = backfill.NewJobs(d, stream)
			f := newFleet(w)
			d.deny.Store(true)
			m := f.start()
			defer m.stop()
			<-time.After(time.Second)
			d.deny.Store(false)
			w.begin(w.divided(120, 4, 2))
			within := 35 * time.Second
			if reload {
				within = time.Second
				p := w.planner()
				p.Lane = func(_ string, n int) (backfill.Owner, error) { return owner{f.group(n).Open("")}, nil }
				m.SetPlanners([]*backfill.Planner{p})
			}
			<-time.After(within)
			if w.runs() == 0 && w.job().State == backfill.Running {
				t.Errorf("no lane runs after %s, with a reload: %t", within, reload)
			}
		})
	}
}

// failingOwner is an Owner that cannot acquire.
type failingOwner struct{ closed chan struct{} }

func (o failingOwner) Acquire(context.Context) (bridge.Ownership, error) {
	return nil, &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth, Err: errors.New("denied")}
}

func (o failingOwner) Close(context.Context) error {
	close(o.closed)
	return nil
}

// TestLaneNotAcquired: a process that cannot acquire a lane leaves it to others, and offers it
// anew later.
func TestLaneNotAcquired(t *testing.T) {
	inOwnWorld(t, 130, func(t *testing.T, w *world) {
		f := newFleet(w)
		first, p := failingOwner{make(chan struct{})}, w.planner()
		var offers atomic.Int32
		p.Lane = func(_ string, n int) (backfill.Owner, error) {
			if offers.Add(1) == 1 {
				return first, nil
			}
			return owner{f.group(n).Open("")}, nil
		}
		m := f.start()
		defer m.stop()
		m.SetPlanners([]*backfill.Planner{p})
		w.begin(w.divided(120, 4, 1))
		<-time.After(5 * time.Second)
		select {
		case <-first.closed:
		default:
			t.Error("the lane stays on the list of the process")
		}
		w.await(backfill.Done)
		w.wantOnce(120)
	})
}

// TestEndedIsNotPaused: a paused job that is cancelled is not paused any more.
func TestEndedIsNotPaused(t *testing.T) {
	inOwnWorld(t, 10, func(t *testing.T, w *world) {
		w.begin(w.plan(8, 2))
		by := backfill.Cancellation{ID: "aaaaaa", By: "ann"}
		must.Get(w.jobs.Pause(t.Context(), by, true))(t)
		if job, err := w.jobs.Cancel(t.Context(), by, true); err != nil || job.Paused {
			t.Errorf("the job is %+v, %v", job, err)
		}
	})
}
