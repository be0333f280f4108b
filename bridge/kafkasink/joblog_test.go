package kafkasink_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// A list reads what has come since the last one, of any stream that shares the
// topic, and not the whole topic again.
func TestJobsReadOn(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	cfg := config(t, k.ListenAddrs(), exactly)
	users := cfg
	users.Stream = "users"
	job, _ := newJob(t, cfg, backfill.Backfill, "aaaaaa")
	for i := range 20 {
		job.Reason = strings.Repeat("x", i)
		put(t, jobsOf(cfg), job)
	}
	var fetches, early atomic.Int64 // early ones are of what was read before
	var known atomic.Pointer[map[int32]int64]
	k.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		for _, topic := range r.(*kmsg.FetchRequest).Topics {
			for _, p := range topic.Partitions {
				fetches.Add(1)
				if ends := known.Load(); ends != nil && p.FetchOffset < (*ends)[p.Partition] {
					early.Add(1)
				}
			}
		}
		return nil, nil, false
	})
	var logs kafkasink.JobLogs
	list := func(cfg kafkastream.Config, want int) {
		t.Helper()
		if all, err := sharedJobs(&logs, cfg).list(t.Context()); err != nil || len(all) != want {
			t.Errorf("stream %s: %d jobs, %v; want %d", cfg.Stream, len(all), err, want)
		}
	}
	list(cfg, 1)
	if fetches.Swap(0) == 0 {
		t.Error("the first list read nothing")
	}
	list(cfg, 1)
	list(users, 0)
	if n := fetches.Swap(0); n > 0 {
		t.Errorf("%d fetches although nothing has come", n)
	}
	ends := must.Get(kadm.NewClient(clientOf(t, cfg)).ListEndOffsets(t.Context(), kafkasink.JobsTopic(cfg.CheckpointTopic)))(t)
	before := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) { before[o.Partition] = o.Offset })
	other, _ := newJob(t, users, backfill.Backfill, "bbbbbb")
	put(t, jobsOf(users), other)
	early.Store(0)
	known.Store(&before)
	list(cfg, 1)
	list(users, 1)
	if n := early.Load(); n > 0 {
		t.Errorf("%d fetches of what was read before", n)
	}
	fetches.Store(0)
	put(t, jobsOf(users), other)
	fetches.Store(0)
	all, err := sharedJobs(&logs, users).List(t.Context(), time.Minute)
	if err != nil || len(all) != 1 || fetches.Load() > 0 {
		t.Errorf("as of a minute ago: %v, %v after %d fetches, want none", all, err, fetches.Load())
	}

	// Another topic of the name has other jobs.
	admin := kadm.NewClient(clientOf(t, cfg))
	must.Get(admin.DeleteTopic(t.Context(), kafkasink.JobsTopic(cfg.CheckpointTopic)))(t)
	known.Store(nil)
	list(cfg, 0)
	job, _ = newJob(t, cfg, backfill.Backfill, "cccccc")
	put(t, jobsOf(cfg), job)
	list(cfg, 1)
	list(users, 0)
}

func clientOf(t *testing.T, cfg kafkastream.Config) *kgo.Client {
	t.Helper()
	client := connect(t, cfg)
	return client
}

// What is over for long goes, and a backfill's bounds stay: nothing that was
// published is published again because its records went.
func TestTidyJobs(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	jobs := jobsOf(cfg)
	now := time.Now()
	long, lately := now.Add(-backfill.Kept-time.Hour).UnixMilli(), now.Add(-time.Hour).UnixMilli()
	var windows []kafkastream.Config
	for id, change := range map[string]func(*backfill.Job){
		"aaaaaa": func(j *backfill.Job) { j.State, j.Changed = backfill.Done, long },
		"bbbbbb": func(j *backfill.Job) { j.State, j.Changed, j.Kind = backfill.Cancelled, long, backfill.Replay },
		"cccccc": func(j *backfill.Job) { j.State, j.Changed = backfill.Done, lately },
		"dddddd": func(j *backfill.Job) { j.Created = long }, // interrupted: it may go on
		"eeeeee": func(j *backfill.Job) { j.State, j.Changed = backfill.Cancelled, long },
	} {
		job, window := newJob(t, cfg, backfill.Backfill, id)
		change(&job)
		put(t, jobs, job)
		windows = append(windows, window)
		s := recovered(t, window)
		b := batch(window, 3)
		if job.Changed == long {
			b.Checkpoint.Events = 20
		}
		if id == "eeeeee" {
			b.Checkpoint.PositionTime = 1500
		}
		mustCommit(t, s, b)
	}
	kafkatest.Eventually(t, "show the commits, which a broker does after it answers", func() (bool, error) {
		all, err := jobs.list(t.Context())
		return !slices.ContainsFunc(all, func(j backfill.Job) bool { return j.Changed == long && j.Windows[0].Events == 0 }), err
	})
	for round, want := range []int{3, 0} {
		if n, err := jobs.Tidy(t.Context(), now); n != want || err != nil {
			t.Fatalf("round %d: %d jobs were taken away, %v; want %d", round, n, err, want)
		}
	}
	for _, jobs := range []*streamJobs{jobs, jobsOf(cfg)} {
		all := must.Get(jobs.list(t.Context()))(t)
		left := make(map[string]int)
		for i := range all {
			left[all[i].ID] = len(all[i].Windows)
			if all[i].ID == "aaaaaa" && (all[i].From != 1000 || all[i].To != 3000 || all[i].State != backfill.Done ||
				all[i].Ended() != 1) {
				t.Errorf("of the old backfill stays %+v", all[i])
			}
			if w := all[i].Windows; all[i].ID == "eeeeee" &&
				(w[0].Events != 20 || w[0].Position != 1500 || w[1].Events != 0 || w[1].From == all[i].From) {
				t.Errorf("of a backfill that was cancelled nobody knows any more what is left: %+v", all[i])
			}
		}
		if want := map[string]int{"aaaaaa": 1, "cccccc": 2, "dddddd": 2, "eeeeee": 2}; !maps.Equal(left, want) {
			t.Errorf("left are %v, want %v", left, want)
		}
	}
	for _, window := range windows {
		if strings.Contains(window.Stream, "aaaaaa") || strings.Contains(window.Stream, "bbbbbb") ||
			strings.Contains(window.Stream, "eeeeee") {
			// A process that still has the plan must not begin the window again.
			kafkatest.AsFault(t, tryRecover(t, open(t, window)), bridge.Permanent, bridge.ReasonCheckpoint)
			continue
		}
		recoverTo(t, open(t, window), window, 3)
	}
	refused := errors.New("no")
	if _, err := jobs.change(t.Context(), "bbbbbb", func(have backfill.Job) (backfill.Job, error) {
		if have.Version != 0 {
			t.Errorf("the old replay is still there: %+v", have)
		}
		return have, refused
	}); !errors.Is(err, refused) {
		t.Error(err)
	}
}

// A forgotten mark is gone for every process.
func TestForgetMarks(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	recovered(t, cfg).Close()
	r := must.Get(kafkasink.OpenRepair(t.Context(), cfg.Wired(), kafkasink.JobDLQ))(t)
	defer r.Close()
	for _, mark := range []string{"0/1", "0/2", "0/3"} {
		must.Get(r.Publish(t.Context(), page(event(mark, "u")), mark, []byte("{}")))(t)
	}
	must.Do(t, r.Forget(t.Context(), []string{"0/1", "0/3"}))
	later, err := kafkasink.Marks(t.Context(), cfg.Wired(), kafkasink.JobDLQ)
	if _, ok := later["0/2"]; err != nil || !ok || len(later) != 1 || len(r.Marks()) != 1 {
		t.Errorf("marks %v, %v and %v; want 0/2", later, err, r.Marks())
	}
	must.Get(r.Publish(t.Context(), page(event("0/4", "u")), "0/4", []byte("{}")))(t)
}

// TestManyChangesOfAJob: the lanes of a job end at once in so many processes. Each change is
// committed, although they fence each other.
func TestManyChangesOfAJob(t *testing.T) {
	t.Parallel()
	const lanes = 24
	cfg := config(t, kafkatest.Brokers(t), exactly)
	job, _ := newJob(t, cfg, backfill.Backfill, "aaaaaa")
	job.Windows = backfill.Split(job.From, job.To, lanes)
	put(t, jobsOf(cfg), job)
	var changing sync.WaitGroup
	for n := range lanes {
		jobs := jobsOf(cfg)
		changing.Go(func() {
			_, err := jobs.change(t.Context(), job.ID, func(have backfill.Job) (backfill.Job, error) {
				<-time.After(20 * time.Millisecond) // as from brokers that are far away
				have.Windows[n].Ended = "on its last page"
				return have, nil
			})
			if err != nil {
				t.Errorf("window %d: %v", n, err)
			}
		})
	}
	changing.Wait()
	all, err := jobsOf(cfg).list(t.Context())
	if err != nil || len(all) != 1 || all[0].Ended() != lanes {
		t.Errorf("not all windows of the job have ended: %v", err)
	}
}
