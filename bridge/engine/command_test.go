package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

// command pushes a reset made for the stored epoch and returns its answer.
func (r *harness) command(id string, target bridge.Target) bridge.Answer {
	r.t.Helper()
	r.push(id, r.store.Checkpoint().Epoch, target)
	return r.await(id)
}

// apply is a command that must be applied.
func (r *harness) apply(id string, target bridge.Target) {
	r.t.Helper()
	r.applied(r.command(id, target))
}

// applied ends the test at an answer that refuses the command.
func (r *harness) applied(a bridge.Answer) {
	r.t.Helper()
	if !a.Applied {
		r.t.Fatalf("refused: %s", a.Detail)
	}
}

func (r *harness) push(id string, epoch int64, target bridge.Target) {
	r.inbox.Push(reset(id, epoch, target))
}

// reset is a command of an operator, which waits for a minute.
func reset(id string, epoch int64, target bridge.Target) bridge.Command {
	return bridge.Command{
		ID: id, Kind: bridge.KindReset, BaseEpoch: epoch, Target: target, Who: "op",
		Deadline: time.Now().Add(time.Minute).UnixMilli(),
	}
}

// pause is the command that pauses the stream without an end.
func pause(id string, epoch int64) bridge.Command {
	cmd := reset(id, epoch, bridge.Target{})
	cmd.Kind, cmd.PausedUntil = bridge.KindPause, bridge.Forever
	return cmd
}

// applyWithout pushes a command and applies it without a running bridge.
func (r *harness) applyWithout(cmd bridge.Command) (bridge.Answer, error) {
	r.inbox.Push(cmd)
	return engine.Apply(r.t.Context(), r.cfg, r.portsOf(r.inbox), cmd)
}

// portsOf are the ports of a command that is applied without a running bridge.
func (r *harness) portsOf(inbox bridge.Inbox) engine.Ports {
	return engine.Ports{Sink: r.topic.Open("events"), Store: r.store, Inbox: inbox}
}

func (r *harness) await(id string) bridge.Answer {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	return must.Get(r.inbox.Await(ctx, id))(r.t)
}

// wantApplied checks that a command was answered as applied.
func (r *harness) wantApplied(id string) {
	r.t.Helper()
	if a, ok := r.inbox.AnswerTo(id); !ok || !a.Applied {
		r.t.Errorf("command %s is answered %+v, %t, want it applied", id, a, ok)
	}
}

// A reset to where the stream is keeps what is known of the position. A rewind keeps the
// position in time of its entry, and is called one. What is reset elsewhere, or under another
// export, has no known position.
func TestResetKeepsWhatIsKnown(t *testing.T) {
	t.Parallel()
	origin := bridge.Origin{Resource: "events", Start: 5}
	users := bridge.Origin{Resource: "users", Start: 5}
	from := bridge.Checkpoint{
		Version: bridge.Version{Epoch: 2, Seq: 7}, Cursor: "c9", Tail: bridge.Tail{{1}}, Origin: origin,
		Events: 90, Pages: 9, LastEventTime: 100, PositionTime: 200, AdvanceTime: 300, Drained: true,
	}
	entry := bridge.Entry{Checkpoint: bridge.Checkpoint{Version: bridge.Version{Epoch: 1, Seq: 3}, Cursor: "c3",
		Origin: origin, Events: 30, PositionTime: 100}}
	at := bridge.Version{Epoch: 2, Seq: 3} // the same position, before some heartbeats
	stay := bridge.Target{Cursor: "c9", Tail: from.Tail, Start: 5, Events: 90, Pages: 9, Entry: &at}
	back, unknown := stay, stay
	back.Cursor, back.Events, unknown.Entry = "c8", 80, nil
	for name, c := range map[string]struct {
		to       bridge.Target
		origin   bridge.Origin
		kind     bridge.Kind
		position int64
	}{
		"to where it is":   {stay, origin, bridge.KindReset, 200},
		"back":             {back, origin, bridge.KindRewind, 0},
		"by cursor":        {unknown, origin, bridge.KindReset, 0},
		"another export":   {stay, users, bridge.KindReset, 0},
		"to an entry":      {entry.Target(), origin, bridge.KindRewind, 100},
		"of other events":  {entry.Target(), users, bridge.KindRewind, 0},
		"to a cursor":      {bridge.Target{Cursor: "c3"}, origin, bridge.KindReset, 0},
		"to the beginning": {bridge.Target{}, origin, bridge.KindReset, 0},
	} {
		got := bridge.Reset(from, c.origin, bridge.Command{ID: "r", Kind: bridge.KindReset, Target: c.to})
		if got.Kind != bridge.KindReset || got.Change.Kind != c.kind || got.PositionTime != c.position {
			t.Errorf("%s: a commit %s by a %s at %d, want a reset by a %s at %d", name, got.Kind, got.Change.Kind,
				got.PositionTime, c.kind, c.position)
		}
		stays := c.position == from.PositionTime
		if kept := got.LastEventTime == 100 && got.AdvanceTime == 300; kept != stays || got.Drained || got.Epoch != 3 {
			t.Errorf("%s: times %d and %d, drained %v, epoch %d", name, got.LastEventTime, got.AdvanceTime, got.Drained, got.Epoch)
		}
	}
}

func TestResetWhileDataFlows(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.follow(1000, time.Second)
		var back bridge.Checkpoint
		for _, c := range r.store.History() {
			if c.Kind == bridge.KindData && c.Pages == 20 {
				back = c
			}
		}
		at := r.store.Checkpoint()
		asked := time.Now()
		a := r.command("r1", bridge.Target{Cursor: back.Cursor, Tail: back.Tail, Events: back.Events, Pages: back.Pages})
		if !a.Applied || a.By != "me" || a.Version.Epoch != 1 {
			t.Fatalf("answer %+v", a)
		}
		if took := time.Since(asked); took > 2*time.Second {
			t.Errorf("acknowledged after %v", took)
		}
		r.after(time.Minute)
		r.wantState(bridge.StateIdle, "")
		values := r.values()
		count := make(map[string]int)
		for _, v := range values {
			count[v]++
		}
		items := r.source.Items()
		for i, item := range items {
			want := 1
			if i >= int(back.Events) && count[string(item.Raw)] == 2 {
				want = 2 // between the target and where the reset was applied
			}
			if got := count[string(item.Raw)]; got != want {
				t.Errorf("item %d is %d times in the topic", i, got)
			}
		}
		again := len(values) - len(items)
		if least := int(at.Events - back.Events); again < least || again > least+80 {
			t.Errorf("%d events came again, want those from %d to about %d", again, back.Events, at.Events)
		}
		c := r.store.Checkpoint()
		if c.Epoch != 1 || c.Events != int64(len(items)) || c.Pages != 99 {
			t.Errorf("the checkpoint counts %d events and %d pages in epoch %d, want %d and 99 in 1", c.Events, c.Pages,
				c.Epoch, len(items))
		}
	})
}

// TestSkippedIsNews: what an operator moved the stream over, or what lies before
// its start, was never published. A rewind that comes to it does not mark it.
func TestSkippedIsNews(t *testing.T) {
	t.Parallel()
	const hour = 3600_000
	times := []int64{1, 2, 3, 20, 21, 22, 40, 41, 42, 43} // in hours
	for _, test := range []struct {
		name  string
		start int64 // in hours
		moves []bridge.Target
		again int
	}{
		{"back to the beginning", 0, []bridge.Target{{}}, 10},
		{"back before the start", 20, []bridge.Target{{}}, 7},
		{"back over a gap", 0, []bridge.Target{{Start: 41 * hour}, {}}, 9},
		{"back over a gap after a cursor that nobody knows", 0, []bridge.Target{{Cursor: "forty"}, {}}, 10},
		{"ahead within what is published", 0, []bridge.Target{{}, {Start: 20 * hour}, {}}, 10 + 7 + 10},
	} {
		row(t, test.name, bridgetest.Export{}, func(r *harness) {
			gap := len(test.moves) > 1 && (test.moves[0].Cursor != "" || test.moves[0].Start > 40*hour)
			moved := false
			r.source.Serve(func(at bridge.Position) bridgetest.Answer {
				var items []string
				for i, hours := range times {
					listed := at.Cursor == "" && hours*hour >= at.Start || at.Cursor == "forty" && hours >= 40
					if listed && (hours < 40 || moved || !gap) {
						items = append(items, fmt.Sprintf(`{"eventId":"e%d","timestamp":%d}`, i, hours*hour))
					}
				}
				next := "last"
				if len(items) == 0 {
					next = ""
				}
				return answer(next, items...)
			})
			r.cfg.Origin.Start = test.start * hour
			r.startFor(time.Minute)
			moved = true
			for i, to := range test.moves {
				r.apply(fmt.Sprint("r", i), to)
				r.after(time.Minute)
			}
			if got := int(r.again.Load()); got != test.again {
				r.t.Errorf("%d events are marked as coming again, want %d", got, test.again)
			}
		})
	}
}

func TestCommandsRefused(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(50, time.Second)
		before := r.store.Checkpoint()
		r.push("stale", 7, bridge.Target{})
		if a := r.await("stale"); a.Applied || !strings.Contains(a.Detail, "epoch 0") {
			t.Errorf("stale base epoch: %+v", a)
		}
		for id, n := range map[string]int64{"wraps": 1<<63 - 1, "is full": bridge.MaxNumber} {
			r.push(id, 0, bridge.Target{Events: n})
			if a := r.await(id); a.Applied || !strings.Contains(a.Detail, "is out of range") {
				t.Errorf("a counter that %s: %+v", id, a)
			}
		}
		r.inbox.Push(bridge.Command{ID: "what", Kind: "dance", Deadline: time.Now().Add(time.Minute).UnixMilli()})
		if a := r.await("what"); a.Applied || !strings.Contains(a.Detail, "dance") {
			t.Errorf("unknown command: %+v", a)
		}
		if after := r.store.Checkpoint(); after.Version.Epoch != before.Epoch || after.Cursor != before.Cursor {
			t.Errorf("a refused command moved the stream from %v to %v", before.Version, after.Version)
		}
		r.after(time.Second)
		r.wantOnce()
		r.push("first", 0, bridge.Target{})
		r.push("second", 0, bridge.Target{}) // made for the epoch before the first
		if first, second := r.await("first"), r.await("second"); !first.Applied || second.Applied {
			t.Errorf("of two resets for one epoch: %+v, %+v; want only the first applied", first, second)
		}
	})
}

// TestAnswerLost: the command is applied once, however often it is offered.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	for _, form := range []bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted} {
		row(t, form.String(), bridgetest.Export{}, func(r *harness) {
			r.follow(50, time.Second)
			r.inbox.FailAnswer(1, form)
			r.apply("a", bridge.Target{})
			r.after(time.Minute)
			if e := r.store.Checkpoint().Epoch; e != 1 {
				r.t.Errorf("epoch %d, want the command applied once", e)
			}
			r.wantEvents(100)
		})
	}
}

func TestWithdrawnCommandIsNotApplied(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(500)
		r.topic.Latency = 10 * time.Second // the loop is busy
		r.startFor(time.Second)
		cmd := reset("a", 0, bridge.Target{})
		r.inbox.Push(cmd)
		r.after(2 * time.Second)
		if !r.inbox.Withdraw(cmd) {
			t.Fatal("not withdrawn")
		}
		r.after(10 * time.Minute)
		if e := r.store.Checkpoint().Epoch; e != 0 {
			t.Error("a withdrawn command was applied")
		}
		r.wantOnce()
	})
}

func TestResetInEveryState(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]func(r *harness){
		"idle": func(*harness) {},
		"blocked": func(r *harness) {
			r.source.Refuse(always(bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth}))
		},
		"long retry": func(r *harness) {
			r.source.Refuse(always(bridge.Fault{Class: bridge.Throttled, RetryAfter: 10 * time.Minute}))
		},
	} {
		row(t, name, bridgetest.Export{}, func(r *harness) {
			r.follow(50, time.Second)
			state(r)
			r.after(20 * time.Second)
			asked := time.Now()
			r.apply("a", bridge.Target{})
			if took := time.Since(asked); took > 2*time.Second {
				r.t.Errorf("acknowledged after %v", took)
			}
			r.source.Refuse(nil)
			r.after(15 * time.Minute)
			r.wantEvents(100)
		})
	}
}

// TestInvalidCommand: what another inbox lets through is refused, and does not
// get into a checkpoint.
func TestInvalidCommand(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3<<20)
	for name, spoil := range map[string]func(*bridge.Command){
		"reason":                   func(c *bridge.Command) { c.Reason = long },
		"who":                      func(c *bridge.Command) { c.Who = long },
		"kind":                     func(c *bridge.Command) { c.Kind = bridge.Kind(long) },
		"cursor":                   func(c *bridge.Command) { c.Target.Cursor = long },
		"tail":                     func(c *bridge.Command) { c.Target.Tail = make(bridge.Tail, 4001) },
		"who, a control character": func(c *bridge.Command) { c.Who = "ann\nbob" },
	} {
		exactRow(t, name, bridgetest.Export{}, func(r *harness) {
			r.follow(50, 5*time.Second)
			cmd := reset("a", 0, bridge.Target{})
			spoil(&cmd)
			r.inbox.Push(cmd)
			what, _, _ := strings.Cut(name, ",")
			if a := r.await("a"); a.Applied || !strings.Contains(a.Detail, "the "+what) || len(a.Detail) > 200 {
				r.t.Errorf("answer %.300v", a)
			}
			r.apply("b", bridge.Target{})
		})
	}
}

func TestCheckReason(t *testing.T) {
	t.Parallel()
	for reason, fine := range map[string]bool{
		"": true, "der Anbieter zieht um – 3 h": true, strings.Repeat("x", 1000): true,
		strings.Repeat("x", 1001): false, "two\nlines": false, "red \x1b[31m": false, "\xff": false,
		"\u202eturned round": false, "\u2066kept apart": false, "two\u2028lines": false, "مهم": true,
	} {
		if err := bridge.CheckReason(reason); (err == nil) != fine {
			t.Errorf("%.20q: %v", reason, err)
		}
	}
}

// A bridge that is behind finds out before it refuses a command for a newer
// epoch.
func TestRefusesOnStaleKnowledge(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(15, time.Second)
		c := r.store.Checkpoint()
		to := bridge.Reset(c, c.Origin, bridge.Command{ID: "off", Kind: bridge.KindReset})
		to.Owner, to.Session, to.WrittenAt = "cli", "clisession", time.Now().UnixMilli()
		must.Do(t, r.store.Advance(r.t.Context(), c, to))
		r.push("b", 1, bridge.Target{})
		r.applied(r.await("b")) // by the owner of the stored epoch
	})
}

// A stream that cannot begin answers commands.
func TestCommandWithoutASession(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*harness){
		"blocked": func(r *harness) {
			for n := 2; n < 100; n++ {
				r.topic.FailRecover(n, &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonTopic,
					Err: errors.New("no topic")})
			}
		},
		"Kafka is away": func(r *harness) { r.topic.Break() },
	} {
		row(t, name, bridgetest.Export{}, func(r *harness) {
			r.ran(15, time.Second)
			away(r)
			r.startFor(5 * time.Second)
			r.push("a", 0, bridge.Target{})
			r.after(2 * time.Minute)
			if _, ok := r.inbox.AnswerTo("a"); !ok || r.bridge.Status().CaughtUp {
				r.t.Errorf("the inbox is not read")
			}
		})
	}
}

// TestCommandAfterAnotherProcess: a process that cannot reach Kafka applies a command to the
// position in the store, since another process may have moved the stream.
func TestCommandAfterAnotherProcess(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(15, time.Second)
		r.topic.Break()
		r.grow(10, time.Minute)
		was := r.store.Checkpoint()
		moved := was
		moved.Version, moved.Kind, moved.Session = was.Next(), bridge.KindHeartbeat, "other"
		moved.Cursor, moved.Events = "later", was.Events+10
		must.Do(t, r.store.Advance(t.Context(), was, moved))
		r.inbox.Push(pause("p1", was.Epoch))
		r.applied(r.await("p1"))
		c := r.store.Checkpoint()
		if c.Cursor != moved.Cursor || c.Events != moved.Events || c.PausedUntil != bridge.Forever {
			t.Errorf("paused at cursor %q after %d events, want the position of the other process", c.Cursor, c.Events)
		}
	})
}

// TestFencedAppliesNothing: while another bridge runs the stream, that bridge applies the
// commands.
func TestFencedAppliesNothing(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.ran(15, time.Second)
		for n := 2; n < 100; n++ {
			r.topic.FailRecover(n, bridge.ErrFenced)
		}
		r.startFor(15 * time.Second)
		r.wantState(bridge.StateBlocked, bridge.ReasonOwner)
		r.inbox.Push(pause("p1", 0))
		r.after(2 * time.Minute)
		if a, ok := r.inbox.AnswerTo("p1"); ok || r.store.Checkpoint().PausedUntil != 0 {
			r.t.Errorf("the fenced bridge has answered %+v", a)
		}
	})
}

// What blocked the stream was mended: a command is not held up until the stream
// looks by itself, unless that would take it from another bridge.
func TestCommandForMendedStream(t *testing.T) {
	t.Parallel()
	for reason, atOnce := range map[bridge.Reason]bool{bridge.ReasonTopic: true, bridge.ReasonOwner: false} {
		exactRow(t, string(reason), bridgetest.Export{}, func(r *harness) {
			r.ran(15, time.Second)
			r.topic.FailRecover(2, &bridge.Fault{Class: bridge.Permanent, Reason: reason, Err: errors.New("not yet")})
			r.startFor(5 * time.Second)
			r.wantState(bridge.StateBlocked, reason)
			r.push("a", 0, bridge.Target{})
			r.after(5 * time.Second)
			if _, ok := r.inbox.AnswerTo("a"); ok != atOnce {
				r.t.Errorf("blocked (%s), mended since: answered within 5s is %t, want %t", reason, ok, atOnce)
			}
			r.after(2 * time.Minute)
			r.wantApplied("a")
		})
	}
}
