package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest"
)

// TestRun: all windows are published, each event once, so many at a time, and
// the job says so.
func TestRun(t *testing.T) {
	inOwnWorld(t, 50, func(t *testing.T, w *world) {
		run := w.start(w.begin(w.plan(40, 5)))
		if p := run.Progress(); p != (backfill.Progress{Windows: 5}) {
			t.Errorf("before it begins: %+v", p)
		}
		job, err := run.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.wantOnce(40)
		if sum := job.Totals(); sum.Events != 40 || sum.Pages != 15 || sum.DeadLettered != 0 || job.State != backfill.Done ||
			job.Ended() != 5 || job.By != "a test" || job.Changed == 0 {
			t.Errorf("%+v", job)
		}
		if got := w.job(); got.State != backfill.Done || got.Ended() != 5 || got.Windows[4].Events != 8 ||
			got.Windows[0].Ended != "on its last page" {
			t.Errorf("committed is %+v", got)
		}
		if w.most != 2 || len(w.opened) != 5 || w.running != 0 {
			t.Errorf("%d windows at a time, opened %v", w.most, w.opened)
		}
		if p := run.Progress(); p.Ended != 5 || p.Events != 40 || p.Share != 1 || p.Trouble != "" {
			t.Errorf("at the end: %+v", p)
		}
		for name, source := range w.sources {
			for _, asked := range source.Asked() {
				if !asked.Window || !strings.HasSuffix(name, fmt.Sprintf(".%d-%d", asked.Start, asked.End)) {
					t.Errorf("window %s asks at %+v", name, asked)
				}
			}
		}
	})
}

// TestBegin: a plan that is not committed begins no window, and another one under
// its id is refused.
func TestBegin(t *testing.T) {
	inOwnWorld(t, 10, func(t *testing.T, w *world) {
		w.log.fails[1] = bridgetest.Failed
		plan := w.plan(10, 2)
		if err := w.jobs.Begin(t.Context(), plan, false); !errors.Is(err, bridgetest.ErrDown) {
			t.Fatal(err)
		}
		if all, err := w.jobs.List(t.Context(), 0); len(all) > 0 || err != nil {
			t.Errorf("%v, %v", all, err)
		}
		w.log.fails[2] = bridgetest.Persisted
		if err := w.jobs.Begin(t.Context(), plan, false); !errors.Is(err, bridgetest.ErrDown) {
			t.Fatal(err)
		}
		w.begin(plan) // the same plan once more
		other, bounds := plan, plan
		other.Created++
		bounds.Windows = backfill.Split(plan.From, plan.To, 3)
		for _, p := range []backfill.Job{other, bounds} {
			if err := w.jobs.Begin(t.Context(), p, false); reasonOf(err) != backfill.Exists {
				t.Errorf("another plan: %v", err)
			}
		}
	})
}

func reasonOf(err error) backfill.Reason {
	if refused, ok := errors.AsType[*backfill.RejectedError](err); ok {
		return refused.Reason
	}
	return ""
}

// TestInterrupted: a job goes on where it was, under the limits that it was
// planned with; windows that have ended do not run again.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, after := range []int{50, 150, 350, 450, 550, 750, 950} {
		inWorld(t, 60, func(t *testing.T, w *world) {
			plan := w.plan(60, 3)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*time.Millisecond)
			defer cancel()
			job, err := w.start(w.begin(plan)).Do(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("after %d ms: %v", after, err)
			}
			before := w.job()
			events := before.Totals().Events
			if job.Totals().Events > events || before.State != backfill.Running {
				t.Errorf("after %d ms: it knows of %d events, the list of %d, %s", after, job.Totals().Events, events, before.State)
			}
			w.opened = nil
			resumed := w.resumed()
			if resumed.Totals().Events != events || resumed.AtOnce() != 2 {
				t.Errorf("after %d ms: it goes on with %d events of %d, %d at once", after, resumed.Totals().Events, events, resumed.AtOnce())
			}
			done, err := w.start(resumed).Do(t.Context())
			if err != nil || done.State != backfill.Done || done.Ended() != 3 {
				t.Fatalf("after %d ms: %+v, %v", after, done, err)
			}
			if done.Totals().Events != 60 || len(w.opened) != 3-before.Ended() {
				t.Errorf("after %d ms: %d events; opened %v, of which %d had ended", after, done.Totals().Events, w.opened, before.Ended())
			}
			w.wantOnce(60)
			if _, err := w.resume(backfill.Resumption{}); reasonOf(err) != backfill.IsDone {
				t.Errorf("a job that is done is resumed: %v", err)
			}
		})
	}
}

// TestDoubt: whether or not a failed change of the job, or a failed transaction of a window,
// was persisted, the job ends with no event lost or duplicated.
func TestDoubt(t *testing.T) {
	t.Parallel()
	for _, how := range []bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted} {
		for n := 2; n <= 4; n++ { // two windows, and the end
			inWorld(t, 20, func(t *testing.T, w *world) {
				w.log.fails[n] = how
				job, err := w.start(w.begin(w.plan(20, 2))).Do(t.Context())
				if err != nil || job.State != backfill.Done || job.Ended() != 2 || len(w.said) != 1 ||
					!strings.Contains(w.said[0], bridgetest.ErrDown.Error()) {
					t.Errorf("%s, change %d: %+v, %v, said %v", how, n, job, err, w.said)
				}
				w.wantOnce(20)
			})
		}
		for n := 1; n <= 6; n++ {
			inWorld(t, 20, func(t *testing.T, w *world) {
				w.topic.FailPublish(n, how)
				if _, err := w.start(w.begin(w.plan(20, 2))).Do(t.Context()); err != nil {
					t.Errorf("%s, publish %d: %v", how, n, err)
				}
				w.wantOnce(20)
			})
		}
	}
}

// TestCancel: the process that works on a job stops at once, and nobody resumes
// it.
func TestCancel(t *testing.T) {
	inOwnWorld(t, 60, func(t *testing.T, w *world) {
		c := backfill.Cancellation{ID: "aaaaaa", By: "you", Why: "wrong bounds"}
		if _, err := w.jobs.Cancel(t.Context(), c, true); reasonOf(err) != backfill.Unknown {
			t.Errorf("a job that is not there: %v", err)
		}
		run := w.start(w.begin(w.plan(60, 3)))
		time.AfterFunc(300*time.Millisecond, func() {
			if job, err := w.jobs.Cancel(t.Context(), c, false); err != nil || job.State != backfill.Running || w.job().State != backfill.Running {
				t.Errorf("a dry run: %+v, %v", job, err)
			}
			if job, err := w.jobs.Cancel(t.Context(), c, true); err != nil || job.State != backfill.Cancelled {
				t.Errorf("%+v, %v", job, err)
			}
		})
		began := time.Now()
		job, err := run.Do(t.Context())
		if !errors.Is(err, backfill.ErrCancelled) || !strings.Contains(err.Error(), "by you (wrong bounds)") ||
			time.Since(began) > time.Second || job.ID != "aaaaaa" {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		left := len(w.topic.Records())
		if _, err := w.resume(backfill.Resumption{}); reasonOf(err) != backfill.WasCancelled ||
			!strings.Contains(err.Error(), "was cancelled by you (wrong bounds) and cannot be resumed") {
			t.Errorf("resumed: %v", err)
		}
		if again, err := w.jobs.Cancel(t.Context(), backfill.Cancellation{ID: "aaaaaa", By: "another"}, true); err != nil || again.By != "you" {
			t.Errorf("cancelled again: %+v, %v", again, err)
		}
		if got := w.job(); got.State != backfill.Cancelled || len(w.topic.Records()) != left || left >= 60 {
			t.Errorf("%+v, %d events", got, left)
		}
	})
}

// TestCancelAtTheEnd: a job that was cancelled does not become done.
func TestCancelAtTheEnd(t *testing.T) {
	inOwnWorld(t, 10, func(t *testing.T, w *world) {
		run := w.start(w.begin(w.plan(10, 1)))
		w.log.onChange = func(n int) {
			if n != 3 { // the plan, the window, and now the end
				return
			}
			w.log.onChange = nil
			if _, err := w.jobs.Cancel(t.Context(), backfill.Cancellation{ID: "aaaaaa", By: "you"}, true); err != nil {
				t.Error(err)
			}
		}
		if _, err := run.Do(t.Context()); !errors.Is(err, backfill.ErrCancelled) || w.job().State != backfill.Cancelled {
			t.Errorf("%v, %s", err, w.job().State)
		}
		if _, err := w.jobs.Cancel(t.Context(), backfill.Cancellation{ID: "aaaaaa"}, true); err != nil {
			t.Error(err)
		}
	})
}

// TestPlanGone: a job whose plan was taken away, or has other windows, does not
// go on.
func TestPlanGone(t *testing.T) {
	t.Parallel()
	for _, windows := range []int{0, 3} {
		inWorld(t, 10, func(t *testing.T, w *world) {
			run := w.start(w.begin(w.plan(10, 2)))
			w.log.onChange = func(int) {
				w.log.mu.Lock()
				defer w.log.mu.Unlock()
				delete(w.log.plans, "aaaaaa")
				if windows > 0 {
					w.log.mu.Unlock()
					w.log.put("aaaaaa", `{"v":1,"id":"aaaaaa","stream":"events","windows":[{},{}]}`)
					w.log.mu.Lock()
				}
			}
			if _, err := run.Do(t.Context()); reasonOf(err) != backfill.OtherPlan {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestBlocked: a window that cannot go on stops the others, and the job can be
// resumed when that is over.
func TestBlocked(t *testing.T) {
	inOwnWorld(t, 40, func(t *testing.T, w *world) {
		w.broken[1] = &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth, Code: "401", Err: errors.New("no key")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := w.start(w.begin(w.plan(40, 2))).Do(ctx)
		if _, blocked := errors.AsType[*bridge.BlockedError](err); !blocked {
			t.Fatalf("%v, want the window to be blocked", err)
		}
		delete(w.broken, 1)
		if _, err := w.start(w.resumed()).Do(t.Context()); err != nil {
			t.Error(err)
		}
		w.wantOnce(40)
	})
}

// TestOtherIDs: a window goes on only with the ids that its tail was written with.
func TestOtherIDs(t *testing.T) {
	inOwnWorld(t, 60, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 350*time.Millisecond)
		defer cancel()
		if _, err := w.start(w.begin(w.plan(60, 3))).Do(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		resume := func(ids string) error {
			w.ids = ids
			job := w.resumed()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := w.start(job).Do(ctx)
			return err
		}
		if blocked, ok := errors.AsType[*bridge.BlockedError](resume("/id")); !ok || !strings.Contains(blocked.Error(), "ids at /id") {
			t.Errorf("with other ids: %v", blocked)
		}
		if err := resume(""); err != nil {
			t.Error(err)
		}
		w.wantOnce(60)
	})
}

// TestOwnership: only one process works on a job, and one that loses it for a
// while goes on.
func TestOwnership(t *testing.T) {
	inOwnWorld(t, 60, func(t *testing.T, w *world) {
		job := w.begin(w.plan(60, 3))
		first, other := w.start(job), w.start(job)
		ended := make(chan error, 1)
		go func() { // waited for below
			_, err := first.Do(t.Context())
			ended <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begun := len(w.opened)
		if _, err := other.Do(ctx); err == nil || len(w.opened) != begun {
			t.Errorf("two processes have worked on the job: %v, opened %v", err, w.opened)
		}
		w.opened = nil
		w.group.Expire()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(w.opened) != 3 {
			t.Errorf("opened after the loss are %v, want all that had not ended", w.opened)
		}
		w.wantOnce(60)
	})
}

// TestLostAtTheEnd: a window has ended, and before that is recorded the job is
// lost. The end of the job records it.
func TestLostAtTheEnd(t *testing.T) {
	inOwnWorld(t, 20, func(t *testing.T, w *world) {
		w.log.fails[2] = bridgetest.Failed
		w.log.onChange = func(n int) {
			if n == 2 {
				w.group.Expire()
				<-time.After(time.Millisecond)
			}
		}
		plan := w.plan(20, 2)
		plan.Parallel = 1
		job, err := w.start(w.begin(plan)).Do(t.Context())
		if got := w.job(); err != nil || job.Ended() != 2 || got.Ended() != 2 || got.Windows[0].Events != 10 || len(w.opened) != 2 {
			t.Errorf("%+v, %v; committed %+v, opened %v", job, err, got, w.opened)
		}
	})
}

// TestSharedLimit: the windows of a job share one limit, and a stop does not wait
// for a turn.
func TestSharedLimit(t *testing.T) {
	inOwnWorld(t, 60, func(t *testing.T, w *world) {
		w.limit = 2
		began := time.Now()
		if _, err := w.start(w.begin(w.plan(60, 3))).Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		requests := 0
		for _, source := range w.sources {
			requests += source.Requests()
		}
		if took, least := time.Since(began), time.Duration(requests-1)*500*time.Millisecond; took < least || took > least+2*time.Second {
			t.Errorf("%d requests at 2/s took %s", requests, took)
		}
		w.wantOnce(60)

		w = newWorld(t, 60)
		w.limit = 0.001
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := w.start(w.begin(w.plan(60, 3))).Do(ctx); err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestResume: new limits are committed, others are kept, and what the job is not
// is refused before anything changes.
func TestResume(t *testing.T) {
	inOwnWorld(t, 10, func(t *testing.T, w *world) {
		if _, err := w.resume(backfill.Resumption{}); reasonOf(err) != backfill.Unknown || err.Error() != "stream events has no job aaaaaa" {
			t.Errorf("no job: %v", err)
		}
		plan := w.plan(10, 4)
		plan.RateLimit = 2.5
		w.begin(plan)
		job, err := w.resume(backfill.Resumption{})
		if err != nil || job.RateLimit != 2.5 || job.AtOnce() != 2 || job.PageSize != 4 {
			t.Errorf("as planned: %+v, %v", job, err)
		}
		dry := backfill.Resumption{ID: "aaaaaa", Kind: backfill.Backfill, RateLimit: new(9.0), Parallel: new(3)}
		if job, err = w.planner().Resumable(t.Context(), &dry); err != nil || job.RateLimit != 9 || job.AtOnce() != 3 ||
			w.job().RateLimit != 2.5 {
			t.Errorf("a dry run: %+v, %v; committed %+v", job, err, w.job())
		}
		job, err = w.resume(backfill.Resumption{RateLimit: new(9.0), Parallel: new(3)})
		if got := w.job(); err != nil || job.RateLimit != 9 || got.RateLimit != 9 || got.Parallel != 3 ||
			!slices.Equal(got.Windows, plan.Windows) {
			t.Errorf("with new limits: %+v, %v; committed %+v", job, err, got)
		}
		other := w.planner()
		_, err = other.Resumable(t.Context(), &backfill.Resumption{ID: "aaaaaa", Kind: backfill.Replay})
		other.Resource = "sessions"
		_, err2 := other.Resumable(t.Context(), &backfill.Resumption{ID: "aaaaaa"})
		if reasonOf(err) != backfill.OtherKind || reasonOf(err2) != backfill.OtherResource {
			t.Errorf("another kind: %v, another resource: %v", err, err2)
		}
	})
}

// TestResumeBusy: a process that was killed is waited for until its session is
// over, one that works on the job keeps it.
func TestResumeBusy(t *testing.T) {
	inOwnWorld(t, 10, func(t *testing.T, w *world) {
		w.begin(w.plan(10, 2))
		began := time.Now()
		var said []string
		busy := func(until time.Duration) backfill.Resumption {
			w.log.members = func(string) []bridge.Member {
				if time.Since(began) < until {
					return []bridge.Member{{ClientID: "somebody", Host: "/10.0.0.1"}}
				}
				return nil
			}
			return backfill.Resumption{Waiting: func(process string) { said = append(said, process) }}
		}
		if _, err := w.resume(busy(8 * time.Second)); err != nil || time.Since(began) < 8*time.Second ||
			!slices.Equal(said, []string{"somebody at /10.0.0.1"}) {
			t.Errorf("after %s: %v, said %v", time.Since(began), err, said)
		}
		began = time.Now()
		if _, err := w.resume(busy(time.Hour)); reasonOf(err) != backfill.InUse ||
			!strings.Contains(err.Error(), "is running job aaaaaa") || time.Since(began) > time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
