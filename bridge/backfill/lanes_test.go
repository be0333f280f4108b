package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
)

// fleet is several processes that share the lanes of a job.
type fleet struct {
	w *world

	mu     sync.Mutex // guards all below
	groups map[int]*bridgetest.Group
	ended  []string
	said   []string
}

func newFleet(w *world) *fleet {
	return &fleet{w: w, groups: make(map[int]*bridgetest.Group)}
}

func (f *fleet) group(lane int) *bridgetest.Group {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.groups[lane] == nil {
		f.groups[lane] = bridgetest.NewGroup(f.w.t)
	}
	return f.groups[lane]
}

// told returns the jobs that have ended, and why lanes stopped early.
func (f *fleet) told() (ended, said []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ended), slices.Clone(f.said)
}

// member is a process of a fleet.
type member struct {
	*backfill.Lanes
	f      *fleet
	mu     sync.Mutex // guards owners
	owners map[int]*bridgetest.Owner
	stop   func()
}

// start starts a process. It ends with the test.
func (f *fleet) start() *member {
	m := &member{f: f, owners: make(map[int]*bridgetest.Owner)}
	p := f.w.planner()
	p.Lane = func(_ string, n int) (backfill.Owner, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.owners[n] = f.group(n).Open("")
		return owner{m.owners[n]}, nil
	}
	m.Lanes = backfill.NewLanes([]*backfill.Planner{p}, func(stream, job string, lane int, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.said = append(f.said, fmt.Sprintf("%s %s %d: %v", stream, job, lane, err))
	}, func(j *backfill.Job) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ended = append(f.ended, j.ID)
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	m.stop = func() { cancel(); running.Wait() }
	f.w.t.Cleanup(m.stop)
	return m
}

// isolate cuts a process off from the coordinator: it loses its lanes after its session.
func (m *member) isolate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for lane, o := range m.owners {
		m.f.group(lane).Isolate(o)
	}
}

// divided is a plan in lanes.
func (w *world) divided(seconds, windows, lanes int) backfill.Job {
	plan := w.plan(seconds, windows)
	plan.Parallel = lanes
	plan.Divide()
	return plan
}

// runs returns the number of windows that run.
func (w *world) runs() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}

// asked returns the number of requests to the API.
func (w *world) asked() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sources {
		n += len(s.Asked())
	}
	return n
}

// await waits until the job is in a state.
func (w *world) await(state backfill.State) {
	w.t.Helper()
	for range 1000 {
		if w.job().State == state {
			return
		}
		<-time.After(time.Second)
	}
	w.t.Fatalf("the job is %+v", w.job())
}

// awaitEvents waits until so many windows run, and events are published.
func (w *world) awaitEvents(windows int) {
	w.t.Helper()
	for range 1000 {
		if w.runs() == windows && len(w.topic.Records()) > 0 {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	w.t.Fatalf("%d windows run, %d events are published", w.runs(), len(w.topic.Records()))
}

// TestLanes: the processes of a fleet share the lanes of a job; each event is published
// once, and the last lane ends the job.
func TestLanes(t *testing.T) {
	inOwnWorld(t, 130, func(t *testing.T, w *world) {
		f := newFleet(w)
		w.begin(w.divided(120, 12, 4))
		for range 3 {
			f.start()
		}
		w.await(backfill.Done)
		synctest.Wait()
		w.wantOnce(120)
		if j := w.job(); j.Ended() != 12 || j.Lanes != 4 || j.Totals().Events != 120 {
			t.Errorf("the job is %+v", j)
		}
		ended, said := f.told()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.most != 4 || len(w.opened) != 12 || w.running != 0 || len(ended) != 1 || len(said) > 0 {
			t.Errorf("%d windows at a time, opened %v; %v ended; said %q", w.most, w.opened, ended, said)
		}
	})
}

// TestLanesMove: lanes that move in order, and those of a process that is cut off, go on in
// another process where they were.
func TestLanesMove(t *testing.T) {
	t.Parallel()
	for after := 50; after < 4000; after += 250 {
		inWorld(t, 130, func(t *testing.T, w *world) {
			f := newFleet(w)
			w.begin(w.divided(120, 6, 3))
			first := f.start()
			<-time.After(time.Duration(after) * time.Millisecond)
			f.start()
			for lane := range 3 {
				f.group(lane).Revoke()
			}
			<-time.After(300 * time.Millisecond)
			first.isolate()
			w.await(backfill.Done)
			w.wantOnce(120)
		})
	}
}

// TestLanesStop: lanes stop when their job is paused, taken to a terminal or cancelled, or
// their stream is removed.
func TestLanesStop(t *testing.T) {
	t.Parallel()
	by := backfill.Cancellation{ID: "aaaaaa", By: "me"}
	for name, test := range map[string]struct {
		stop func(w *world, m *member) error
		goOn func(w *world, m *member) error
	}{
		"pause": {
			func(w *world, _ *member) error { _, err := w.jobs.Pause(w.t.Context(), by, true); return err },
			func(w *world, _ *member) error {
				_, err := w.planner().HandOver(w.t.Context(), &backfill.Resumption{ID: "aaaaaa"})
				return err
			},
		},
		"here": {
			func(w *world, _ *member) error { _, err := w.resume(backfill.Resumption{}); return err },
			func(w *world, _ *member) error {
				_, err := w.planner().HandOver(w.t.Context(), &backfill.Resumption{ID: "aaaaaa"})
				return err
			},
		},
		"removed": {
			func(_ *world, m *member) error { m.SetPlanners(nil); return nil },
			func(w *world, m *member) error { m.stop(); m.f.start(); return nil },
		},
		"stopped": {
			func(_ *world, m *member) error { m.stop(); return nil },
			func(_ *world, m *member) error { m.f.start(); return nil },
		},
		"cancel": {
			func(w *world, _ *member) error { _, err := w.jobs.Cancel(w.t.Context(), by, true); return err }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 230, func(t *testing.T, w *world) {
				m := newFleet(w).start()
				plan := w.divided(220, 4, 2)
				plan.RateLimit = 4
				w.begin(plan)
				w.awaitEvents(2)
				must.Do(t, test.stop(w, m))
				<-time.After(4 * time.Second)
				before := len(w.topic.Records())
				<-time.After(time.Minute)
				if after := len(w.topic.Records()); w.runs() != 0 || after != before || after == 0 || after >= 220 {
					t.Errorf("%d windows run, of %d events %d are published", w.runs(), before, after)
				}
				if test.goOn == nil {
					return
				}
				must.Do(t, test.goOn(w, m))
				w.await(backfill.Done)
				w.wantOnce(220)
			})
		})
	}
}

// TestLanesKeepTheLimit: all lanes in all processes together stay below the job's limit, also
// when some have ended, and when it is changed.
func TestLanesKeepTheLimit(t *testing.T) {
	inOwnWorld(t, 900, func(t *testing.T, w *world) {
		f := newFleet(w)
		plan := w.divided(900, 4, 4)
		plan.RateLimit = 4
		w.begin(plan)
		f.start()
		f.start()
		<-time.After(5 * time.Second)
		for _, limit := range []float64{4, 2} {
			must.Get(w.planner().HandOver(t.Context(), &backfill.Resumption{ID: "aaaaaa", RateLimit: &limit}))(t)
			<-time.After(5 * time.Second)
			before := w.asked()
			<-time.After(10 * time.Second)
			if n := w.asked() - before; n < int(8*limit) || n > int(10*limit)+4 {
				t.Errorf("%d requests in 10 s, with a limit of %g/s", n, limit)
			}
		}
		w.await(backfill.Done)
		w.wantOnce(900)
	})
}

// TestLaneFails: a lane that stops early is tried again; the others go on.
func TestLaneFails(t *testing.T) {
	inOwnWorld(t, 60, func(t *testing.T, w *world) {
		f := newFleet(w)
		w.broken[1] = &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth, Err: errors.New("wrong key")}
		w.begin(w.divided(60, 3, 3))
		f.start()
		<-time.After(time.Minute)
		_, said := f.told()
		if j := w.job(); j.Ended() != 2 || j.State != backfill.Running || len(said) == 0 {
			t.Errorf("the job is %+v, said %q", j, said)
		}
		w.mu.Lock()
		delete(w.broken, 1)
		w.mu.Unlock()
		w.await(backfill.Done)
		w.wantOnce(60)
	})
}

// TestFirstRequestsKeepTheLimit: the first requests of many lanes, and of lanes that start
// again, keep the limit of the job.
func TestFirstRequestsKeepTheLimit(t *testing.T) {
	inOwnWorld(t, 130, func(t *testing.T, w *world) {
		f := newFleet(w)
		plan := w.divided(120, 12, 12)
		plan.RateLimit = 1. / 60
		w.begin(plan)
		m := f.start()
		defer m.stop()
		<-time.After(15 * time.Minute)
		if n := w.asked(); n < 12 || n > 15 {
			t.Errorf("%d requests in 15 minutes, at most one in a minute", n)
		}
		before := w.asked()
		for range 60 {
			<-time.After(9 * time.Second)
			for lane := range 12 {
				f.group(lane).Revoke()
			}
		}
		if n := w.asked() - before; n > 9 {
			t.Errorf("%d requests in nine minutes while lanes start again", n)
		}
	})
}

// TestLaneEndsTheJob: a job whose windows have all ended, but that nobody could commit as
// done, is done.
func TestLaneEndsTheJob(t *testing.T) {
	inOwnWorld(t, 20, func(t *testing.T, w *world) {
		plan := w.divided(20, 2, 2)
		for n := range plan.Windows {
			plan.Windows[n].Ended = "on its last page"
		}
		w.begin(plan)
		newFleet(w).start()
		w.await(backfill.Done)
	})
}

// TestJobsWithoutLanes: a job of one process is not the fleet's.
func TestJobsWithoutLanes(t *testing.T) {
	inOwnWorld(t, 20, func(t *testing.T, w *world) {
		w.begin(w.plan(20, 2))
		newFleet(w).start()
		<-time.After(time.Minute)
		if j := w.job(); j.State != backfill.Running || j.Ended() != 0 || w.runs() != 0 {
			t.Errorf("the job is %+v", j)
		}
	})
}

// TestLaneConfirms: a process that cannot confirm that it owns a lane begins no further window
// of it.
func TestLaneConfirms(t *testing.T) {
	inOwnWorld(t, 90, func(t *testing.T, w *world) {
		f := newFleet(w)
		w.begin(w.divided(80, 4, 1))
		m := f.start()
		<-time.After(700 * time.Millisecond)
		m.isolate()
		<-time.After(8 * time.Second) // within its session
		if n := len(w.topic.Records()); n == 0 || n > 40 {
			t.Errorf("%d events are published", n)
		}
		f.start()
		w.await(backfill.Done)
		w.wantOnce(80)
	})
}
