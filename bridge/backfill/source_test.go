package backfill_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
)

var (
	tenantA = bridge.SourceIdentity{Organization: "a", Application: "web"}
	tenantB = bridge.SourceIdentity{Organization: "b", Application: "web"}
)

// TestRunOtherSource: a window publishes nothing of another tenant, and says whose
// the page and whose the stream is.
func TestRunOtherSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 50)
		w.identity = tenantB
		plan := w.plan(40, 2)
		plan.Source = tenantA
		_, err := w.start(w.begin(plan)).Do(t.Context())
		blocked, ok := errors.AsType[*bridge.BlockedError](err)
		if !ok || blocked.Reason != bridge.ReasonSource || !strings.Contains(err.Error(), "belongs to b//web, the stream to a//web") {
			t.Errorf("%v", err)
		}
		w.wantOnce(0)
	})
}

// TestPlanSource: a job has the live stream's source. A job without one takes it when it
// is resumed, and a job of another source is not resumed.
func TestPlanSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		beside, _ := newWorld(t, 10).beside()
		live := bridge.Checkpoint{Source: tenantA, Origin: bridge.Origin{Start: second(5000)}, PositionTime: second(6000)}
		beside.Live = checkpoints{live}
		for _, kind := range []backfill.Kind{backfill.Backfill, backfill.Replay} {
			p, err := beside.Plan(t.Context(), &backfill.Request{Kind: kind, From: second(0), To: second(10)}, time.Now())
			if err != nil || p.Job.Source != tenantA {
				t.Errorf("%s: %+v, %v", kind, p, err)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10)
		w.begin(w.plan(10, 2))
		job, err := w.resume(backfill.Resumption{Live: checkpoints{{Source: tenantA}}})
		if err != nil || job.Source != tenantA || w.job().Source != tenantA {
			t.Errorf("resumed %+v, %v", job, err)
		}
		_, err = w.resume(backfill.Resumption{Live: checkpoints{{Source: tenantB}}})
		if reasonOf(err) != backfill.OtherSource || !strings.Contains(err.Error(), "a//web") || !strings.Contains(err.Error(), "b//web") {
			t.Errorf("%v", err)
		}
		for _, live := range []checkpoints{nil, {{}}, {{Source: tenantA}}} {
			if job, err := w.resume(backfill.Resumption{Live: live}); err != nil || job.Source != tenantA {
				t.Errorf("%v: %+v, %v", live, job, err)
			}
		}
	})
}

// TestRunOtherTopic: a window publishes nothing into a topic that was made again since
// the job began.
func TestRunOtherTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 50)
		plan := w.plan(40, 2)
		plan.Topic, plan.TopicID = "events", "of another topic"
		_, err := w.start(w.begin(plan)).Do(t.Context())
		if blocked, ok := errors.AsType[*bridge.BlockedError](err); !ok || blocked.Reason != bridge.ReasonTopic || !strings.Contains(err.Error(), "recreated since the job began") {
			t.Errorf("%v", err)
		}
		w.wantOnce(0)
	})
}
