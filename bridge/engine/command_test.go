package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// A reset to where the stream is keeps what is known of the position; one to
// elsewhere does not.
func TestResetThatStays(t *testing.T) {
	t.Parallel()
	from := bridge.Checkpoint{
		Version: bridge.Version{Epoch: 2, Seq: 7}, Cursor: "c9", Tail: bridge.Tail{{1}}, Origin: bridge.Origin{Resource: "events", Start: 5},
		Events: 90, Pages: 9, LastEventTime: 100, PositionTime: 200, AdvanceTime: 300, Drained: true,
	}
	at := bridge.Version{Epoch: 2, Seq: 3} // the same position, before some heartbeats
	stay := bridge.Target{Cursor: "c9", Tail: from.Tail, Start: 5, Events: 90, Pages: 9, Entry: &at}
	back, unknown, elsewhere := stay, stay, from.Origin
	back.Cursor, back.Events = "c8", 80
	unknown.Entry = nil
	elsewhere.Resource = "users"
	for name, c := range map[string]struct {
		to     bridge.Target
		origin bridge.Origin
		keeps  bool
	}{
		"stays": {stay, from.Origin, true}, "goes back": {back, from.Origin, false}, "by cursor": {unknown, from.Origin, false},
		"another export": {stay, elsewhere, false},
	} {
		got := bridge.Reset(from, c.origin, bridge.Command{ID: "r", Kind: bridge.KindReset, Target: c.to})
		if kept := got.LastEventTime == 100 && got.PositionTime == 200 && got.AdvanceTime == 300; kept != c.keeps || got.Drained || got.Epoch != 3 {
			t.Errorf("%s: times %d, %d, %d, drained %v, epoch %d", name, got.LastEventTime, got.PositionTime, got.AdvanceTime, got.Drained, got.Epoch)
		}
	}
}

// A rewind keeps the position in time of its entry, and is called one. What is
// reset elsewhere, or under another export, has no known position.
func TestRewindIsKnown(t *testing.T) {
	t.Parallel()
	origin := bridge.Origin{Resource: "events"}
	from := bridge.Checkpoint{Version: bridge.Version{Epoch: 2, Seq: 7}, Cursor: "c9", Origin: origin, Events: 90, PositionTime: 200}
	entry := bridge.Entry{Checkpoint: bridge.Checkpoint{Version: bridge.Version{Epoch: 1, Seq: 3}, Cursor: "c3", Origin: origin, Events: 30, PositionTime: 100}}
	users := origin
	users.Resource = "users"
	stays, at := entry.Target(), from.Version
	stays.Cursor, stays.Events, stays.Entry = from.Cursor, from.Events, &at
	for name, c := range map[string]struct {
		to       bridge.Target
		origin   bridge.Origin
		kind     bridge.Kind
		position int64
	}{
		"to an entry":      {entry.Target(), origin, bridge.KindRewind, 100},
		"of other events":  {entry.Target(), users, bridge.KindRewind, 0},
		"to where it is":   {stays, origin, bridge.KindReset, 200},
		"to a cursor":      {bridge.Target{Cursor: "c3"}, origin, bridge.KindReset, 0},
		"to the beginning": {bridge.Target{}, origin, bridge.KindReset, 0},
	} {
		got := bridge.Reset(from, c.origin, bridge.Command{ID: "r", Kind: bridge.KindReset, Target: c.to})
		if got.Kind != bridge.KindReset || got.Change.Kind != c.kind || got.PositionTime != c.position {
			t.Errorf("%s: a commit %s by a %s at %d, want a reset by a %s at %d", name, got.Kind, got.Change.Kind, got.PositionTime, c.kind, c.position)
		}
	}
}

func TestResetWhileDataFlows(t *testing.T) {
	t.Parallel()
	inBubble(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.source.Grow(1000)
		r.start()
		r.after(time.Second)
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
			t.Errorf("the checkpoint counts %d events and %d pages in epoch %d, want %d and 99 in 1", c.Events, c.Pages, c.Epoch, len(items))
		}
	})
}

// TestRewindMarksWhatComesAgain: the repeated events are marked up to where
// the news begins, and an event that could be news never is.
func TestRewindMarksWhatComesAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, bridgetest.Export{End: bridgetest.EndEmptyItems}, func(r *harness) {
		r.source.Grow(50)
		r.start()
		r.after(5 * time.Second)
		if a := r.command("r1", bridge.Target{Entry: new(bridge.Version)}); !a.Applied {
			t.Fatal(a.Detail)
		}
		r.source.Grow(50)
		r.after(time.Minute)
		if again := r.again.Load(); again != 50 {
			t.Errorf("%d events are marked as coming again, want 50", again)
		}
		if news := r.store.Checkpoint().RewindEnd; news != nil {
			t.Errorf("the rewind is not over: %+v", news)
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
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, bridgetest.Export{}, func(r *harness) {
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
					return bridgetest.Answer{Body: fmt.Sprintf(`{"items":[%s],"nextCursor":%q}`, strings.Join(items, ","), next)}
				})
				r.cfg.Origin.Start = test.start * hour
				r.start()
				r.after(time.Minute)
				moved = true
				for i, to := range test.moves {
					if a := r.command(fmt.Sprint("r", i), to); !a.Applied {
						t.Fatal(a.Detail)
					}
					r.after(time.Minute)
				}
				if got := int(r.again.Load()); got != test.again {
					t.Errorf("%d events are marked as coming again, want %d", got, test.again)
				}
			})
		})
	}
}

func TestCommandsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(50)
		r.start()
		r.after(time.Second)
		before := r.store.Checkpoint()
		r.push("stale", 7, bridge.Target{})
		if a := r.await("stale"); a.Applied || !strings.Contains(a.Detail, "epoch 0") {
			t.Errorf("stale base epoch: %+v", a)
		}
		r.push("long", 0, bridge.Target{Cursor: strings.Repeat("x", bridge.MaxCursor+1)})
		if a := r.await("long"); a.Applied {
			t.Errorf("cursor too long: %+v", a)
		}
		r.push("wraps", 0, bridge.Target{Events: 1<<63 - 1})
		if a := r.await("wraps"); a.Applied || !strings.Contains(a.Detail, "is out of range") {
			t.Errorf("a counter that would wrap: %+v", a)
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
	})
}

// TestTwoResets: the second was made for the epoch before the first.
func TestTwoResets(t *testing.T) {
	t.Parallel()
	inBubble(t, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) {
		r.source.Grow(500)
		r.start()
		r.after(20 * time.Millisecond)
		r.push("a", 0, bridge.Target{})
		r.push("b", 0, bridge.Target{})
		applied := []bool{r.await("a").Applied, r.await("b").Applied}
		if !slices.Equal(applied, []bool{true, false}) {
			t.Errorf("applied %v, want only the first", applied)
		}
	})
}

// TestAnswerLost: the command is applied once, however often it is offered.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	for _, form := range []bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted} {
		t.Run(form.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, bridgetest.Export{}, func(r *harness) {
				r.source.Grow(50)
				r.start()
				r.after(time.Second)
				r.inbox.FailAnswer(1, form)
				if a := r.command("a", bridge.Target{}); !a.Applied {
					t.Fatalf("refused: %s", a.Detail)
				}
				r.after(time.Minute)
				if e := r.store.Checkpoint().Epoch; e != 1 {
					t.Errorf("epoch %d, want the command applied once", e)
				}
				if n := len(r.values()); n != 100 {
					t.Errorf("%d events, want each twice", n)
				}
			})
		})
	}
}

// TestResetSurvivesACrashBeforeTheAnswer: another process finds the command
// applied and says so.
func TestResetSurvivesACrashBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	inBubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(50)
		r.start()
		r.after(time.Second)
		for n := 1; n < 30; n++ {
			r.inbox.FailAnswer(n, bridgetest.Failed)
		}
		r.push("a", 0, bridge.Target{})
		r.after(time.Second)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		r.start()
		if a := r.await("a"); !a.Applied {
			t.Errorf("answer %+v", a)
		}
		r.after(time.Minute)
		if e := r.store.Checkpoint().Epoch; e != 1 {
			t.Errorf("epoch %d, want 1", e)
		}
	})
}

func TestWithdrawnCommandIsNotApplied(t *testing.T) {
	t.Parallel()
	inBubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(500)
		r.topic.Latency = 10 * time.Second // the loop is busy
		r.start()
		r.after(time.Second)
		cmd := bridge.Command{ID: "a", Kind: bridge.KindReset, Deadline: time.Now().Add(time.Minute).UnixMilli()}
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
			r.source.Refuse(func(bridge.Position) error { return &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth} })
		},
		"long retry": func(r *harness) {
			r.source.Refuse(func(bridge.Position) error {
				return &bridge.Fault{Class: bridge.Throttled, RetryAfter: 10 * time.Minute}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, bridgetest.Export{}, func(r *harness) {
				r.source.Grow(50)
				r.start()
				r.after(time.Second)
				state(r)
				r.after(20 * time.Second)
				asked := time.Now()
				if a := r.command("a", bridge.Target{}); !a.Applied {
					t.Fatalf("refused: %s", a.Detail)
				}
				if took := time.Since(asked); took > 2*time.Second {
					t.Errorf("acknowledged after %v", took)
				}
				r.source.Refuse(nil)
				r.after(15 * time.Minute)
				if n := len(r.values()); n != 100 {
					t.Errorf("%d events, want each twice", n)
				}
			})
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exactlyInBubble(t, bridgetest.Export{}, func(r *harness) {
				r.source.Grow(50)
				r.start()
				r.after(5 * time.Second)
				cmd := bridge.Command{ID: "a", Kind: bridge.KindReset, Who: "op", Deadline: time.Now().Add(time.Minute).UnixMilli()}
				spoil(&cmd)
				r.inbox.Push(cmd)
				what, _, _ := strings.Cut(name, ",")
				if a := r.await("a"); a.Applied || !strings.Contains(a.Detail, "the "+what) || len(a.Detail) > 200 {
					t.Errorf("answer %.300v", a)
				}
				if a := r.command("b", bridge.Target{}); !a.Applied {
					t.Errorf("the next command: %+v", a)
				}
			})
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
