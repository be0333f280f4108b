package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

// inTopic runs a test in each mode, on a stream that has published 30 events
// and stands by for more.
func inTopic(t *testing.T, test func(r *harness)) {
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.follow(30, time.Minute) // and two heartbeats, so that the checkpoint has caught up
		test(r)
	})
}

// wantTopicBlocked wants the running bridge to be blocked and to publish nothing.
func (r *harness) wantTopicBlocked(words ...string) {
	r.t.Helper()
	s := r.bridge.Status()
	if s.State != bridge.StateBlocked || s.Reason != bridge.ReasonTopic {
		r.t.Fatalf("the stream is %s (%s) %s, want it blocked (topic)", s.State, s.Reason, s.Error)
	}
	for _, word := range append(words, "records 30 events") {
		if !strings.Contains(s.Error, word) {
			r.t.Errorf("the error says %q, want %q in it", s.Error, word)
		}
	}
	if s.Hint != string(bridge.HintTopicLost) {
		r.t.Errorf("the hint is %q, want %s", s.Hint, bridge.HintTopicLost)
	}
}

func TestTopicMadeAgainWhileRunning(t *testing.T) {
	t.Parallel()
	inTopic(t, func(r *harness) {
		r.topic.Recreate()
		r.grow(5, 5*time.Minute)
		r.wantTopicBlocked("recreated")
		r.wantObserved(bridge.ObserveTopic, bridge.TopicLost, 1)
		r.wantEvents(0)
	})
}

func TestTopicMadeAgainWhileStopped(t *testing.T) {
	t.Parallel()
	inTopic(t, func(r *harness) {
		r.end()
		r.topic.Recreate()
		r.cfg.Limits.Once = true
		wantBlocked(r.t, r.run(), bridge.ReasonTopic)
		r.wantObserved(bridge.ObserveTopic, bridge.TopicLost, 1)
	})
}

// TestTopicAccepted resets a blocked stream, while it runs and while it does
// not: from then on the topic is the stream's.
func TestTopicAccepted(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"earliest", "current"} {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, running %t", target, running), func(t *testing.T) {
				t.Parallel()
				inTopic(t, func(r *harness) {
					if !running {
						r.end()
					}
					r.topic.Recreate()
					if running {
						r.grow(5, 5*time.Minute)
						r.wantTopicBlocked()
					}
					now := r.store.Checkpoint()
					cmd := reset("accept", now.Epoch, bridge.Target{})
					want := 30
					if target == "current" {
						cmd.Target, want = stay(now), 0
					}
					r.steer(cmd, running)
					if running {
						want += 5
					}
					r.after(2 * time.Minute)
					r.wantState(bridge.StateIdle, "")
					r.wantEvents(want)
					if n := r.again.Load(); n > 0 {
						r.t.Errorf("%d events are marked as published before, in a topic that did not have them", n)
					}
					if got := r.store.Checkpoint().Topics[0].ID; got != "topic-1" {
						r.t.Errorf("the checkpoint names topic %q, want the new one", got)
					}
				})
			})
		}
	}
}

// steer has the running bridge apply the command, or applies it without a bridge and then
// starts one.
func (r *harness) steer(cmd bridge.Command, running bool) {
	r.t.Helper()
	if running {
		r.inbox.Push(cmd)
		r.after(time.Minute)
	} else if _, err := r.applyWithout(cmd); err != nil {
		r.t.Fatal(err)
	} else {
		r.start()
	}
	r.wantApplied(cmd.ID)
}

// TestTopicReplacedAfterAcceptedLoss: the policy about lost checkpoints accepts
// what the topic lacks then, not a topic that is replaced afterwards.
func TestTopicReplacedAfterAcceptedLoss(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.OnCheckpointLoss = "redis"
		r.follow(30, time.Minute)
		now := r.store.Checkpoint()
		r.command("r1", bridge.Target{Cursor: now.Cursor, Tail: now.Tail}) // where nobody has counted
		r.after(time.Minute)
		r.end()
		r.forgetCheckpoints()
		r.topic.Cut(1)
		r.startFor(time.Second)
		r.wantState(bridge.StateIdle, "")
		r.topic.Recreate()
		r.grow(5, 5*time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonTopic)
	})
}

// TestTopicWithoutIDAfterAcceptedLoss: the policy also accepts the loss where the
// checkpoint is from brokers without topic ids.
func TestTopicWithoutIDAfterAcceptedLoss(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.OnCheckpointLoss = "redis"
		r.ran(30, time.Minute)
		old := r.store.Checkpoint()
		old.Topics[0].ID = ""
		r.rewrite(old)
		r.forgetCheckpoints()
		r.topic.Cut(1)
		r.startFor(time.Minute)
		r.wantState(bridge.StateIdle, "")
	})
}

// replacing is a sink whose topic is recreated, once, when a session asks for its topics.
type replacing struct {
	bridge.Sink
	topic *bridgetest.Topic
	done  *bool
}

func (s replacing) Topics(ctx context.Context) ([]bridge.TopicState, error) {
	if !*s.done {
		*s.done = true
		s.topic.Recreate()
	}
	return s.Sink.Topics(ctx)
}

// TestTopicUnknown: a session that cannot know its topic is over, also for a
// command that waits.
func TestTopicUnknown(t *testing.T) {
	t.Parallel()
	inTopic(t, func(r *harness) {
		r.end()
		r.inbox.Push(pause("stay", 0))
		r.startWith(engine.Ports{Inbox: r.inbox, Sink: replacing{r.topic.Open("events"), r.topic, new(bool)}})
		r.after(2 * time.Minute)
		r.wantApplied("stay")
	})
}

// TestTopicCutOffWhileRunning: what the session sends before it notices takes the
// place of what was lost; the loss is not forgotten for that.
func TestTopicCutOffWhileRunning(t *testing.T) {
	t.Parallel()
	inTopic(t, func(r *harness) {
		r.topic.Cut(3)
		r.source.Grow(5)
		for range 2 {
			r.after(5 * time.Minute)
			r.wantTopicBlocked("lost 3 offsets")
			r.end()
			r.start()
		}
		r.after(5 * time.Minute)
		now, want := r.store.Checkpoint(), 27+5
		if r.cfg.Mode == bridge.AtLeastOnce {
			want += 5 // that came before it was noticed
		}
		r.steer(reset("accept", now.Epoch, stay(now)), true)
		r.after(time.Minute)
		r.wantState(bridge.StateIdle, "")
		r.wantEvents(want)
	})
}

// TestTopicCutOffWithoutID: the loss is not forgotten either where the checkpoint
// is from brokers without topic ids.
func TestTopicCutOffWithoutID(t *testing.T) {
	t.Parallel()
	inTopic(t, func(r *harness) {
		r.end()
		old := r.store.Checkpoint()
		old.Mode, old.Topics[0].ID = r.cfg.Mode, ""
		r.rewrite(old)
		r.start()
		synctest.Wait() // the session has looked at the topic and committed nothing
		r.topic.Cut(3)
		r.source.Grow(5)
		for range 2 {
			r.after(5 * time.Minute)
			r.wantTopicBlocked("lost 3 offsets")
			r.end()
			r.start()
		}
		r.after(5 * time.Minute)
	})
}

// TestTopicAcceptedByAnotherDuringRewind: the marks that a process has read count no more
// once another process has accepted another topic.
func TestTopicAcceptedByAnotherDuringRewind(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: time.Second, PageSize: 5}, func(r *harness) {
		r.follow(30, time.Minute)
		r.push("back", 0, bridge.Target{})
		r.after(2500 * time.Millisecond) // two of its six pages
		if n := r.again.Load(); n == 0 || n == 30 {
			r.t.Fatalf("%d events are marked, want a part", n)
		}
		r.source.Refuse(func(bridge.Position) error { return bridgetest.ErrDown })
		r.after(time.Second)
		r.topic.Recreate()
		inbox := bridgetest.NewInbox(r.t)
		cmd := reset("accept", 1, bridge.Target{})
		inbox.Push(cmd)
		if a, err := engine.Apply(r.t.Context(), r.cfg, r.portsOf(inbox), cmd); err != nil || !a.Applied {
			r.t.Fatalf("%+v, %v", a, err)
		}
		r.after(time.Minute) // a heartbeat, which finds the stream moved
		r.source.Refuse(nil)
		r.after(5 * time.Minute)
		r.wantState(bridge.StateIdle, "")
		r.wantEvents(30)
	})
}

// TestTopicBlockedAnswersWhoKnowsMore: a command for a later epoch makes the stream look
// whether it was moved. A stream that is then still blocked must answer the command, which
// would otherwise keep out every other command.
func TestTopicBlockedAnswersWhoKnowsMore(t *testing.T) {
	t.Parallel()
	inTopic(t, func(r *harness) {
		r.end()
		r.topic.Trim(10, false)
		r.startFor(2 * time.Minute)
		r.wantTopicBlocked()
		r.push("later", 1, bridge.Target{})
		r.after(2 * time.Minute)
		if a, ok := r.inbox.AnswerTo("later"); !ok || a.Applied {
			r.t.Errorf("the answer is %+v, %t; want it refused", a, ok)
		}
	})
}

func TestTopicLogs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bridgetest.Topic)
		words  string // empty: the stream goes on
	}{
		"cut off":                         {func(p *bridgetest.Topic) { p.Cut(3) }, "lost 3 offsets"},
		"trimmed by retention":            {func(p *bridgetest.Topic) { p.Trim(10, true) }, ""},
		"trimmed without retention":       {func(p *bridgetest.Topic) { p.Trim(10, false) }, "starts 10 offsets later"},
		"trimmed by retention, all of it": {func(p *bridgetest.Topic) { p.Trim(30, true) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTopic(t, func(r *harness) {
				r.end()
				c.change(r.topic)
				r.startFor(time.Minute)
				if c.words != "" {
					r.wantTopicBlocked(c.words)
					return
				}
				r.wantState(bridge.StateIdle, "")
			})
		})
	}
}

// TestTopicOfAnOldCheckpoint: the id is filled in, but an empty topic is refused.
func TestTopicOfAnOldCheckpoint(t *testing.T) {
	t.Parallel()
	inTopic(t, func(r *harness) {
		r.end()
		old := r.store.Checkpoint()
		old.Topics, old.Mode = nil, r.cfg.Mode
		r.rewrite(old)
		r.startFor(time.Minute)
		if got := r.store.Checkpoint().Topics; len(got) != 1 || got[0].ID != "topic-0" {
			r.t.Fatalf("the checkpoint names %v, want the topic", got)
		}
		r.end()
		r.topic.Recreate()
		old.Version = r.store.Checkpoint().Version
		r.rewrite(old)
		r.startFor(time.Minute)
		r.wantTopicBlocked("always been empty")
	})
}

// rewrite makes c what everybody remembers.
func (r *harness) rewrite(c bridge.Checkpoint) {
	r.t.Helper()
	raw := must.Get(c.Encode())(r.t)
	r.topic.Rewrite(c)
	r.store.Put(raw)
}

// TestTopicGrows: the order per key changes, which is logged and counted once, and recorded.
func TestTopicGrows(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		inTopic(t, func(r *harness) {
			if !running {
				r.end()
			}
			r.topic.Grow()
			if !running {
				r.start()
			}
			r.after(2 * time.Minute)
			r.restart(2 * time.Minute)
			r.wantObserved(bridge.ObserveTopic, bridge.TopicGrew, 1)
			r.wantLogged("partitions added", 1)
			got := r.store.Checkpoint().Topics[0]
			if got.Partitions != 2 || got.GrewFrom != 1 || got.GrewAt == 0 {
				r.t.Errorf("the checkpoint remembers %+v", got)
			}
			if text := bridge.GrownText(r.store.Checkpoint().Topics); !strings.Contains(text, "2 partitions; it had 1 until") {
				r.t.Errorf("text: %q", text)
			}
		})
	}
}

// TestTopicMovedByOneReset: a stream whose configuration names another topic is
// moved to it, which is empty, by the reset that its hint asks for.
func TestTopicMovedByOneReset(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		inTopic(t, func(r *harness) {
			r.end()
			old := r.store.Checkpoint()
			old.Topic, old.Topics = "before", []bridge.TopicState{{Name: "before", ID: "b", Partitions: 1, End: 30,
				KeepsAll: true}}
			r.rewrite(old)
			r.topic.Recreate()
			r.cfg.Topic = "events"
			if running {
				r.startFor(5 * time.Minute)
				r.wantState(bridge.StateBlocked, bridge.ReasonSource)
			}
			now := r.store.Checkpoint()
			r.steer(reset("move", now.Epoch, now.CurrentTarget()), running)
			r.grow(5, 2*time.Minute)
			r.wantState(bridge.StateIdle, "")
		})
	}
}

// TestTopicLostIsSaidThoughReset: a reset that comes before the loss was reported accepts
// it. The loss is still logged and counted.
func TestTopicLostIsSaidThoughReset(t *testing.T) {
	t.Parallel()
	inTopic(t, func(r *harness) {
		r.end()
		r.topic.Recreate()
		now := r.store.Checkpoint()
		r.push("unaware", now.Epoch, bridge.Target{Start: now.Origin.Start})
		r.startFor(time.Minute)
		if a, _ := r.inbox.AnswerTo("unaware"); !a.Applied || !strings.Contains(a.Detail, "recreated") {
			r.t.Errorf("the answer is %+v, want it to say that the topic was recreated", a)
		}
		r.wantObserved(bridge.ObserveTopic, bridge.TopicLost, 1)
	})
}

// TestTopicsLost looks at the rule itself.
func TestTopicsLost(t *testing.T) {
	t.Parallel()
	events := bridge.TopicState{Name: "events", ID: "a", Partitions: 3, End: 100, KeepsAll: true}
	letters := bridge.TopicState{Name: "dlq", ID: "b", Partitions: 3, End: 10, KeepsAll: true, DeadLetters: true}
	with := func(t bridge.TopicState, change func(*bridge.TopicState)) bridge.TopicState { change(&t); return t }
	fresh := func(s *bridge.TopicState) { s.ID, s.End = "new", 0 }
	ends := func(end int64, offsets ...int64) []bridge.TopicState {
		return []bridge.TopicState{
			with(events, func(s *bridge.TopicState) { s.End, s.Ends = end, bridge.EncodeEnds(offsets) })}
	}
	known := []bridge.TopicState{events, letters}
	for name, c := range map[string]struct {
		have  bridge.Checkpoint
		found []bridge.TopicState
		lost  string
	}{
		"as before": {bridge.Checkpoint{Topics: known, Events: 50}, known, ""},
		"more": {bridge.Checkpoint{Topics: known, Events: 50},
			[]bridge.TopicState{with(events, func(s *bridge.TopicState) { s.End = 200 }), letters}, ""},
		"one partition cut, others grown": {bridge.Checkpoint{Topics: ends(100, 40, 30, 30), Events: 50},
			ends(150, 90, 20, 40), "10 offsets before its previous end in partition 1"},
		"a partition unknown to a broker": {bridge.Checkpoint{Topics: ends(100, 40, 30, 30), Events: 50},
			ends(120, 90, 30), ""},
		"another id": {bridge.Checkpoint{Topics: known, Events: 50},
			[]bridge.TopicState{with(events, func(s *bridge.TopicState) { s.ID, s.End = "new", 500 }), letters},
			"topic events was deleted"},
		"another id, after a rewind": {bridge.Checkpoint{Topics: known},
			[]bridge.TopicState{with(events, fresh), letters}, "topic events was deleted"},
		"a server without ids": {bridge.Checkpoint{Topics: known, Events: 50},
			[]bridge.TopicState{with(events, func(s *bridge.TopicState) { s.ID = "" }), letters}, ""},
		"letters made again": {bridge.Checkpoint{Topics: known, Events: 50},
			[]bridge.TopicState{events, with(letters, fresh)}, "topic dlq was deleted"},
		"letters deleted": {bridge.Checkpoint{Topics: known, Events: 50},
			[]bridge.TopicState{events, with(letters, func(s *bridge.TopicState) { s.Start = 10 })}, ""},
		"letters not in use": {bridge.Checkpoint{Topics: known, Events: 50}, []bridge.TopicState{events}, ""},
		"letters new": {bridge.Checkpoint{Topics: known[:1], Events: 50},
			[]bridge.TopicState{events, with(letters, fresh)}, ""},
		"nothing published yet": {bridge.Checkpoint{Topics: []bridge.TopicState{with(events,
			func(s *bridge.TopicState) { s.End = 0 })}}, []bridge.TopicState{with(events, fresh)}, ""},
		"killed after the first commit": {bridge.Checkpoint{Topics: []bridge.TopicState{with(events,
			func(s *bridge.TopicState) { s.End = 0 })}, Events: 5}, []bridge.TopicState{with(events, fresh)},
			"topic events was deleted"},
		"another topic by configuration": {bridge.Checkpoint{Topics: known, Events: 50, Topic: "events"},
			[]bridge.TopicState{{Name: "other", ID: "c"}}, ""},
		"old, empty": {bridge.Checkpoint{Events: 50}, []bridge.TopicState{with(events, fresh)},
			"always been empty"},
		"old, full": {bridge.Checkpoint{Events: 50}, []bridge.TopicState{events}, ""},
		"old, all of it dead letters": {bridge.Checkpoint{Events: 10}, []bridge.TopicState{with(events, fresh), letters},
			""},
		"old, some of it dead letters": {bridge.Checkpoint{Events: 50}, []bridge.TopicState{with(events, fresh), letters},
			"always been empty"},
		"old, nothing published": {bridge.Checkpoint{}, []bridge.TopicState{with(events, fresh)}, ""},
		"a purge, then for ever": {bridge.Checkpoint{Topics: []bridge.TopicState{with(events,
			func(s *bridge.TopicState) { s.KeepsAll = false })}, Events: 50},
			[]bridge.TopicState{with(events, func(s *bridge.TopicState) { s.Start = 90 })}, ""},
	} {
		got := ""
		if fault := bridge.TopicsLost(c.have, c.found); fault != nil {
			got = fault.Error()
		}
		if c.lost == "" && got != "" || !strings.Contains(got, c.lost) {
			t.Errorf("%s: %q, want %q", name, got, c.lost)
		}
	}
}

// TestTopicAcceptedWithAnotherMode: a reset without a bridge accepts a recreated topic, even
// if the delivery mode has changed too.
func TestTopicAcceptedWithAnotherMode(t *testing.T) {
	t.Parallel()
	inTopic(t, func(r *harness) {
		r.end()
		r.topic.Recreate()
		if r.cfg.Mode == bridge.ExactlyOnce {
			r.switchMode(bridge.AtLeastOnce)
		} else {
			r.switchMode(bridge.ExactlyOnce)
		}
		r.steer(reset("both", r.store.Checkpoint().Epoch, bridge.Target{}), false)
		r.after(2 * time.Minute)
		r.wantState(bridge.StateIdle, "")
		r.wantEvents(30)
	})
}
