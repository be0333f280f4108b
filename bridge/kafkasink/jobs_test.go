package kafkasink_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// newJob returns a job of two windows, which Change has not seen yet, and the
// Sink's configuration of its first one. The topics are there.
func newJob(t *testing.T, cfg kafkastream.Config, kind backfill.Kind, id string) (backfill.Job, kafkastream.Config) {
	t.Helper()
	job := backfill.Job{
		Version: backfill.Version, ID: id, Kind: kind, Stream: cfg.Stream, Resource: "events", Topic: cfg.Topic,
		From: 1000, To: 3000, Windows: backfill.Split(1000, 3000, 2),
		RateLimit: 2.5, Parallel: 1, PageSize: 50, Who: "me", Reason: "why", Created: 7, State: backfill.Running,
	}
	if kind == backfill.Replay {
		job.Topic = cfg.Topic + ".again"
	}
	window := windowConfig(cfg, &job, 0)
	must.Get(window.Needs().Create(t.Context()))(t)
	return job, window
}

// windowConfig is the Sink's configuration of a window.
func windowConfig(cfg kafkastream.Config, j *backfill.Job, n int) kafkastream.Config {
	return cfg.OfWindow(kafkasink.Window{Name: j.WindowName(n), Topic: j.Topic, Origin: string(j.Kind)})
}

// streamJobs are the jobs of a stream, as the callers of a kafkasink.Jobs see them.
type streamJobs struct {
	*backfill.Jobs
	log *kafkastream.Jobs
}

func jobsOf(cfg kafkastream.Config) *streamJobs { return sharedJobs(new(kafkasink.JobLogs), cfg) }

func sharedJobs(logs *kafkasink.JobLogs, cfg kafkastream.Config) *streamJobs {
	log := cfg.Jobs(logs)
	return &streamJobs{backfill.NewJobs(log, cfg.Stream), log}
}

func (j *streamJobs) list(ctx context.Context) ([]backfill.Job, error) { return j.List(ctx, 0) }

// change commits what change makes of a job.
func (j *streamJobs) change(
	ctx context.Context, id string, change func(backfill.Job) (backfill.Job, error),
) (next backfill.Job, err error) {
	err = j.log.Change(ctx, id, func(r *kgo.Record) ([]byte, []string, error) {
		var have backfill.Job
		if r != nil {
			if err := json.Unmarshal(r.Value, &have); err != nil {
				return nil, nil, err
			}
		}
		if next, err = change(have); err != nil {
			return nil, nil, err
		}
		plan, err := json.Marshal(next)
		return plan, nil, err
	})
	return next, err
}

// put commits a job as it is.
func put(t *testing.T, jobs *streamJobs, job backfill.Job) {
	t.Helper()
	to := func(backfill.Job) (backfill.Job, error) { return job, nil }
	must.Get(jobs.change(t.Context(), job.ID, to))(t)
}

// oneJob commits the only job of a stream.
func oneJob(t *testing.T, cfg kafkastream.Config, kind backfill.Kind) (*streamJobs, backfill.Job) {
	t.Helper()
	jobs := jobsOf(cfg)
	job, _ := newJob(t, cfg, kind, "aaaaaa")
	put(t, jobs, job)
	return jobs, job
}

// A window's records are the stream's, its checkpoints are its own, and the
// stream knows nothing of it.
func TestWindow(t *testing.T) {
	t.Parallel()
	cfg, live := ready(t, exactly)
	mustCommit(t, live, batch(cfg, 0))
	job, window := newJob(t, cfg, backfill.Backfill, "aaaaaa")
	s := recovered(t, window)
	bare := window
	bare.Headers = "none" // then all records look alike
	for _, s := range []*kafkasink.Sink{s, open(t, bare)} {
		if holds, err := s.Holds(t.Context()); holds || err != nil {
			t.Errorf("a new window holds the stream's records: %v, %v", holds, err)
		}
	}
	mustCommit(t, s, batch(window, 1))
	must.Do(t, commit(t, live, batch(cfg, 2)))
	recoverTo(t, open(t, window), window, 1)
	recoverTo(t, open(t, cfg), cfg, 2)
	other := windowConfig(cfg, &job, 1)
	recoverTo(t, open(t, other), other, -1)

	count := make(map[string]int)
	for _, r := range consume(t, cfg, cfg.Topic) {
		h := headersOf(r)
		count[fmt.Sprint(h["eb-stream"], " ", h["eb-origin"], " ", h["ce_source"], " ",
			strings.HasPrefix(h["ce_id"], "b1-"))]++
	}
	want := map[string]int{"events live /events false": 40, "events backfill /events true": 20}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("records differ (-want +got):\n%s", diff)
	}
	wantOnce(t, cfg, 0, 1, 2)
}

// A job that is planned again with other bounds under the same id takes nothing
// over: what one window has reached is no place in another one.
func TestWindowOfOtherBounds(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	recovered(t, cfg)
	job, window := newJob(t, cfg, backfill.Backfill, "aaaaaa")
	s := recovered(t, window)
	mustCommit(t, s, batch(window, 1))
	for _, windows := range [][]backfill.Window{backfill.Split(1000, 3000, 4), backfill.Split(0, 4000, 2)} {
		again := job
		again.From, again.To, again.Windows = windows[0].From, windows[len(windows)-1].To, windows
		other := windowConfig(cfg, &again, 0)
		recoverTo(t, open(t, other), other, -1)

		jobs := jobsOf(cfg)
		put(t, jobs, again)
		all, err := jobs.list(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("the jobs are %v, %v", all, err)
		}
		if diff := cmp.Diff(again, all[0]); diff != "" {
			t.Errorf("the list differs from the plan (-want +got):\n%s", diff)
		}
	}
	recoverTo(t, open(t, window), window, 1)
}

// A change is made from the committed plan, even if other processes make changes, and a list
// shows how far the windows are.
func TestJobs(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	jobs := jobsOf(cfg)
	if all, err := jobs.list(t.Context()); len(all) > 0 || err != nil {
		t.Errorf("before there is a topic: %v, %v", all, err)
	}
	job, window := newJob(t, cfg, backfill.Replay, "aaaaaa")
	s := recovered(t, window)
	put(t, jobs, job)
	younger, _ := newJob(t, cfg, backfill.Backfill, "zzzzzz")
	younger.Created = 8
	put(t, jobs, younger)
	elsewhere := cfg
	elsewhere.Stream = "users"
	foreign, _ := newJob(t, elsewhere, backfill.Backfill, "bbbbbb")
	put(t, jobsOf(elsewhere), foreign)
	done := batch(window, 3)
	done.Checkpoint.Events, done.Checkpoint.Pages, done.Checkpoint.PositionTime = 20, 1, 1500
	mustCommit(t, s, done)

	want := []backfill.Job{job, younger}
	want[0].Windows = slices.Clone(job.Windows)
	want[0].Windows[0].Events, want[0].Windows[0].Pages, want[0].Windows[0].Position = 20, 1, 1500
	got, err := jobs.list(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("list differs: %v (-want +got):\n%s", err, diff)
	}

	refused := errors.New("no")
	_, err = jobs.change(t.Context(), job.ID, func(have backfill.Job) (backfill.Job, error) {
		if diff := cmp.Diff(job, have); diff != "" {
			t.Errorf("the plan that is changed differs (-want +got):\n%s", diff)
		}
		have.State = backfill.Done
		return have, refused
	})
	must.Be(t, err, refused)
	// Another process cancels the job while this one makes up its mind.
	tries := 0
	last, err := jobs.change(t.Context(), job.ID, func(have backfill.Job) (backfill.Job, error) {
		if tries++; tries == 1 {
			cancelled := have
			cancelled.State = backfill.Cancelled
			put(t, jobsOf(cfg), cancelled)
		}
		have.Why = "state " + string(have.State)
		return have, nil
	})
	if err != nil || tries != 2 || last.State != backfill.Cancelled || last.Why != "state cancelled" {
		t.Errorf("after %d tries the job is %+v, %v; want the other process's change kept", tries, last, err)
	}
	unknown, err := jobs.change(t.Context(), "cccccc",
		func(have backfill.Job) (backfill.Job, error) { return have, refused })
	if !errors.Is(err, refused) || unknown.Version != 0 {
		t.Errorf("an unknown job: %+v, %v", unknown, err)
	}
}

// Of two processes that begin jobs of a stream at a time, one sees the job of the other, even if
// an open transaction hides it for a while.
func TestBeginSeesOtherJobs(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	job, _ := newJob(t, cfg, backfill.Backfill, "aaaaaa")
	beside := cfg
	beside.Stream, beside.CheckpointTopic = kafkasink.JobName(cfg.Stream, job.ID), kafkasink.JobsTopic(cfg.CheckpointTopic)
	begin := func(id string, check func(map[string]*kgo.Record)) {
		must.Do(t, jobsOf(cfg).log.Begin(t.Context(), id, func(plans map[string]*kgo.Record) ([]byte, error) {
			check(plans)
			return []byte("{}"), nil
		}))
	}
	var saw []int
	var ended sync.WaitGroup
	begin("bbbbbb", func(plans map[string]*kgo.Record) {
		if saw = append(saw, len(plans)); len(saw) == 1 {
			begin(job.ID, func(map[string]*kgo.Record) {
				end := foreignTransaction(t, beside, "somebody."+cfg.Topic)
				ended.Go(func() {
					<-time.After(time.Second)
					end()
				})
			})
		}
	})
	if ended.Wait(); !slices.Equal(saw, []int{0, 1}) {
		t.Errorf("the process saw %d jobs, want none and then one", saw)
	}
}

// TestBeginBesideALateBroker: a broker that does not know the new topic of jobs yet hides no job.
func TestBeginBesideALateBroker(t *testing.T) {
	t.Parallel()
	k := kafkatest.Fake(t)
	cfg := config(t, k.ListenAddrs(), exactly)
	oneJob(t, cfg, backfill.Backfill)
	var committed atomic.Bool // that the topic exists is known by then
	k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Count: -1, When: func(kmsg.Request) bool {
		committed.Store(true)
		return false
	}})
	late := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.UnknownTopicOrPartition,
		When: func(kmsg.Request) bool { return committed.Swap(false) }})
	other := jobsOf(cfg) // of another process
	must.Do(t, other.log.Begin(t.Context(), "bbbbbb", func(plans map[string]*kgo.Record) ([]byte, error) {
		if len(plans) != 1 {
			t.Errorf("the process saw %d jobs, want one", len(plans))
		}
		return nil, nil
	}))
	if late.Hits() == 0 {
		t.Error("no broker was late")
	}
}

// Watch shows what is committed already, and what comes.
func TestWatchJob(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	jobs, job := oneJob(t, cfg, backfill.Replay)
	ctx, cancel := context.WithCancel(kafkatest.Context(t))
	defer cancel()
	partition := func(id string) int32 { return kafkasink.CheckpointPartition(cfg.Stream + "." + id) }
	var seen []backfill.State
	err := jobs.Watch(ctx, job.ID, func(j backfill.Job) {
		if seen = append(seen, j.State); len(seen) > 1 {
			cancel()
			return
		}
		other := job // on the same partition
		for i := 0; other.ID == job.ID || partition(other.ID) != partition(job.ID); i++ {
			other.ID = fmt.Sprintf("b%05d", i)
		}
		put(t, jobs, other)
		job.State = backfill.Cancelled
		put(t, jobsOf(cfg), job)
	})
	if want := []backfill.State{backfill.Running, backfill.Cancelled}; !slices.Equal(seen, want) || err != nil {
		t.Errorf("saw %v, %v; want %v", seen, err, want)
	}
}

// TestWatchJobInAnotherTopic: a cancellation is seen although the topic was recreated meanwhile, as
// when it is restored.
func TestWatchJobInAnotherTopic(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	job, _ := newJob(t, cfg, backfill.Replay, "aaaaaa")
	put(t, jobsOf(cfg), job)
	ctx, cancel := context.WithCancel(kafkatest.Context(t))
	defer cancel()
	client := kadm.NewClient(servers.Client(t, cfg.Brokers[0]))
	topic, seen := kafkasink.JobsTopic(cfg.CheckpointTopic), 0
	err := jobsOf(cfg).Watch(ctx, job.ID, func(j backfill.Job) {
		if seen++; j.State == backfill.Cancelled {
			cancel()
			return
		}
		if seen > 1 {
			return
		}
		must.Get(client.DeleteTopic(ctx, topic))(t)
		kafkatest.CreateTopic(t, cfg.Brokers, topic, kafkaclient.CheckpointPartitions,
			map[string]*string{"cleanup.policy": new("compact")})
		job.State = backfill.Cancelled
		put(t, jobsOf(cfg), job)
	})
	if err != nil || ctx.Err() == nil || job.State != backfill.Cancelled || seen < 2 {
		t.Errorf("saw %d plans, %v; want the cancellation", seen, err)
	}
}

// The transactions of a window are those of a process that has the job: a
// neighbour on the same partition leaves them alone.
func TestHeldBackByWindow(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]bool{"nobody has the job": false, "the job is run": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, _ := ready(t, exactly, func(c *kafkastream.Config) { c.Group = c.Topic })
			id := fmt.Sprintf("%06d", time.Now().UnixNano()%1_000_000)
			job, window := newJob(t, cfg, backfill.Backfill, id)
			foreignTransaction(t, window, window.CheckpointTopic+"."+job.WindowName(1))
			if run {
				owner := cfg.Jobs(new(kafkasink.JobLogs)).Owner(id)
				defer func() { _ = owner.Close(context.WithoutCancel(t.Context())) }()
				tenure := must.Get(owner.Acquire(t.Context()))(t)
				defer tenure.Release()
				members, err := cfg.Jobs(new(kafkasink.JobLogs)).Members(t.Context(), id)
				if err != nil || len(members) != 1 || !members[0].Owner {
					t.Errorf("members of a job that is run: %+v, %v", members, err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), freeing(run))
			defer cancel()
			_, err := open(t, window).Recover(ctx, nil)
			if freed := errors.Is(err, bridge.ErrNoCheckpoint); freed == run {
				t.Errorf("recover returned %v", err)
			}
		})
	}
}

// A call that waits for another change, or for another reader, ends with its context.
func TestJobsWaitWithinContext(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	cfg := config(t, cluster.ListenAddrs(), exactly)
	jobs, job := oneJob(t, cfg, backfill.Replay)

	within := func(what string, act func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		result := make(chan error, 1)
		go func() { result <- act(ctx) }()
		if err := kafkatest.Receive(t, result, what); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	began, until, changed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := jobs.change(t.Context(), job.ID, func(have backfill.Job) (backfill.Job, error) {
			close(began)
			<-until
			return have, nil
		})
		changed <- err
	}()
	kafkatest.Receive(t, began, "a change")
	within("the other change", func(ctx context.Context) error {
		_, err := jobs.change(ctx, job.ID, func(have backfill.Job) (backfill.Job, error) { return have, nil })
		return err
	})
	close(until)
	must.Do(t, kafkatest.Receive(t, changed, "the change"))

	asked, answer, read := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ask := sync.OnceFunc(func() { close(asked) })
	cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.SleepControl(func() {
			ask()
			<-answer
		})
		return nil, nil, false
	})
	list := func(ctx context.Context) error {
		_, err := jobs.list(ctx)
		return err
	}
	go func() { read <- list(t.Context()) }()
	kafkatest.Receive(t, asked, "a reader")
	within("the other reader", list)
	close(answer)
	must.Do(t, kafkatest.Receive(t, read, "the reader"))
}

func TestWindowIsExactlyOnce(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
		cfg := kafkastream.DefaultConfig()
		cfg.Stream, cfg.Mode, cfg.CreateTopics, cfg.InstanceID = "events", mode, true, "pod-0"
		own := cfg.OfWindow(kafkasink.Window{Name: "events.abc.w1.0-9", Topic: "t", Origin: "backfill"})
		if own.Mode != bridge.ExactlyOnce || own.CreateTopics || own.InstanceID != "" || own.Known != nil {
			t.Errorf("of a stream %s: mode %s, creates topics %t, instance %q", mode, own.Mode, own.CreateTopics, own.InstanceID)
		}
	}
}
