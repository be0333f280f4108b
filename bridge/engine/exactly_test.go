package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

// An error of Publish that did commit, and one that did not: both are settled
// by reading the checkpoint back, and nothing comes twice or is missing.
func TestExactlyUnknownOutcome(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ { // start, the batches, the first heartbeats
		for _, form := range []bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted} {
			exactlyInBubble(t, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) {
				r.topic.Latency = 5 * time.Millisecond
				r.source.Grow(600)
				r.topic.FailPublish(n, form)
				r.startFor(time.Minute)
				r.wantIdleAfter(0)
				if r.topic.Recovers() != 2 {
					t.Errorf("publish %d %v: %d sessions, want 2", n, form, r.topic.Recovers())
				}
			})
		}
	}
}

// Redis is a copy: in any state of Redis, events are published at once, and each once.
func TestExactlyWithoutStore(t *testing.T) {
	t.Parallel()
	trouble := map[string]func(r *harness) (heal func()){
		"down":      func(r *harness) func() { return r.store.Break() },
		"wiped":     func(r *harness) func() { r.store.Wipe(); return func() {} },
		"roll back": func(r *harness) func() { r.store.RollBack(2); return func() {} },
	}
	for name, cause := range trouble {
		exactRow(t, name, bridgetest.Export{}, func(r *harness) {
			r.follow(40, 5*time.Second)
			heal := cause(r)
			r.grow(40, 20*time.Second)
			r.wantIdleAfter(0)
			if r.topic.Recovers() != 1 {
				r.t.Errorf("%d sessions, want 1: the store is only a copy", r.topic.Recovers())
			}
			heal()
			r.after(time.Minute)
			r.wantCopied(0)
		})
	}
}

// A start with Redis away needs only what Kafka holds; a new stream waits.
func TestExactlyStartWithoutStore(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(25)
		heal := r.store.Break()
		r.startFor(20 * time.Second)
		r.wantEvents(0)
		r.wantState(bridge.StateBackoff, "")
		heal()
		r.after(time.Minute)
		r.wantOnce()
		r.end()
		r.store.Break()
		r.follow(25, 20*time.Second)
		r.wantOnce()
	})
}

// mergeCase is one row of the merge table.
type mergeCase struct {
	name   string
	before func(r *harness) // after a first run of 30 events, with nothing running
	policy string
	mode   bridge.Mode // of the second run; the first is exactly-once unless first says else
	first  bridge.Mode
	// what the second run does with 10 more events
	again  int           // events of the first run that come again
	lost   int           // events of the first run that are never seen
	epoch  int64         // that it goes on in
	reason bridge.Reason // or why it is blocked
	losses int           // that are counted, of what Kafka had
}

func TestMerge(t *testing.T) {
	t.Parallel()
	for _, m := range []mergeCase{
		{name: "kafka only", before: func(r *harness) { r.store.Wipe() }},
		{name: "redis behind", before: func(r *harness) { r.store.RollBack(1) }},
		{name: "both gone, events there",
			before: func(r *harness) { r.store.Wipe(); r.topic.Forget("events", 1); r.forgetCheckpoints() },
			reason: bridge.ReasonCheckpointLost},
		{name: "kafka behind, kafka", before: func(r *harness) { r.topic.Forget("events", 3) }, epoch: 1, again: -1,
			losses: 1},
		{name: "kafka behind, redis", policy: "redis", before: func(r *harness) { r.topic.Forget("events", 3) }, epoch: 1,
			lost: -1, losses: 1},
		{name: "kafka behind, stop", policy: "stop", before: func(r *harness) { r.topic.Forget("events", 3) },
			reason: bridge.ReasonCheckpoint, losses: 1},
		{name: "kafka of another history, redis", policy: "redis", before: rival, reason: bridge.ReasonCheckpoint, losses: 1},
		{name: "kafka of another history, kafka", before: rival, epoch: 1, losses: 1},
		{name: "redis only", before: func(r *harness) { r.forgetCheckpoints() }, epoch: 1, losses: 1},
		{name: "redis only, and behind", before: func(r *harness) { rollBackEvents(r); r.forgetCheckpoints() }, epoch: 1,
			losses: 1},
		{name: "redis only, and behind, redis", policy: "redis",
			before: func(r *harness) { rollBackEvents(r); r.forgetCheckpoints() }, epoch: 1, losses: 1},
		{name: "both behind, redis", policy: "redis", before: func(r *harness) {
			rollBackEvents(r)
			c := r.store.Checkpoint()
			for _, older := range r.store.History() {
				if older.Events < c.Events {
					r.topic.Rewrite(older)
				}
			}
		}, epoch: 1, losses: 1},
		{name: "redis only, stop", policy: "stop", before: func(r *harness) { r.forgetCheckpoints() },
			reason: bridge.ReasonCheckpoint, losses: 1},
		{name: "was at-least-once", first: bridge.AtLeastOnce, epoch: 1},
		{name: "becomes at-least-once", mode: bridge.AtLeastOnce, epoch: 1},
		{name: "was at-least-once, redis lost", first: bridge.AtLeastOnce, before: func(r *harness) { r.store.Wipe() },
			epoch: 1, again: -1},
		{name: "becomes at-least-once, redis lost", mode: bridge.AtLeastOnce, before: func(r *harness) { r.store.Wipe() },
			epoch: 1},
		{name: "at-least-once, redis lost", first: bridge.AtLeastOnce, mode: bridge.AtLeastOnce,
			before: func(r *harness) { r.store.Wipe() }, again: -1},
	} {
		t.Run(m.name, func(t *testing.T) {
			exactBubble(t, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) { mergeRow(r, m) })
		})
	}
}

// rollBackEvents has the store forget the last events.
func rollBackEvents(r *harness) {
	for had := r.store.Checkpoint().Events; r.store.Checkpoint().Events == had; {
		r.store.RollBack(1)
	}
}

// rival makes the topic's newest checkpoint one that an operator's reset led to,
// in the same epoch as what the store has, and before it.
func rival(r *harness) {
	c := r.store.Checkpoint()
	c.Version.Seq--
	c.Change = &bridge.Change{ID: "rival", Kind: bridge.KindReset, Who: "op"}
	r.topic.Rewrite(c)
}

func mergeRow(r *harness, m mergeCase) {
	if m.policy != "" {
		r.cfg.OnCheckpointLoss = m.policy
	}
	r.topic.Copies = true
	r.topic.Latency = 20 * time.Millisecond
	if m.first == bridge.AtLeastOnce {
		r.switchMode(bridge.AtLeastOnce)
	}
	r.ran(30, time.Minute)
	if m.before != nil {
		m.before(r)
	}
	held := len(r.values())
	if m.mode == "" {
		m.mode = bridge.ExactlyOnce
	}
	r.switchMode(m.mode)
	r.follow(10, time.Minute)
	r.wantObserved(bridge.ObserveTopic, bridge.TopicLost, m.losses)
	if m.reason != "" {
		r.wantState(bridge.StateBlocked, m.reason)
		r.wantEvents(held)
		return
	}
	copies := make(map[string]int)
	for _, v := range r.values() {
		copies[v]++
	}
	again, lost := 0, 40-len(copies)
	for _, n := range copies {
		again += n - 1
	}
	if again != m.again && (m.again >= 0 || again > 30) || lost != m.lost && (m.lost >= 0 || lost > 30) {
		r.t.Errorf("%d events twice and %d missing, want %d and %d", again, lost, m.again, m.lost)
	}
	s := r.bridge.Status()
	if s.Version.Epoch != m.epoch {
		r.t.Errorf("goes on in epoch %d, want %d", s.Version.Epoch, m.epoch)
	}
	r.end()
	if c := r.store.Checkpoint(); c.Epoch != m.epoch || c.Mode != m.mode {
		r.t.Errorf("the store holds %s in mode %s, want epoch %d in mode %s", c.Version, c.Mode, m.epoch, m.mode)
	}
}

// emptying is a sink during whose Recover store and topic lose all checkpoints.
type emptying struct {
	bridge.Sink
	r *harness
}

func (s emptying) Recover(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	s.r.store.Wipe()
	s.r.forgetCheckpoints()
	return s.Sink.Recover(ctx, owned)
}

// TestEpochAfterMemory: where only the process knows an epoch, another mode
// begins the next one, not the same again.
func TestEpochAfterMemory(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(30, 5*time.Second)
		r.command("r1", bridge.Target{})
		r.end()
		r.switchMode(bridge.AtLeastOnce)
		r.startWith(engine.Ports{Inbox: r.inbox, Sink: emptying{r.topic.Open("events"), r}})
		r.after(time.Minute)
		if s := r.bridge.Status(); s.Version.Epoch != 2 {
			r.t.Errorf("the stream is at %s, %s %s, want it in epoch 2", s.Version, s.State, s.Error)
		}
	})
}

// TestEpochBehindTheSinks: an epoch that only the sink knows counts for a command too that
// comes before an at-least-once session can begin.
func TestEpochBehindTheSinks(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*harness){
		"store": func(r *harness) { r.store.FailLoad(r.store.Loads()+2, bridgetest.ErrInjected) },
		"sink":  func(r *harness) { r.topic.FailNext(bridgetest.Failed) },
	} {
		row(t, name, bridgetest.Export{}, func(r *harness) {
			r.ran(30, 5*time.Second)
			r.switchMode(bridge.ExactlyOnce)
			for n := range 100 {
				r.store.FailAdvance(r.store.Advances()+1+n, bridgetest.Failed)
			}
			r.startFor(time.Second)
			r.end()
			r.switchMode(bridge.AtLeastOnce)
			fail(r)
			r.inbox.Push(pause("p", 0))
			r.startFor(10 * time.Minute)
			if a, ok := r.inbox.AnswerTo("p"); !ok {
				r.t.Errorf("the command is not answered: %+v", a)
			}
			r.end()
			r.switchMode(bridge.ExactlyOnce)
			r.startFor(10 * time.Minute)
			if s := r.bridge.Status(); s.State == bridge.StateBlocked || s.Version.Epoch != 3 {
				r.t.Errorf("the stream is at %s, %s %s, want it in epoch 3", s.Version, s.State, s.Error)
			}
		})
	}
}

// TestCommandWhileTheSinkFails: a session that could not begin has no reason to
// refuse what the next one can apply.
func TestCommandWhileTheSinkFails(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.ran(30, 5*time.Second)
		r.topic.FailNext(bridgetest.Failed)
		r.inbox.Push(pause("stay", 0))
		r.startFor(time.Minute)
		r.wantApplied("stay")
	})
}

// wantCopied checks that the store has the stream's checkpoint, and in which epoch.
func (r *harness) wantCopied(epoch int64) {
	r.t.Helper()
	if got, want := r.store.Checkpoint().Version, r.bridge.Status().Version; got != want || got.Epoch != epoch {
		r.t.Errorf("the store is at %s, the stream at %s, want both in epoch %d", got, want, epoch)
	}
}

// overtake puts a checkpoint of another process into the store, so many commits ahead.
func (r *harness) overtake(commits int64) {
	r.t.Helper()
	other := r.store.Checkpoint()
	other.Seq += commits
	other.Session, other.Owner = "other", "somebody"
	r.store.Put(must.Get(other.Encode())(r.t))
}

// Somebody else's newer checkpoint in Redis makes the bridge look once.
func TestExactlyStoreAhead(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(20, 5*time.Second)
		r.overtake(100)
		r.grow(20, time.Minute)
		r.wantOnce() // policy kafka, and Kafka lost nothing
		r.wantObserved(bridge.ObserveTopic, bridge.TopicLost, 1)
		r.wantState(bridge.StateIdle, "")
		if n := r.topic.Recovers(); n != 2 {
			t.Errorf("%d sessions, want 2", n)
		}
		r.wantCopied(1)
	})
}

// A store that is ahead, but unreachable whenever a session begins, does not make the
// stream begin one session after the other.
func TestExactlyStoreAheadUnseen(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(20, 5*time.Second)
		r.overtake(1000)
		away := func(err error) {
			for n := 3; n < 2000; n += 2 { // 1 was the session's, 2 is the mirror's
				r.store.FailLoad(n, err)
			}
		}
		away(bridgetest.ErrDown)
		for range 100 {
			r.grow(1, 3*time.Second)
		}
		r.wantState(bridge.StateBlocked, bridge.ReasonCheckpoint)
		if n := r.topic.Recovers(); n < 3 || n > 10 {
			t.Errorf("%d sessions in five minutes, want one a minute", n)
		}
		away(nil)
		r.wantIdleAfter(2 * time.Minute)
		r.wantCopied(1)
	})
}

// A reset is committed in Kafka before it is acknowledged, and survives the
// loss of Redis from then on.
func TestExactlyReset(t *testing.T) {
	t.Parallel()
	for _, form := range []bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted} {
		exactlyInBubble(t, bridgetest.Export{}, func(r *harness) {
			r.follow(30, 5*time.Second)
			r.topic.FailNext(form)
			a := r.command("r1", bridge.Target{})
			if !a.Applied || a.Version.Epoch != 1 {
				t.Fatalf("answer %+v", a)
			}
			r.store.Wipe()
			r.restart(time.Minute)
			r.wantEvents(60)
			if c := r.store.Checkpoint(); c.Epoch != 1 || c.ChangeID() != "r1" {
				t.Errorf("the store holds %s of change %q", c.Version, c.ChangeID())
			}
		})
	}
}

// wrongDates is a Source whose clock no checkpoint can hold while wrong is set.
type wrongDates struct {
	bridge.Source
	wrong atomic.Bool
}

func (s *wrongDates) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	page, err := s.Source.Fetch(ctx, at)
	if err == nil && s.wrong.Load() {
		page.ServerTime = time.UnixMilli(2 * bridge.MaxNumber)
	}
	return page, err
}

// In both modes, Apply applies a command while no process runs the stream.
func TestApply(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
		inBubble(t, bridgetest.Export{}, func(r *harness) {
			r.deliver(mode)
			r.ran(30, 5*time.Second)
			r.topic.FailNext(bridgetest.Persisted)
			r.cfg.OnInvalidCursor = "time" // asks nothing of a command's ports
			a, err := r.applyWithout(reset("r1", 0, bridge.Target{}))
			r.cfg.OnInvalidCursor = "stop"
			if err != nil || !a.Applied || a.Version != (bridge.Version{Epoch: 1}) {
				t.Fatalf("%s: answer %+v, %v", mode, a, err)
			}
			if c := r.store.Checkpoint(); c.Version != a.Version {
				t.Errorf("%s: the store is at %s", mode, c.Version)
			}
			if a, err := r.applyWithout(reset("r2", 0, bridge.Target{})); err != nil || a.Applied {
				t.Errorf("%s: a command for an old epoch: %+v, %v", mode, a, err)
			}
			r.startFor(time.Minute)
			r.wantEvents(60)
		})
	}
}

// A reset repairs what blocks a stream: lost checkpoints, a Kafka that lost
// data, settings that changed.
func TestApplyRepairs(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(r *harness){
		"checkpoint lost": func(r *harness) { r.store.Wipe(); r.forgetCheckpoints() },
		"kafka behind":    func(r *harness) { r.cfg.OnCheckpointLoss = "stop"; r.topic.Forget("events", 2) },
		"other events":    func(r *harness) { r.cfg.Origin.Events = []string{"orderPlaced"} },
	} {
		for _, running := range []bool{true, false} {
			exactlyInBubble(t, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) {
				r.topic.Latency = 20 * time.Millisecond
				r.ran(30, time.Minute)
				spoil(r)
				if running {
					r.start()
				}
				r.steer(reset("r1", 0, bridge.Target{}), running)
				r.after(time.Minute)
				r.wantState(bridge.StateIdle, "")
				if t.Failed() {
					t.Fatalf("%s, running %v", name, running)
				}
			})
		}
	}
}

// Apply says what it cannot do, within its time.
func TestApplyWithoutServer(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.topic.Break()
		cmd := reset("r1", 0, bridge.Target{})
		r.inbox.Push(cmd)
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
		defer cancel()
		_, err := engine.Apply(ctx, r.cfg, r.portsOf(r.inbox), cmd)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "r1") {
			t.Errorf("apply without Kafka: %v", err)
		}
	})
}

// Every epoch of an at-least-once stream is in the sink before it is in the
// store: a later exactly-once session must not meet one that it never heard of.
func TestEpochIntroduced(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.topic.Copies = true
		r.follow(30, 5*time.Second)
		heal := r.store.Break()
		defer heal()
		r.push("r1", 0, bridge.Target{})
		r.after(5 * time.Second)
		r.cfg.ShutdownTimeout = time.Nanosecond
		c, err := r.topic.Open("events").Recover(r.t.Context(), nil)
		if stored := r.store.Checkpoint(); err != nil || c.Epoch != 1 || stored.Epoch != 0 {
			t.Errorf("the sink holds %s (%v), the store %s; want the reset in the sink first", c.Version, err, stored.Version)
		}
	})
}

// A batch that is dropped because the store shows another process's checkpoint does not
// become visible with the next command.
func TestExactlyDropsTheBatchAtHand(t *testing.T) {
	t.Parallel()
	for n := range 10 {
		exactlyInBubble(t, bridgetest.Export{Latency: 9 * time.Millisecond}, func(r *harness) {
			r.topic.Latency = 60 * time.Millisecond // so that batches grow
			r.follow(4000, time.Second+time.Duration(n)*7*time.Millisecond)
			r.overtake(5000)
			for r.bridge.Status().State != bridge.StateBackoff {
				r.after(time.Millisecond)
			}
			kept := r.topic.Kept()
			last := kept[len(kept)-1].Checkpoint
			r.push("r1", last.Epoch, bridge.Target{Cursor: last.Cursor, Tail: last.Tail, Events: last.Events, Pages: last.Pages})
			r.after(2 * time.Minute)
			r.wantOnce()
		})
	}
}

// An API that ignores the cursor lists the first page again under each new one.
// It is published once, whether the cursors differ or not.
func TestIgnoredCursor(t *testing.T) {
	t.Parallel()
	for name, cursor := range map[string]func(n int) string{
		"a new one each time": func(n int) string { return fmt.Sprint("c", n) },
		"always the same":     func(int) string { return "c" },
	} {
		exactRow(t, name, bridgetest.Export{PageSize: 3}, func(r *harness) {
			n := 0
			r.source.Serve(func(bridge.Position) bridgetest.Answer {
				n++
				return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[{"eventId":"a","timestamp":1},{"eventId":"b",`+
					`"timestamp":2},{"eventId":"c","timestamp":3}],"nextCursor":%q}`, cursor(n))}
			})
			r.startFor(10 * time.Minute)
			r.wantState(bridge.StateBlocked, bridge.ReasonCycle)
			r.wantEvents(3)
		})
	}
}
