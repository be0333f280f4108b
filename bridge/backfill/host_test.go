package backfill_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/must"
)

// fakeTopics are the topics of new jobs.
type fakeTopics struct {
	err     error
	created int
}

func (f *fakeTopics) Choose(_ context.Context, j *backfill.Job) (bool, error) {
	if j.Topic == "" {
		j.Topic = "export.events.replay." + j.ID
		return false, f.err
	}
	return true, f.err
}

func (f *fakeTopics) Create(_ context.Context, j *backfill.Job) (map[string]string, error) {
	f.created++
	ids := make(map[string]string)
	for _, topic := range j.Topics() {
		ids[topic] = "id of " + topic
	}
	return ids, f.err
}

// beside is the world's stream, for jobs.
func (w *world) beside() (*backfill.Planner, *fakeTopics) {
	w.limit = 50
	beside := w.planner()
	return beside, beside.Topics.(*fakeTopics)
}

func passes(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time: nothing is waited for
}

// ask is a request for a backfill of the first so many seconds.
func ask(seconds int) *backfill.Spec {
	return &backfill.Spec{Kind: backfill.Backfill, From: second(0), To: second(seconds), Windows: 4, Who: "me", Reason: "why"}
}

// hosting runs a Host until the function that it returns is called.
func (w *world) hosting() (h *backfill.Host, ends func() map[string]error, stop func()) {
	beside, _ := w.beside()
	var mu sync.Mutex
	ended := make(map[string]error)
	h = backfill.NewHost([]*backfill.Planner{beside}, func(j *backfill.Job, err error) {
		mu.Lock()
		defer mu.Unlock()
		ended[j.ID] = err
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	return h, func() map[string]error {
		mu.Lock()
		defer mu.Unlock()
		return ended
	}, stop
}

// started plans and starts a job, and returns its plan.
func started(t *testing.T, h *backfill.Host, r *backfill.Spec) *backfill.Plan {
	t.Helper()
	p := must.Get(h.Plan(t.Context(), stream, r))(t)
	must.Do(t, h.Start(t.Context(), p))
	return p
}

// TestValidate: each mistake names its field.
func TestValidate(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(second(1000))
	for field, change := range map[string]func(*backfill.Spec){
		"":              func(*backfill.Spec) {},
		"kind":          func(r *backfill.Spec) { r.Kind = "copy" },
		"to":            func(r *backfill.Spec) { r.To = second(1001) },
		"windows":       func(r *backfill.Spec) { r.Windows = backfill.MaxWindows + 1 },
		"parallel":      func(r *backfill.Spec) { r.Parallel = -1 },
		"rate_limit":    func(r *backfill.Spec) { r.RateLimit = -1 },
		"events":        func(r *backfill.Spec) { r.Events = []string{"a"} },
		"topic":         func(r *backfill.Spec) { r.Topic = "a" },
		"allow_overlap": func(r *backfill.Spec) { r.Kind, r.AllowOverlap = backfill.Replay, true },
	} {
		r := ask(40)
		change(r)
		invalid, ok := errors.AsType[*backfill.InvalidError](r.Validate(now))
		if ok != (field != "") || ok && (invalid.Field != field || !strings.HasPrefix(invalid.Error(), field+" ")) {
			t.Errorf("%s: %v", field, invalid)
		}
	}
	for _, from := range []int64{-1, 0, second(40)} {
		r := ask(40)
		r.From = from
		if invalid, ok := errors.AsType[*backfill.InvalidError](r.Validate(now)); !ok || invalid.Field != "from" {
			t.Errorf("from %d: %v", from, invalid)
		}
	}
	r := ask(40)
	r.From, r.Windows = 0, 0
	if err := r.Validate(now); err != nil {
		t.Errorf("a window from the earliest event: %v", err)
	}
}

// TestPlanOfStream: a plan changes nothing; what must not begin is rejected, and what
// the operator should know is noted.
func TestPlanOfStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10)
	s, topics := w.beside()
	plan := func(r *backfill.Spec) (*backfill.Plan, error) { return s.Plan(t.Context(), r, time.Now()) }
	p, err := plan(ask(40))
	if err != nil || len(p.Job.Windows) != 4 || p.Job.RateLimit != 50 || p.Job.AtOnce() != 4 ||
		p.Job.Topic != "export.events" || !backfill.ValidID(p.Job.ID) ||
		len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "has not started") {
		t.Fatalf("%+v, %v", p, err)
	}
	same, other := ask(40), ask(41)
	same.ID, same.Who, other.ID = p.Job.ID, "you", p.Job.ID
	for r, want := range map[*backfill.Spec]bool{same: true, other: false, ask(40): false} {
		again, err := plan(r)
		if err != nil || (again.Hash() == p.Hash()) != want {
			t.Errorf("hashes %s and %s, %v", again.Hash(), p.Hash(), err)
		}
	}
	if all, err := w.jobs.List(t.Context(), 0); len(all)+topics.created > 0 || err != nil {
		t.Errorf("a plan left %v, %d topics, %v", all, topics.created, err)
	}

	for from, want := range map[int64]backfill.Reason{0: "", second(20): backfill.NoBounds} {
		s.NoStart = errors.New("no start")
		r := ask(40)
		r.From, r.Windows = from, 1
		if _, err := plan(r); reasonOf(err) != want || want != "" && err.Error() != "no start" {
			t.Errorf("from %d without a start: %v", from, err)
		}
		s.NoBounds = errors.New("no end")
		if _, err := plan(r); reasonOf(err) != backfill.NoBounds || err.Error() != "no end" {
			t.Errorf("from %d without bounds: %v", from, err)
		}
		s.NoBounds, s.NoStart = nil, nil
	}

	s.Live = checkpoints{{Origin: bridge.Origin{Start: second(20)}, PositionTime: second(50)}}
	if _, err := plan(ask(40)); reasonOf(err) != backfill.Overlaps {
		t.Errorf("what the stream has published: %v", err)
	}
	r := ask(40)
	r.AllowOverlap = true
	if p, err := plan(r); err != nil || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "published again, with the same ce_id") {
		t.Errorf("allowed: %+v, %v", p, err)
	}
	replay := ask(40)
	replay.Kind, replay.Events = backfill.Replay, []string{"a"}
	if p, err := plan(replay); err != nil || p.Job.Topic != "export.events.replay."+p.Job.ID || len(p.Job.Events) != 1 || len(p.Notes) != 0 {
		t.Errorf("replay: %+v, %v", p, err)
	}
	replay.Topic = "mine"
	if p, err := plan(replay); err != nil || p.Job.Topic != "mine" || len(p.Notes) != 1 {
		t.Errorf("replay into a topic: %+v, %v", p, err)
	}
	s.Resource = "users"
	if _, err := plan(replay); err == nil || !strings.Contains(err.Error(), "no event types") {
		t.Errorf("event types of users: %v", err)
	}
	s.Resource = "events"
	for class, noted := range map[bridge.Class]bool{bridge.Permanent: false, bridge.Transient: true} {
		s.CheckAPI = func(context.Context, []string) error {
			return &bridge.Fault{Class: class, Err: errors.New("no such type")}
		}
		if p, err := plan(replay); (err == nil) != noted || noted && !strings.Contains(p.Notes[1], "the API is unavailable") {
			t.Errorf("class %v: %+v, %v", class, p, err)
		}
	}
	topics.err = errors.New("no topic")
	if _, err := s.Begin(t.Context(), p); !errors.Is(err, topics.err) {
		t.Errorf("without a topic: %v", err)
	}
	if all, err := w.jobs.List(t.Context(), 0); len(all) > 0 || err != nil {
		t.Errorf("a job without its topic: %v, %v", all, err)
	}
}

// TestHost: a job runs to its end beside others, within the process's limit.
func TestHost(t *testing.T) {
	inOwnWorld(t, 50, func(t *testing.T, w *world) {
		h, ends, _ := w.hosting()
		r := ask(40)
		r.Parallel = backfill.HostedWindows + 1
		if _, err := h.Plan(t.Context(), stream, r); err == nil || !strings.HasPrefix(err.Error(), "parallel is above 4") {
			t.Errorf("many windows: %v", err)
		}
		if _, err := h.Plan(t.Context(), "users", ask(40)); err == nil {
			t.Error("another stream is planned")
		}
		r.Parallel = 3
		p := started(t, h, r)
		if err := h.Start(t.Context(), p); reasonOf(err) != backfill.InUse {
			t.Errorf("the same once more: %v", err)
		}
		more := ask(45)
		more.From, more.Windows, more.Parallel = second(40), 2, 2
		late := must.Get(h.Plan(t.Context(), stream, more))(t)
		if err := h.Start(t.Context(), late); reasonOf(err) != backfill.Busy {
			t.Errorf("more than the process runs: %v", err)
		}
		passes(time.Minute)
		if err, ok := ends()[p.Job.ID]; !ok || err != nil {
			t.Fatalf("%v", ends())
		}
		w.wantOnce(40)
		if j := w.job(); j.State != backfill.Done || j.By != "me" || w.most != 3 {
			t.Errorf("%+v, %d windows at a time", j, w.most)
		}
		if err := h.Start(t.Context(), late); err != nil {
			t.Errorf("when there is room again: %v", err)
		}
		passes(time.Minute)
		w.wantOnce(45)
	})
}

// TestHostStops: a job of a process that stops goes on in another, and each event is
// published once.
func TestHostStops(t *testing.T) {
	inOwnWorld(t, 50, func(t *testing.T, w *world) {
		h, ends, stop := w.hosting()
		id := started(t, h, ask(40)).Job.ID
		passes(250 * time.Millisecond)
		if _, err := h.Resume(t.Context(), id, "me", true); reasonOf(err) != backfill.InUse {
			t.Errorf("it runs and is resumed: %v", err)
		}
		stop()
		if err := ends()[id]; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		if j := w.job(); j.State != backfill.Running || j.Ended() == len(j.Windows) {
			t.Errorf("%+v", j)
		}
		p, err := h.Plan(t.Context(), stream, ask(40))
		if reasonOf(err) != backfill.Overlaps || p != nil {
			t.Errorf("its range is free: %v", err)
		}
		if _, err := h.Resume(t.Context(), id, "me", true); !errors.Is(err, backfill.ErrStopping) {
			t.Errorf("a process that has stopped: %v", err)
		}
		next, ends, _ := w.hosting()
		if j, err := next.Resume(t.Context(), id, "you", false); err != nil || j.ID != id || len(ends()) > 0 {
			t.Errorf("%+v, %v", j, err)
		}
		w.log.members = func(string) []bridge.Member { return []bridge.Member{{ClientID: "somebody"}} }
		if _, err := next.Resume(t.Context(), id, "you", true); reasonOf(err) != backfill.InUse {
			t.Errorf("another process has it: %v", err)
		}
		w.log.members = nil
		must.Get(next.Resume(t.Context(), id, "you", true))(t)
		passes(time.Minute)
		w.wantOnce(40)
		if j := w.job(); j.State != backfill.Done || j.By != "you" {
			t.Errorf("%+v", j)
		}
		if _, err := next.Resume(t.Context(), "zzzzzz", "you", true); reasonOf(err) != backfill.Unknown {
			t.Errorf("a job of nobody: %v", err)
		}
	})
}

// TestHostStopsWithoutKafka: a process that stops does not wait for the brokers, of whatever
// a job has to commit, and the job goes on in another.
func TestHostStopsWithoutKafka(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]int{"the end of a window": 2, "the end of the job": 6} {
		inWorld(t, 50, func(t *testing.T, w *world) {
			h, ends, stop := w.hosting()
			w.log.away = change
			id := started(t, h, ask(40)).Job.ID
			passes(time.Minute)
			began := time.Now()
			stop()
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s: the process takes %s to stop", name, took)
			}
			if err := ends()[id]; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: it ended with %v", name, err)
			}
			w.log.away = 0
			next, _, _ := w.hosting()
			must.Get(next.Resume(t.Context(), id, "you", true))(t)
			passes(time.Minute)
			w.wantOnce(40)
			if j := w.job(); j.State != backfill.Done {
				t.Errorf("%s: %+v", name, j)
			}
		})
	}
}

// TestHostResumesWiderJob: a job that was planned for more windows at a time than a process
// with other work runs keeps them for the process that can.
func TestHostResumesWiderJob(t *testing.T) {
	inOwnWorld(t, 50, func(t *testing.T, w *world) {
		plan := w.plan(40, 10)
		plan.Parallel = 8
		w.begin(plan)
		h, ends, stop := w.hosting()
		for _, execute := range []bool{false, true} {
			if j, err := h.Resume(t.Context(), plan.ID, "you", execute); err != nil || j.Parallel != 8 {
				t.Fatalf("execute %t: %d at a time, %v", execute, j.Parallel, err)
			}
		}
		passes(250 * time.Millisecond)
		if j := w.job(); j.Parallel != 8 || w.most != backfill.HostedWindows {
			t.Errorf("%d at a time are committed, and %d ran", j.Parallel, w.most)
		}
		stop()
		w.most = 0
		job := w.resumed()
		left := len(job.Windows) - job.Ended()
		if _, err := w.start(job).Do(t.Context()); err != nil || w.most != min(left, 8) || left <= backfill.HostedWindows {
			t.Errorf("the next process ran %d of %d windows at a time, %v", w.most, left, err)
		}
		w.wantOnce(40)
		if len(ends()) != 1 {
			t.Errorf("%v", ends())
		}
	})
}

// TestHostStopsRemoved: the job of a stream that is removed stops, and goes on as planned
// where the stream only has other settings.
func TestHostStopsRemoved(t *testing.T) {
	inOwnWorld(t, 50, func(t *testing.T, w *world) {
		h, ends, _ := w.hosting()
		id := started(t, h, ask(40)).Job.ID
		beside, _ := w.beside()
		h.SetPlanners([]*backfill.Planner{beside})
		passes(250 * time.Millisecond)
		if len(ends()) > 0 {
			t.Errorf("with other settings it ended with %v", ends()[id])
		}
		h.SetPlanners(nil)
		passes(250 * time.Millisecond)
		if err := ends()[id]; !errors.Is(err, context.Canceled) || w.job().State != backfill.Running {
			t.Errorf("of a removed stream it ended with %v, %+v", err, w.job())
		}
		h.SetPlanners([]*backfill.Planner{beside})
		must.Get(h.Resume(t.Context(), id, "me", true))(t)
		passes(time.Minute)
		w.wantOnce(40)
	})
}

// TestHostForgets: a process keeps nothing of a job that has ended.
func TestHostForgets(t *testing.T) {
	inOwnWorld(t, 50, func(t *testing.T, w *world) {
		h, ends, _ := w.hosting()
		plan := weak.Make(started(t, h, ask(40)))
		passes(time.Minute)
		runtime.GC()
		if len(ends()) != 1 || plan.Value() != nil {
			t.Errorf("%d jobs have ended, and the plan is kept: %t", len(ends()), plan.Value() != nil)
		}
	})
}

// TestHostEndsEarly: a job that is cancelled stops, and one that cannot go on says why.
func TestHostEndsEarly(t *testing.T) {
	inOwnWorld(t, 50, func(t *testing.T, w *world) {
		h, ends, _ := w.hosting()
		trouble := func(id string) string {
			all := must.Get(w.jobs.Overview(t.Context(), 0))(t)
			return h.Trouble(&all[slices.IndexFunc(all, func(l backfill.Listed) bool { return l.ID == id })])
		}
		id := started(t, h, ask(40)).Job.ID
		passes(150 * time.Millisecond)
		c := backfill.Cancellation{ID: id, By: "me", Why: "wrong month"}
		if _, err := h.Cancel(t.Context(), c, false); err != nil || len(ends()) > 0 {
			t.Errorf("a dry run: %v, %v", err, ends())
		}
		if j, err := h.Cancel(t.Context(), c, true); err != nil || j.State != backfill.Cancelled {
			t.Errorf("%+v, %v", j, err)
		}
		passes(time.Minute)
		if err := ends()[id]; !errors.Is(err, backfill.ErrCancelled) || trouble(id) != "" {
			t.Errorf("it ended with %v, %q", err, trouble(id))
		}
		c.ID = "zzzzzz"
		if _, err := h.Cancel(t.Context(), c, true); reasonOf(err) != backfill.Unknown {
			t.Errorf("a job of nobody: %v", err)
		}

		w.broken[1] = &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth, Err: errors.New("no key")}
		again := ask(40)
		again.AllowOverlap = true
		id = started(t, h, again).Job.ID
		passes(time.Minute)
		if err := ends()[id]; err == nil || !strings.Contains(trouble(id), "no key") {
			t.Errorf("it ended with %v, %q", err, trouble(id))
		}
		if h.Trouble(&backfill.Listed{Job: backfill.Job{ID: "zzzzzz", State: backfill.Running}}) != "" {
			t.Error("a job of nobody has trouble")
		}
		w.log.members = func(string) []bridge.Member { return []bridge.Member{{ClientID: "somebody"}} }
		if text := trouble(id); text != "" {
			t.Errorf("a job that another process runs has the trouble of this one: %s", text)
		}
	})
}

// TestHostPassesUnreadable: a job of one stream that this version cannot read does not keep
// anybody from cancelling and resuming jobs of others, and is named for a job that none has.
func TestHostPassesUnreadable(t *testing.T) {
	inOwnWorld(t, 50, func(t *testing.T, w *world) {
		h, _, _ := w.hosting()
		id := started(t, h, ask(40)).Job.ID
		h.SetPlanners(nil) // stops the job
		passes(time.Second)
		log := newPlanLog(w.topic)
		log.plans["aaaaaa"] = &kgo.Record{Value: []byte(`{"v":99,"id":"aaaaaa","stream":"other"}`)}
		beside, _ := w.beside()
		other, _ := w.beside()
		other.Jobs = backfill.NewJobs(log, "other")
		h.SetPlanners([]*backfill.Planner{other, beside})
		if _, err := h.Resume(t.Context(), id, "me", true); err != nil {
			t.Errorf("resume: %v", err)
		}
		c := backfill.Cancellation{ID: id, By: "me", Why: "wrong month"}
		if _, err := h.Cancel(t.Context(), c, true); err != nil {
			t.Errorf("cancel: %v", err)
		}
		if _, err := h.Resume(t.Context(), id, "me", true); reasonOf(err) != backfill.WasCancelled {
			t.Errorf("the cancelled job: %v", err)
		}
		c.ID = "zzzzzz"
		if _, err := h.Cancel(t.Context(), c, true); err == nil || reasonOf(err) == backfill.Unknown {
			t.Errorf("a job that the other stream may have: %v", err)
		}
	})
}
