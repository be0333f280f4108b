package backfill_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest"
)

var (
	tenantA = bridge.SourceIdentity{Organization: "a", Application: "web"}
	tenantB = bridge.SourceIdentity{Organization: "b", Application: "web"}
)

// wantBlocked checks why a run is blocked, and a text of its error.
func wantBlocked(t *testing.T, err error, reason bridge.Reason, text string) {
	t.Helper()
	if blocked, ok := errors.AsType[*bridge.BlockedError](err); !ok || blocked.Reason != reason || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want it blocked (%s): %s", err, reason, text)
	}
}

// TestRunOtherSource: a window publishes nothing of another tenant, and says whose
// the page and whose the stream is.
func TestRunOtherSource(t *testing.T) {
	inOwnWorld(t, 50, func(t *testing.T, w *world) {
		w.identity = tenantB
		plan := w.plan(40, 2)
		plan.Source = tenantA
		_, err := w.start(w.begin(plan)).Do(t.Context())
		wantBlocked(t, err, bridge.ReasonSource, "belongs to b//web, the stream to a//web")
		w.wantOnce(0)
	})
}

// TestRunUnknownSource: a job of a stream of unknown source is of that of its first page,
// in all its windows and also where it is resumed.
func TestRunUnknownSource(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"goes on", "is resumed", "goes on elsewhere"} {
		inWorld(t, 20, func(t *testing.T, w *world) {
			w.identity = tenantA
			w.log.onChange = func(n int) { // the first window has ended
				if n == 2 {
					w.identity = tenantB
				}
			}
			plan := w.plan(20, 2)
			plan.Parallel = 1
			if then != "goes on" {
				w.broken[1] = &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth, Code: "401", Err: errors.New("no key")}
			}
			job := w.begin(plan)
			_, err := w.start(job).Do(t.Context())
			delete(w.broken, 1)
			switch then {
			case "goes on elsewhere": // in a process that has read the job before
				_, err = w.start(job).Do(t.Context())
			case "is resumed":
				job, err2 := w.resume(backfill.Resumption{})
				if err2 != nil || job.Source != tenantA {
					t.Fatalf("resumed %+v, %v", job, err2)
				}
				_, err = w.start(job).Do(t.Context())
			}
			wantBlocked(t, err, bridge.ReasonSource, "")
			w.wantOnce(10)
			w.live = checkpoints{{Source: tenantB}}
			if _, err := w.resume(backfill.Resumption{}); reasonOf(err) != backfill.OtherSource {
				t.Errorf("of a stream of another source: %v", err)
			}
		})
	}
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
			p, err := beside.Plan(t.Context(), &backfill.Spec{Kind: kind, From: second(0), To: second(10)}, time.Now())
			if err != nil || p.Job.Source != tenantA {
				t.Errorf("%s: %+v, %v", kind, p, err)
			}
		}
		// The stream, which was moved, learns its source and the end of its export after the
		// plan: that is executed as planned.
		live.Source = bridge.SourceIdentity{}
		beside.Live = checkpoints{live}
		r := &backfill.Spec{ID: "a2b3c4", Kind: backfill.Replay, From: second(0), To: second(10)}
		p, err := beside.Plan(t.Context(), r, time.Now())
		live.Source, live.MarksEnd = tenantA, true
		beside.Live = checkpoints{live}
		again, err2 := beside.Plan(t.Context(), r, time.Now())
		if err != nil || err2 != nil || !again.Job.MarksEnd || again.Job.Source != tenantA || again.Hash() != p.Hash() {
			t.Errorf("planned %+v, %v, again %+v, %v", p, err, again, err2)
		}
	})
	inWorld(t, 10, func(t *testing.T, w *world) {
		w.begin(w.plan(10, 2))
		w.live = checkpoints{{Source: tenantA}}
		job, err := w.resume(backfill.Resumption{})
		if err != nil || job.Source != tenantA || w.job().Source != tenantA {
			t.Errorf("resumed %+v, %v", job, err)
		}
		w.live = checkpoints{{Source: tenantB}}
		_, err = w.resume(backfill.Resumption{})
		if reasonOf(err) != backfill.OtherSource || !strings.Contains(err.Error(), "a//web") || !strings.Contains(err.Error(), "b//web") {
			t.Errorf("%v", err)
		}
		for _, w.live = range []checkpoints{nil, {{}}, {{Source: tenantA}}} {
			if job, err := w.resume(backfill.Resumption{}); err != nil || job.Source != tenantA {
				t.Errorf("%v: %+v, %v", w.live, job, err)
			}
		}
	})
}

// TestJobRequest: a job is of what the live stream requests, also where it is resumed
// with other settings, and one of an older version takes the stream's.
func TestJobRequest(t *testing.T) {
	t.Parallel()
	request := func(host, tenant string) bridge.Fingerprint {
		return bridge.NewFingerprint([]bridge.RequestPart{{Name: bridge.PartHost, Value: host},
			{Name: bridge.PartParam + "tenant", Value: tenant}})
	}
	live := func(f bridge.Fingerprint) checkpoints {
		return checkpoints{{Origin: bridge.Origin{Start: second(5000), Request: f}, PositionTime: second(6000)}}
	}
	ours := request("a", "one")
	synctest.Test(t, func(t *testing.T) {
		beside, _ := newWorld(t, 10).beside()
		beside.Request = ours
		for f, refused := range map[bridge.Fingerprint]bool{
			"": false, ours: false, request("a", "two"): true, request("b", "one"): true,
		} {
			beside.Live = live(f)
			for _, kind := range []backfill.Kind{backfill.Backfill, backfill.Replay} {
				p, err := beside.Plan(t.Context(), &backfill.Spec{Kind: kind, From: second(0), To: second(10)}, time.Now())
				if refused != (reasonOf(err) == backfill.OtherSource) || !refused && (err != nil || p.Job.Request != ours) {
					t.Errorf("%s of a stream of %q: %+v, %v", kind, f, p, err)
				}
			}
		}
	})
	for name, c := range map[string]struct {
		job, live, settings bridge.Fingerprint
		refused             bool
	}{
		"as before":                        {ours, ours, ours, false},
		"other settings":                   {ours, ours, request("a", "two"), true},
		"the stream moved to another":      {ours, request("a", "two"), request("a", "two"), true},
		"a host that the stream took over": {ours, request("b", "one"), request("b", "one"), false},
		"a host that it did not take over": {ours, ours, request("b", "one"), true},
		"of an older version":              {"", ours, ours, false},
		"of an older version, other now":   {"", ours, request("a", "two"), true},
		"nobody knows":                     {"", "", ours, true},
		"settings of an embedding program": {ours, ours, "", false},
	} {
		inWorld(t, 10, func(t *testing.T, w *world) {
			plan := w.plan(10, 2)
			plan.Kind, plan.Request = backfill.Backfill, c.job
			w.begin(plan)
			w.live, w.request = live(c.live), c.settings
			job, err := w.resume(backfill.Resumption{})
			if refused := reasonOf(err) == backfill.OtherSource; refused != c.refused || !refused && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil && c.settings != "" && job.Request != c.settings {
				t.Errorf("%s: the job has %q", name, job.Request)
			}
		})
	}
}

// TestJobRules: a backfill has the live stream's rules for private data, also where it is
// resumed. A replay has rules of its own, and keeps them.
func TestJobRules(t *testing.T) {
	t.Parallel()
	rules := func(name string) bridge.Fingerprint {
		return bridge.NewFingerprint([]bridge.RequestPart{{Name: bridge.PartHost, Value: "a"}, {Name: bridge.PartRules, Value: name}})
	}
	live := checkpoints{{Origin: bridge.Origin{Start: second(5000), Request: rules("one")}, PositionTime: second(6000)}}
	for _, c := range []struct {
		kind          backfill.Kind
		job, settings string
		plan, resume  bool // refused
	}{
		{backfill.Backfill, "one", "one", false, false},
		{backfill.Backfill, "two", "one", false, false},
		{backfill.Backfill, "two", "two", true, true},
		{backfill.Replay, "two", "two", false, false},
		{backfill.Replay, "one", "two", false, true},
	} {
		inWorld(t, 10, func(t *testing.T, w *world) {
			plan := w.plan(10, 2)
			plan.Kind, plan.Request = c.kind, rules(c.job)
			w.begin(plan)
			w.live, w.request = live, rules(c.settings)
			_, err := w.resume(backfill.Resumption{Kind: c.kind})
			if refused := reasonOf(err) == backfill.OtherSource && strings.Contains(err.Error(), "rules for private data changed"); refused != c.resume ||
				!refused && err != nil {
				t.Errorf("%+v is resumed: %v", c, err)
			}
			beside, _ := w.beside()
			beside.Live, beside.Request = live, rules(c.settings)
			_, err = beside.Plan(t.Context(), &backfill.Spec{Kind: c.kind, From: second(0), To: second(10),
				AllowOverlap: c.kind == backfill.Backfill}, time.Now())
			if refused := reasonOf(err) == backfill.OtherSource; refused != c.plan || !refused && err != nil {
				t.Errorf("%+v is planned: %v", c, err)
			}
		})
	}
}

// TestJobOtherEvents: a job has the ids of the live stream, and a backfill its event types. A
// replay has its own event types.
func TestJobOtherEvents(t *testing.T) {
	t.Parallel()
	live := checkpoints{{Format: 1, Origin: bridge.Origin{Resource: "events", Events: []string{"a"}, ItemID: "/id",
		Start: second(5000)}}}
	for _, c := range []struct {
		kind    backfill.Kind
		ids     string
		events  []string
		refused bool
	}{
		{backfill.Backfill, "/id", []string{"a"}, false},
		{backfill.Backfill, "/id", nil, true},
		{backfill.Backfill, "", []string{"a"}, true},
		{backfill.Replay, "/id", []string{"b"}, false},
		{backfill.Replay, "", []string{"a"}, true},
	} {
		inWorld(t, 10, func(t *testing.T, w *world) {
			wants := func(err error) {
				t.Helper()
				if refused := reasonOf(err) == backfill.OtherOrigin; refused != c.refused || !refused && err != nil {
					t.Errorf("%+v: %v", c, err)
				}
			}
			plan := w.plan(10, 2)
			plan.Kind, plan.Events = c.kind, c.events
			w.begin(plan)
			p := w.planner()
			p.Live, p.ItemID, p.Events = live, c.ids, c.events
			_, err := p.Resumable(t.Context(), &backfill.Resumption{ID: plan.ID})
			wants(err)
			_, err = p.Plan(t.Context(), &backfill.Spec{Kind: c.kind, From: second(0), To: second(10),
				AllowOverlap: c.kind == backfill.Backfill}, time.Now())
			wants(err)
		})
	}
}

// TestRunOtherTopic: a window publishes nothing into a topic that was made again since
// the job began.
func TestRunOtherTopic(t *testing.T) {
	inOwnWorld(t, 50, func(t *testing.T, w *world) {
		plan := w.plan(40, 2)
		plan.Topic, plan.TopicID = "events", "of another topic"
		_, err := w.start(w.begin(plan)).Do(t.Context())
		wantBlocked(t, err, bridge.ReasonTopic, "recreated since the job began")
		w.wantOnce(0)
	})
}

// TestEndedOtherTopic: a job whose windows have all ended is not done if the topic was
// made again before that was committed.
func TestEndedOtherTopic(t *testing.T) {
	inOwnWorld(t, 20, func(t *testing.T, w *world) {
		plan := w.plan(20, 2)
		plan.Topic, plan.TopicID = "events", "topic-0"
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.log.fails[4] = bridgetest.Failed
		w.log.onChange = func(n int) {
			if n == 4 { // after two windows
				cancel()
			}
		}
		if job, err := w.start(w.begin(plan)).Do(ctx); !errors.Is(err, context.Canceled) || job.Ended() != 2 {
			t.Fatalf("%+v, %v", job, err)
		}
		w.topic.Recreate()
		_, err := w.start(w.resumed()).Do(t.Context())
		if wantBlocked(t, err, bridge.ReasonTopic, ""); w.job().State == backfill.Done {
			t.Error("the job is done")
		}
	})
}
