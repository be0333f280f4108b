package backfill_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge/backfill"
)

// TestOutside: a job counts the events outside its range, of an API that ignores a bound,
// also where it is interrupted, and the log says so once.
func TestOutside(t *testing.T) {
	t.Parallel()
	for _, after := range []int{3_600_000, 150, 350, 550, 750} {
		synctest.Test(t, func(t *testing.T) {
			w, log := newWorld(t, 30), new(bytes.Buffer)
			w.endless, w.logged = true, slog.New(slog.NewTextHandler(log, nil))
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*time.Millisecond)
			defer cancel()
			job, err := w.start(w.begin(w.plan(10, 1))).Do(ctx)
			if errors.Is(err, context.DeadlineExceeded) {
				so := w.job()
				if sum := so.Totals(); sum.Outside != max(0, sum.Events-10) {
					t.Errorf("after %d ms %d of %d events are outside", after, sum.Outside, sum.Events)
				}
				resumed, err2 := w.resume(backfill.Resumption{})
				if before := so.Totals().Outside; err2 != nil || resumed.Totals().Outside != before {
					t.Errorf("after %d ms: resumed with %d outside, want %d: %v", after, resumed.Totals().Outside, before, err2)
				}
				job, err = w.start(resumed).Do(t.Context())
			}
			listed := w.job()
			if err != nil || job.Totals().Outside != 20 || listed.Totals().Outside != 20 || listed.State != backfill.Done || listed.Missed() {
				t.Errorf("after %d ms: %v, %+v, listed %+v", after, err, job, listed)
			}
			w.wantOnce(30)
			if said := strings.Count(log.String(), "outside the requested range"); said < 1 || said > 2 || after == 3_600_000 && said > 1 {
				t.Errorf("after %d ms the log says so %d times:\n%s", after, said, log)
			}
			if n, err := w.jobs.Tidy(t.Context(), time.Now().Add(backfill.Kept+time.Minute)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if short := w.job(); short.Totals().Outside != 20 || !short.Reduced {
				t.Errorf("what is left when it is tidied: %+v", short)
			}
		})
	}
}

// TestWithin: no event of an API that keeps to the bounds is outside, in several windows
// and from the earliest event on.
func TestWithin(t *testing.T) {
	t.Parallel()
	for _, windows := range []int{1, 4} {
		inWorld(t, 30, func(t *testing.T, w *world) {
			plan := w.plan(20, windows)
			if windows == 1 {
				plan.From, plan.Windows[0].From = 0, 0
			}
			job, err := w.start(w.begin(plan)).Do(t.Context())
			if sum := job.Totals(); err != nil || sum.Outside != 0 || sum.Events != 20 || job.Missed() {
				t.Errorf("%d windows: %d of %d outside, %v", windows, sum.Outside, sum.Events, err)
			}
		})
	}
}

// TestMissed: a job all of whose events are outside its range has not read it. A few
// events, and windows whose events others may have, prove nothing.
func TestMissed(t *testing.T) {
	t.Parallel()
	one := func(events, outside int64) []backfill.Window {
		return []backfill.Window{{Events: events, Outside: outside}}
	}
	for name, c := range map[string]struct {
		job  backfill.Job
		want bool
	}{
		"ten":         {backfill.Job{State: backfill.Done, Windows: one(10, 10)}, true},
		"nine":        {backfill.Job{State: backfill.Done, Windows: one(9, 9)}, false},
		"one inside":  {backfill.Job{State: backfill.Done, Windows: one(617, 616)}, false},
		"not done":    {backfill.Job{State: backfill.Running, Windows: one(10, 10)}, false},
		"two windows": {backfill.Job{State: backfill.Done, Windows: append(one(10, 10), one(10, 10)...)}, false},
		"reduced":     {backfill.Job{State: backfill.Done, Reduced: true, Windows: one(10, 10)}, false},
	} {
		if got := c.job.Missed(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
