package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/must"
)

// checkpoints is a bridge.CheckpointLog, newest first.
type checkpoints []bridge.Checkpoint // newest first

func (l checkpoints) Walk(ctx context.Context, visit func(bridge.Checkpoint) bool) error {
	for _, c := range l {
		if !visit(c) {
			break
		}
	}
	return ctx.Err()
}

// TestOverlap: what the stream or a backfill before has published, or will, is
// said.
func TestOverlap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	before := w.plan(100, 1)
	w.begin(before)
	replay := w.plan(300, 1)
	replay.ID, replay.Kind = "bbbbbb", backfill.Replay
	w.begin(replay)
	elsewhere := w.plan(300, 1)
	elsewhere.ID, elsewhere.Topic = "cccccc", "another"
	w.begin(elsewhere)
	at := func(epoch, from, position int64) bridge.Checkpoint {
		return bridge.Checkpoint{Version: bridge.Version{Epoch: epoch, Seq: 3},
			Origin: bridge.Origin{Start: second(int(from))}, PositionTime: second(int(position))}
	}
	older := at(1, 150, 180)
	older.Seq = 2
	live := checkpoints{at(1, 150, 200), older, at(0, 120, 130)}
	for name, test := range map[string]struct {
		from, to int
		live     checkpoints
		want     []string
		begun    bool
	}{
		"a range of nobody":            {100, 120, live, nil, true},
		"a backfill's":                 {99, 120, live, []string{"backfill aaaaaa (running) covers "}, true},
		"the stream's":                 {140, 151, live, []string{"stream events exports events from "}, true},
		"an epoch's before":            {100, 121, live, []string{"before its reset (1.0 or later)"}, true},
		"between two epochs":           {131, 150, live, nil, true},
		"both":                         {50, 500, live, []string{"stream events exports", "backfill aaaaaa"}, true},
		"of a stream that never began": {50, 500, nil, []string{"backfill aaaaaa"}, false},
		"a range of nobody at all":     {200, 500, nil, nil, false},
	} {
		w.live = test.live
		spec := backfill.Spec{Kind: backfill.Backfill, From: second(test.from), To: second(test.to), AllowOverlap: true}
		plan := must.Get(w.planner().Plan(t.Context(), &spec, time.Now()))(t)
		if !test.begun {
			test.want = slices.Insert(test.want, 0, "the stream has not started")
		}
		if !slices.EqualFunc(plan.Notes, test.want, strings.Contains) {
			t.Errorf("%s: %q, want %q", name, plan.Notes, test.want)
		}
	}
}

// TestOverlapOfTwoOperators: of two backfills of one range that two operators begin at the
// same time, one is rejected, unless it may overlap.
func TestOverlapOfTwoOperators(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10)
	w.live = checkpoints{{Origin: bridge.Origin{Start: second(5000)}}}
	planner, ask := w.planner(), ask(40)
	var plans [3]*backfill.Plan
	for i := range plans {
		ask.AllowOverlap = i == 2
		plans[i] = must.Get(planner.Plan(t.Context(), ask, time.Now()))(t)
	}
	for i, want := range []backfill.Reason{"", backfill.Overlaps, ""} {
		if _, err := planner.Begin(t.Context(), plans[i]); reasonOf(err) != want || want == "" && err != nil {
			t.Errorf("operator %d: %v, want %q", i, err, want)
		}
	}
}

// TestList: jobs come oldest first, and each window has what its checkpoint says,
// if its bounds are the plan's.
func TestList(t *testing.T) {
	inOwnWorld(t, 20, func(t *testing.T, w *world) {
		young := w.plan(20, 2)
		young.ID, young.Created = "bbbbbb", young.Created+1
		w.begin(young)
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		if _, err := w.start(w.begin(w.plan(20, 2))).Do(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		all, err := w.jobs.List(t.Context(), 0)
		if err != nil || len(all) != 2 || all[0].ID != "aaaaaa" {
			t.Fatalf("%+v, %v", all, err)
		}
		if a, b := all[0].Windows[0], all[1].Windows[0]; a.Events != 8 || a.Pages != 2 || a.Position != second(7) || b.Events != 0 {
			t.Errorf("windows %+v and %+v", a, b)
		}
		w.log.members = func(id string) []bridge.Member {
			if id == "aaaaaa" {
				return nil
			}
			return []bridge.Member{{ClientID: "somebody"}}
		}
		listed, err := w.jobs.Overview(t.Context(), 0)
		if err != nil || listed[0].Status() != backfill.Interrupted || listed[1].Status() != backfill.Running || len(listed[1].Processes) != 1 {
			t.Errorf("%+v, %v", listed, err)
		}
		// What is recorded of a window that has ended stands.
		w.log.put("aaaaaa", fmt.Sprintf(`{"v":1,"id":"aaaaaa","stream":"events","windows":[{"from":%d,"to":%d,"ended":"so","events":99}]}`, second(0), second(10)))
		if all, err = w.jobs.List(t.Context(), 0); err != nil || all[0].Windows[0].Events != 99 {
			t.Errorf("%+v, %v", all, err)
		}
		// The same job with other windows has reached nothing.
		w.log.put("aaaaaa", fmt.Sprintf(`{"v":1,"id":"aaaaaa","stream":"events","windows":[{"from":%d,"to":%d}]}`, second(0), second(9)))
		if all, err = w.jobs.List(t.Context(), 0); err != nil || all[0].Windows[0].Events != 0 {
			t.Errorf("%+v, %v", all, err)
		}
		w.log.put("bbbbbb", `{"v":1,"id":"bbbbbb","stream":"events","state":"running","windows":[{"to":1,"ended":"so"},{"from":1,"to":2}]}`)
		w.log.put("aaaaaa", `{"v":1,"id":"aaaaaa","stream":"events","state":"done","windows":[{"to":1,"ended":"so"}]}`)
		if count, err := w.jobs.CountWindows(t.Context(), 0); err != nil || !maps.Equal(count, map[string]int{"done": 2, "running": 1}) {
			t.Errorf("%v, %v", count, err)
		}
		w.log.put("cccccc", `{"v":7}`)
		_, err = w.jobs.List(t.Context(), 0)
		if fault, ok := errors.AsType[*bridge.Fault](err); !ok || fault.Class != bridge.Permanent ||
			!errors.Is(err, bridge.ErrForeign) || !strings.Contains(err.Error(), "key job/events/cccccc") {
			t.Errorf("a plan of a newer version: %v", err)
		}
		if err := w.jobs.Begin(t.Context(), backfill.Job{ID: "cccccc"}, false); !errors.Is(err, bridge.ErrForeign) {
			t.Errorf("it is overwritten: %v", err)
		}
	})
}

// TestTidyTogether: of two processes that remove jobs at the same time, each job is removed by one, and neither fails.
func TestTidyTogether(t *testing.T) {
	inOwnWorld(t, 4, func(t *testing.T, w *world) {
		for id, kind := range map[string]backfill.Kind{"aaaaaa": backfill.Replay, "bbbbbb": backfill.Backfill} {
			job := w.plan(4, 1)
			job.ID, job.Kind = id, kind
			w.begin(job)
			must.Get(w.jobs.Cancel(t.Context(), backfill.Cancellation{ID: id}, true))(t)
		}
		later := time.Now().Add(backfill.Kept + time.Minute)
		w.log.onChange = func(int) {
			w.log.onChange = nil
			if n, err := w.jobs.Tidy(t.Context(), later); n != 2 || err != nil {
				t.Errorf("the other process: %d jobs, %v", n, err)
			}
		}
		if n, err := w.jobs.Tidy(t.Context(), later); n != 0 || err != nil {
			t.Errorf("%d jobs, %v; want none, since they are removed", n, err)
		}
	})
}

// TestTidy: what is over for long goes. A backfill stays as its bounds, one that
// was cancelled with what is left of it.
func TestTidy(t *testing.T) {
	inOwnWorld(t, 40, func(t *testing.T, w *world) {
		interrupt := func(job backfill.Job) {
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			defer cancel()
			if _, err := w.start(job).Do(ctx); err == nil {
				t.Error("it came to its end")
			}
		}
		done := w.plan(40, 2)
		must.Get(w.start(w.begin(done)).Do(t.Context()))(t)
		for id, kind := range map[string]backfill.Kind{"cancel": backfill.Backfill, "replay": backfill.Replay, "runnin": backfill.Backfill} {
			job := w.plan(40, 2)
			job.ID, job.Kind = id, kind
			interrupt(w.begin(job))
			if id == "runnin" {
				continue
			}
			must.Get(w.jobs.Cancel(t.Context(), backfill.Cancellation{ID: id}, true))(t)
		}
		now := time.Now()
		if n, err := w.jobs.Tidy(t.Context(), now.Add(backfill.Kept-time.Minute)); n != 0 || err != nil {
			t.Errorf("too early: %d, %v", n, err)
		}
		for round, want := range []int{3, 0} {
			if n, err := w.jobs.Tidy(t.Context(), now.Add(backfill.Kept+time.Minute)); n != want || err != nil {
				t.Fatalf("round %d: %d jobs, %v; want %d", round, n, err, want)
			}
		}
		all := must.Get(w.jobs.List(t.Context(), 0))(t)
		left := make(map[string]backfill.Job)
		for _, j := range all {
			left[j.ID] = j
		}
		if j := left["aaaaaa"]; len(j.Windows) != 1 || j.From != second(0) || j.To != second(40) ||
			j.Windows[0].Events != 40 || !j.Reduced || j.State != backfill.Done {
			t.Errorf("of one that is done stays %+v", j)
		}
		if j := left["cancel"]; len(j.Windows) != 2 || j.Windows[0].Events != 8 || j.Windows[0].Ended != "" || !j.Reduced {
			t.Errorf("of one that was cancelled stays %+v", j)
		}
		if j, ok := left["runnin"]; !ok || j.Reduced || len(left) != 3 {
			t.Errorf("left are %v", left)
		}
		if len(w.log.gone) != 6 || slices.ContainsFunc(w.log.gone, func(name string) bool { return strings.Contains(name, "runnin") }) {
			t.Errorf("the checkpoints that are gone: %v", w.log.gone)
		}
		again := backfill.Spec{Kind: backfill.Backfill, From: second(0), To: second(10)}
		if _, err := w.planner().Plan(t.Context(), &again, time.Now()); reasonOf(err) != backfill.Overlaps {
			t.Errorf("what was published may be published again: %v", err)
		}
	})
}
