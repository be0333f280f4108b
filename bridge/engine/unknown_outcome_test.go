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
	"exportbridge/bridge/engine"
)

// A transient error within a run of empty pages does not make a window end
// before its last events.
func TestWindowEmptiesCountedTwice(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.cfg.Origin.Start, r.cfg.Origin.End = 1, 946684800001
		pages := map[string]string{
			"":   `{"items":[{"eventId":"1","timestamp":946684800000}],"nextCursor":"e1"}`,
			"e1": `{"items":[],"nextCursor":"e2"}`,
			"e2": `{"items":[],"nextCursor":"e3"}`,
			"e3": `{"items":[],"nextCursor":"e4"}`,
			"e4": `{"items":[{"eventId":"2","timestamp":946684800000}],"nextCursor":""}`,
		}
		failed := false
		r.source.Serve(func(at bridge.Position) bridgetest.Answer {
			if at.Cursor == "e4" && !failed {
				failed = true
				return bridgetest.Answer{Outage: true} // one 503 behind the third empty page
			}
			return bridgetest.Answer{Body: pages[at.Cursor]}
		})
		err := r.run()
		t.Logf("err=%v ended=%q", err, r.bridge.Status().Ended)
		r.wantEvents(2)
		r.mustRun()
		t.Logf("second run: %q, %d events", r.bridge.Status().Ended, len(r.values()))
	})
}

// A sink that fails after each good Recover is asked ever more rarely.
func TestPublishFailsForEver(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(500)
		for n := 1; n < 5000; n++ {
			r.topic.FailPublish(n, bridgetest.Persisted)
		}
		r.startFor(10 * time.Minute)
		t.Logf("in 10 min: %d publishes, %d sessions, %d API requests, %d records in topic", r.topic.Publishes(), r.topic.Recovers(), r.source.Requests(), len(r.values()))
		if n := r.topic.Publishes(); n > 100 {
			t.Errorf("%d sessions in ten minutes: back-off never grows beyond its first step", n)
		}
	})
}

type refusingStore struct {
	*bridgetest.Store
	on func() bool
}

func (s refusingStore) Advance(ctx context.Context, from, to bridge.Checkpoint) error {
	if s.on() {
		return &bridge.Fault{Class: bridge.Permanent, Code: "noperm", Reason: bridge.ReasonConfig, Hint: "allow the user ...", Err: errors.New("NOPERM")}
	}
	return s.Store.Advance(ctx, from, to)
}

// A bounded run ends when the store refuses writes for good.
func TestStoreRefusesWritesBounded(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(50)
		r.cfg.Limits.Once = true
		e, err := engine.New(r.cfg, engine.Ports{Source: r.source, Sink: r.topic.Open("events"), Store: refusingStore{r.store, func() bool { return true }}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(r.t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		r.after(24 * time.Hour)
		select {
		case err := <-ended:
			t.Logf("ended: %v", err)
		default:
			s := e.Status()
			t.Errorf("a bounded run still hangs after 24 h of a permanent refusal, state %s reason %q error %q", s.State, s.Reason, s.Error)
			stop()
			<-ended
		}
		stop()
	})
}

type hook struct{ f func(bridge.Observation) }

func (h hook) Observe(o bridge.Observation) { h.f(o) }

type slowDecode struct{ *bridgetest.Source }

func (s slowDecode) Decode(p *bridge.Page) error {
	<-time.After(3 * time.Millisecond)
	return s.Source.Decode(p)
}

// A run that was stopped does not say that it was drained.
func TestOnceSaysDrainedOnShutdown(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) {
		r.source.Grow(1000)
		r.cfg.Limits.Once = true
		ctx, stop := context.WithCancel(r.t.Context())
		n := 0
		obs := hook{func(o bridge.Observation) {
			if o.What == bridge.ObserveWait {
				if n++; n == 3 {
					<-time.After(2 * time.Millisecond) // the loop is slow for a moment
					stop()
					<-time.After(5 * time.Millisecond)
				}
			}
		}}
		e, err := engine.New(r.cfg, engine.Ports{Source: slowDecode{r.source}, Sink: r.topic.Open("events"), Store: r.store, Observer: obs})
		if err != nil {
			t.Fatal(err)
		}
		err = e.Run(ctx)
		t.Logf("err=%v ended=%q events=%d of 1000", err, e.Status().Ended, len(r.values()))
		if e.Status().Ended == "drained" {
			t.Errorf("says drained with %d of 1000 events", len(r.values()))
		}
	})
}

// A window that was done before still knows what ended it: a sparse filter may
// have cut it short.
func TestWindowKnowsItsEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ last, want string }{
		{`{"items":[],"nextCursor":"e4"}`, "after 4 empty pages in a row"}, // the fourth was asked for ahead
		{`{"items":[],"nextCursor":""}`, "on its last page"},
	} {
		inBubble(t, bridgetest.Export{}, func(r *harness) {
			r.cfg.EmptyPages = 3
			r.cfg.Origin.Start, r.cfg.Origin.End = 1, 946684800001
			pages := map[string]string{
				"":   `{"items":[{"eventId":"1","timestamp":946684800000}],"nextCursor":"e1"}`,
				"e1": `{"items":[],"nextCursor":"e2"}`, "e2": `{"items":[],"nextCursor":"e3"}`, "e3": test.last,
				"e4": `{"items":[],"nextCursor":"e5"}`, "e5": `{"items":[],"nextCursor":""}`,
			}
			r.source.Serve(func(at bridge.Position) bridgetest.Answer { return bridgetest.Answer{Body: pages[at.Cursor]} })
			for _, begin := range []string{"the window ended ", "the window was done before: it ended "} {
				r.mustRun()
				if got := r.bridge.Status().Ended; got != begin+test.want {
					t.Errorf("it says %q, want %q", got, begin+test.want)
				}
			}
		})
	}
}

// The same --until again publishes nothing more.
func TestUntilRepeated(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		items := r.source.Grow(95)
		r.cfg.Limits.Until = timeOf(r, items[42])
		for range 4 {
			r.mustRun()
			t.Logf("%d events, %s", len(r.values()), r.bridge.Status().Ended)
		}
		r.wantEvents(50)
	})
}

// A window that was moved is another window.
func TestWindowStartChanged(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		items := r.source.Grow(95)
		r.cfg.Origin.Start, r.cfg.Origin.End = timeOf(r, items[20]), timeOf(r, items[60])
		r.mustRun()
		n := len(r.values())
		r.cfg.Origin.Start = timeOf(r, items[0])
		err := r.run()
		t.Logf("first window %d events; wider window: err=%v ended=%q, %d events", n, err, r.bridge.Status().Ended, len(r.values()))
		if err == nil && len(r.values()) == n {
			t.Errorf("another window is taken for done: 20 events are skipped in silence")
		}
	})
}

// New events are not marked as republished after a rewind.
func TestNewsMarkedAgain(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		ev := func(id string, at int64) string { return fmt.Sprintf(`{"eventId":%q,"timestamp":%d}`, id, at) }
		pages := map[string]string{"": fmt.Sprintf(`{"items":[%s,%s],"nextCursor":"a1"}`, ev("1", 946684800000), ev("2", 946684809000)), "a1": `{"items":[],"nextCursor":""}`}
		r.source.Serve(func(at bridge.Position) bridgetest.Answer { return bridgetest.Answer{Body: pages[at.Cursor]} })
		r.startFor(time.Second)
		// the export goes on: event 3 is new and a bit older by its client's clock
		pages[""] = fmt.Sprintf(`{"items":[%s,%s],"nextCursor":"b1"}`, ev("1", 946684800000), ev("2", 946684809000))
		pages["b1"] = fmt.Sprintf(`{"items":[%s],"nextCursor":"b2"}`, ev("3", 946684805000))
		pages["b2"] = `{"items":[],"nextCursor":""}`
		r.apply("r1", bridge.Target{})
		r.after(time.Minute)
		t.Logf("values %v, again %d", r.values(), r.again.Load())
		if r.again.Load() > 2 {
			t.Errorf("%d events marked as coming again, only 2 were published before", r.again.Load())
		}
	})
}

// A bridge that is behind finds out before it refuses a command for a newer
// epoch.
func TestRefusesOnStaleKnowledge(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(15, time.Second)
		c := r.store.Checkpoint()
		to := bridge.Reset(c, c.Origin, bridge.Command{ID: "off", Kind: bridge.KindReset})
		to.Owner, to.Session, to.WrittenAt = "cli", "clisession", time.Now().UnixMilli()
		if err := r.store.Advance(r.t.Context(), c, to); err != nil {
			t.Fatal(err)
		}
		r.push("b", 1, bridge.Target{})
		a := r.await("b")
		t.Logf("%+v", a)
		if !a.Applied {
			t.Errorf("a command for the stored epoch 1 is refused by an owner that does not own: %s", a.Detail)
		}
	})
}

// A stream that is blocked at its start answers commands.
func TestCommandWhileBlockedAtStart(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(15)
		r.cfg.Limits.Once = true
		r.mustRun()
		r.cfg.Limits.Once = false
		for n := 2; n < 100; n++ {
			r.topic.FailRecover(n, &bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonTopic, Err: errors.New("no topic")})
		}
		r.startFor(5 * time.Second)
		r.wantState(bridge.StateBlocked, bridge.ReasonTopic)
		r.push("a", 0, bridge.Target{})
		r.after(2 * time.Minute)
		if _, ok := r.inbox.AnswerTo("a"); !ok {
			t.Errorf("blocked (topic) at start: the inbox is not read")
		}
	})
}

// What blocked the stream was mended: a command is not held up until the stream
// looks by itself, unless that would take it from another bridge.
func TestCommandForMendedStream(t *testing.T) {
	t.Parallel()
	for reason, atOnce := range map[bridge.Reason]bool{bridge.ReasonTopic: true, bridge.ReasonOwner: false} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			inBubble(t, bridgetest.Export{}, func(r *harness) {
				r.source.Grow(15)
				r.exactly()
				r.cfg.Limits.Once = true
				r.mustRun()
				r.cfg.Limits.Once = false
				r.topic.FailRecover(2, &bridge.Fault{Class: bridge.Permanent, Reason: reason, Err: errors.New("not yet")})
				r.startFor(5 * time.Second)
				r.wantState(bridge.StateBlocked, reason)
				r.push("a", 0, bridge.Target{})
				r.after(5 * time.Second)
				if _, ok := r.inbox.AnswerTo("a"); ok != atOnce {
					t.Errorf("blocked (%s), mended since: answered within 5s is %t, want %t", reason, ok, atOnce)
				}
				r.after(2 * time.Minute)
				if a, _ := r.inbox.AnswerTo("a"); !a.Applied {
					t.Errorf("the command is not applied later: %+v", a)
				}
			})
		})
	}
}

func TestCommandWhileKafkaAway(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(15)
		r.cfg.Limits.Once = true
		r.mustRun()
		r.cfg.Limits.Once = false
		heal := r.topic.Break()
		r.startFor(5 * time.Second)
		r.push("a", 0, bridge.Target{})
		r.after(2 * time.Minute)
		s := r.bridge.Status()
		if _, ok := r.inbox.AnswerTo("a"); !ok {
			t.Errorf("kafka away at start: the inbox is not read; state %s reason %q error %q", s.State, s.Reason, s.Error)
		}
		heal()
		r.after(time.Minute)
	})
}

// A store that is rolled back to before a reset of an earlier process is put
// right.
func TestRollbackBeyondOwnKnowledge(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.follow(500, 2*time.Second)
		r.apply("r1", bridge.Target{})
		r.after(100 * time.Millisecond)
		r.mustEnd()
		r.start() // another process: knows r1 only
		r.after(200 * time.Millisecond)
		h := r.store.History()
		n := 0
		for i := len(h) - 1; h[i].Epoch == 1; i-- {
			n++
		}
		before := r.bridge.Status().Version
		r.store.RollBack(n)
		r.after(time.Minute)
		c := r.store.Checkpoint()
		t.Logf("bridge was at %v, is at %v change %q; %d values of 1000", before, c.Version, c.ChangeID(), len(r.values()))
		if c.Epoch < 1 {
			t.Errorf("the running bridge went back from %v to %v and dropped the acknowledged rewind: %d records, want 1000", before, c.Version, len(r.values()))
		}
		if strings.Contains(r.log.String(), "level=ERROR") {
			t.Log("said so at error level")
		}
	})
}

// Retry-After counts on a 503 too.
func TestRetryAfter503(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(15)
		r.source.Refuse(func(bridge.Position) error {
			return &bridge.Fault{Class: bridge.Transient, Code: "503", RetryAfter: 5 * time.Minute, Err: errors.New("503")}
		})
		r.startFor(4 * time.Minute)
		t.Logf("%d requests within a Retry-After of 5 min", r.source.Requests())
	})
}

// A cross-check that is answered by 429 waits as long as it says.
func TestCrossCheckThrottled(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(35, time.Second)
		var asked []time.Time
		r.source.Refuse(func(at bridge.Position) error {
			asked = append(asked, time.Now())
			if at.Cursor == "" {
				return &bridge.Fault{Class: bridge.Throttled, Code: "429", RetryAfter: 10 * time.Minute, Err: errors.New("429")}
			}
			return &bridge.Fault{Class: bridge.BadCursor, Code: "404", Err: errors.New("404")}
		})
		r.after(10 * time.Minute)
		t.Logf("%d requests in 10 min, though the 429 of the 4th asked for 10 min of silence", len(asked))
		if len(asked) > 8 {
			t.Errorf("Retry-After of the cross-check is ignored")
		}
	})
}

// A restart soon after the store was rolled back goes on where it was.
func TestRollbackThenGracefulStop(t *testing.T) {
	t.Parallel()
	for _, wipe := range []bool{false, true} {
		inBubble(t, bridgetest.Export{}, func(r *harness) {
			r.follow(95, 2*time.Second)
			if wipe {
				r.store.Wipe()
			} else {
				r.store.RollBack(1)
			}
			r.after(5 * time.Second)
			r.mustEnd()
			r.startFor(time.Minute)
			s := r.bridge.Status()
			t.Logf("wipe=%v: %d values of 95, state %s %s", wipe, len(r.values()), s.State, s.Reason)
		})
	}
}
