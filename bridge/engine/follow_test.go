package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

func TestEachContractOnce(t *testing.T) {
	t.Parallel()
	for _, end := range bridgetest.Ends {
		for _, noIDs := range []bool{false, true} {
			row(t, fmt.Sprintf("%s/ids=%v", end, !noIDs), bridgetest.Export{End: end, NoIDs: noIDs}, func(r *harness) {
				r.follow(95, time.Second)
				r.wantOnce()
				for i := range 40 { // slow growth, across page borders
					r.grow(1+i%3, 2*time.Second)
				}
				r.after(20 * time.Second)
				r.wantIdleAfter(0)
				want := bridge.ContractEmptyCursor
				if end == bridgetest.EndEmptyItems || end == bridgetest.EndFreshCursor {
					want = bridge.ContractEmptyItems
				}
				if got := r.bridge.Status().Contract; got != want {
					r.t.Errorf("contract seen is %q, want %q", got, want)
				}
			})
		}
	}
}

// TestQuietExportIsNotHammered: polls slow down from one a second to one in fifteen
// seconds, at every kind of end of the results.
func TestQuietExportIsNotHammered(t *testing.T) {
	t.Parallel()
	for _, end := range bridgetest.Ends {
		row(t, string(end), bridgetest.Export{End: end}, func(r *harness) {
			r.follow(25, 10*time.Minute)
			if n := r.source.Requests(); n < 40 || n > 70 {
				r.t.Errorf("%d requests in ten quiet minutes, want about 50", n)
			}
			if n := len(r.store.History()); n > 60 {
				r.t.Errorf("%d checkpoints in ten quiet minutes", n)
			}
			r.wantOnce()
		})
	}
}

// TestFailures: every step fails in every form, one at a time, early and late.
func TestFailures(t *testing.T) {
	t.Parallel()
	steps := map[string]func(r *harness, n int){
		"publish failed":               func(r *harness, n int) { r.topic.FailPublish(n, bridgetest.Failed) },
		"publish failed but persisted": func(r *harness, n int) { r.topic.FailPublish(n, bridgetest.Persisted) },
		"publish partly persisted":     func(r *harness, n int) { r.topic.FailPublish(n, bridgetest.Partly) },
		"advance failed":               func(r *harness, n int) { r.store.FailAdvance(n, bridgetest.Failed) },
		"advance failed but persisted": func(r *harness, n int) { r.store.FailAdvance(n, bridgetest.Persisted) },
		"request failed":               func(r *harness, n int) { r.source.FailRequest(n, errors.New("connection reset")) },
		"recover failed":               func(r *harness, n int) { r.topic.FailRecover(n, errors.New("no broker")) },
		"load failed":                  func(r *harness, n int) { r.store.FailLoad(n, errors.New("timeout")) },
		"publish and then load failed": func(r *harness, n int) {
			r.topic.FailPublish(n, bridgetest.Persisted)
			r.store.FailLoad(2, errors.New("x"))
		},
		"advance persisted, then again": func(r *harness, n int) {
			r.store.FailAdvance(n, bridgetest.Persisted)
			r.store.FailAdvance(n+1, bridgetest.Persisted)
		},
	}
	for name, fail := range steps {
		for _, end := range []bridgetest.End{bridgetest.EndNullCursor, bridgetest.EndEmptyItems} {
			t.Run(fmt.Sprintf("%s/%s", name, end), func(t *testing.T) {
				t.Parallel()
				for n := 1; n <= 6; n++ {
					inBubble(t, bridgetest.Export{End: end, PageSize: 5, Latency: 10 * time.Millisecond}, func(r *harness) {
						fail(r, n)
						r.follow(33, 20*time.Second)
						r.grow(4, 2*time.Minute)
						r.wantAll()
						r.wantState(bridge.StateIdle, "")
						if strings.HasPrefix(name, "advance") || strings.HasPrefix(name, "request") {
							r.wantOnce() // nothing was in doubt at the sink
						}
					})
				}
			})
		}
	}
}

// TestRestartsAnywhere stops the process at every moment, in order or by
// abandoning what is in flight, and starts another one.
func TestRestartsAnywhere(t *testing.T) {
	t.Parallel()
	for _, end := range bridgetest.Ends {
		for _, abandon := range []bool{false, true} {
			row(t, fmt.Sprintf("%s/abandon=%v", end, abandon), bridgetest.Export{End: end, PageSize: 4,
				Latency: 7 * time.Millisecond}, func(r *harness) {
				r.topic.Latency, r.store.Latency = 11*time.Millisecond, 3*time.Millisecond
				if abandon {
					r.cfg.ShutdownTimeout = time.Nanosecond
				}
				r.source.Grow(50)
				for ms := range 60 {
					r.startFor(time.Duration(ms*3) * time.Millisecond)
					r.source.Grow(ms % 4)
					if err := r.end(); err != nil && !errors.Is(err, engine.ErrShutdown) {
						r.t.Errorf("after %d ms: %v", ms*3, err)
					}
				}
				r.startFor(time.Minute)
				r.wantAll()
				if !abandon {
					r.wantOnce()
				}
			})
		}
	}
}

func TestFetchRunsAhead(t *testing.T) {
	bubble(t, bridgetest.Export{PageSize: 10, Latency: 20 * time.Millisecond}, func(r *harness) {
		r.topic.Latency, r.store.Latency = 15*time.Millisecond, time.Millisecond
		r.cfg.Limits.Once = true
		r.source.Grow(1000)
		began := time.Now()
		r.mustRun()
		// 100 pages of 20 ms each, and one commit behind the last.
		if took := time.Since(began); took > 100*20*time.Millisecond+50*time.Millisecond {
			t.Errorf("100 pages of 20 ms took %v: publishing is not hidden behind fetching", took)
		}
		r.wantOnce()
	})
}

// TestMemoryIsBounded: with Kafka or Redis away, the fetcher stops at its budget.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kafka", "redis"} {
		row(t, name, bridgetest.Export{Latency: time.Millisecond}, func(r *harness) {
			heal := func() {}
			r.start()
			r.after(10 * time.Millisecond) // the start is committed
			if name == "kafka" {
				r.topic.SetLatency(30 * time.Minute)
				heal = func() { r.topic.SetLatency(0) }
			}
			r.grow(1000, time.Second)
			if name == "redis" {
				heal = r.store.Break()
			}
			r.after(20 * time.Minute)
			if n := r.source.Unreleased(); n > r.cfg.PrefetchPages || n < 2 {
				r.t.Errorf("%d pages in memory, budget is %d", n, r.cfg.PrefetchPages)
			}
			heal()
			r.after(time.Hour)
			r.wantOnce()
		})
	}
}

func TestByteBudgetAllowsTwoPages(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 50 * time.Millisecond}, func(r *harness) {
		r.cfg.PrefetchBytes = 1
		r.source.Grow(200)
		r.topic.Latency = time.Second
		r.start()
		r.after(1500 * time.Millisecond) // the first batch is on its way
		if n := r.source.Unreleased(); n != 2 {
			t.Errorf("%d pages in memory, want 2", n)
		}
	})
}

// TestStartIsRestated: a run that published nothing, with a wrong key say,
// does not fix the settings. But a later start would skip what came in between.
func TestStartIsRestated(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		items := r.source.Grow(50)
		r.after(time.Hour)
		r.cfg.Origin.Start = timeOf(r, items[20])
		r.source.Refuse(always(bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth}))
		r.cfg.Limits.Once = true
		wantBlocked(t, r.run(), bridge.ReasonAuth)
		r.source.Refuse(nil)
		r.cfg.Origin.Start, r.cfg.Origin.Events = timeOf(r, items[30]), []string{"x"}
		r.cfg.Limits.MaxEvents = 1
		r.mustRun()
		if got := r.store.Checkpoint().Origin; got.Start != timeOf(r, items[20]) || len(got.Events) != 1 {
			t.Errorf("the stream began with %+v, want the earlier start and the new filter", got)
		}
		if !strings.Contains(r.log.String(), "configured start ignored") {
			t.Error("said nothing about the start that it ignores")
		}
		said := len(r.log.String())
		r.cfg.RelativeStart = true
		r.cfg.Origin.Start = timeOf(r, items[40])
		r.source.Refuse(always(bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth}))
		_ = r.run()
		if strings.Contains(r.log.String()[said:], "configured start ignored") {
			t.Error("warned of a start that moves by itself")
		}
	})
	inBubble(t, bridgetest.Export{}, func(r *harness) {
		items := r.source.Grow(50)
		r.cfg.Origin.Start = timeOf(r, items[20])
		r.source.Refuse(always(bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth}))
		r.cfg.Limits.Once = true
		wantBlocked(t, r.run(), bridge.ReasonAuth)
		r.source.Refuse(nil)
		r.cfg.Origin.Start = 0
		r.mustRun()
		r.wantOnce()
	})
}

// TestFollowIsRestated: a stream that has read nothing can be followed by windows, which need a
// time to begin at, and by its cursor again. Its checkpoint has the format of the new way, and
// no listing, which the first windows begin.
func TestFollowIsRestated(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.LookBack = time.Hour
		now := time.Now().UnixMilli()
		for _, o := range []bridge.Origin{{}, {Follow: bridge.FollowWindows, Start: now}, {}} {
			o.Resource = r.cfg.Origin.Resource
			r.cfg.Origin, r.cfg.Limits.Once = o, true
			r.source.Refuse(always(bridge.Fault{Class: bridge.Permanent, Reason: bridge.ReasonAuth}))
			wantBlocked(r.t, r.run(), bridge.ReasonAuth)
			c := r.store.Checkpoint()
			if !c.Origin.Same(o) || c.Origin.Start != o.Start || c.Format != o.Format() || c.Listing != nil {
				r.t.Errorf("format %d of %s, listing %v; want that of %s", c.Format, c.Origin, c.Listing, o)
			}
			r.cfg.Limits.Once = false
			r.source.Refuse(nil)
			r.startFor(time.Minute)
			r.mustEnd()
		}
	})
}

// TestStatusNamesWhoIsAway: a stream that waits for a server is not caught up.
func TestStatusNamesWhoIsAway(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		health := new(bridge.Health)
		r.source.Grow(5)
		r.startWith(engine.Ports{Health: health})
		r.after(time.Second)
		if s := r.bridge.Status(); !s.CaughtUp {
			t.Errorf("%+v, want caught up", s)
		}
		health.Reporter("kafka")(&bridge.Fault{Code: "network", Err: errors.New("connection refused"), Hint: "start it"})
		if s := r.bridge.Status(); s.CaughtUp || s.State != bridge.StateBackoff || s.Hint != "start it" ||
			!strings.Contains(s.Error, "kafka is down: connection refused") {
			t.Errorf("state %s %q, hint %q, caught up %v", s.State, s.Error, s.Hint, s.CaughtUp)
		}
		health.Reporter("kafka")(nil)
		r.wantState(bridge.StateIdle, "")
	})
}

// TestEmptyPages: three are followed at once, then the stream counts as caught
// up, and commits that only move the cursor are at most one a second.
func TestEmptyPages(t *testing.T) {
	bubble(t, bridgetest.Export{End: bridgetest.EndFreshCursor}, func(r *harness) {
		r.cfg.PollInterval, r.cfg.PollIntervalMax = 100*time.Millisecond, 100*time.Millisecond
		r.follow(10, 50*time.Millisecond)
		if n := r.source.Requests(); n != 1+4 {
			t.Errorf("%d requests at once, want the page with items, an empty page, and three more", n)
		}
		r.after(10 * time.Second)
		if n := len(r.store.History()); n > 15 {
			t.Errorf("%d commits in 10 s over empty pages", n)
		}
		r.grow(10, time.Second)
		r.wantOnce()
	})
}

func TestShutdownFinishesTheBatch(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.start()
		r.after(time.Second) // the start is committed
		r.source.Grow(100)
		r.topic.SetLatency(10 * time.Second)
		r.after(5 * time.Second)
		must.Do(t, r.end())
		if len(r.values()) == 0 {
			t.Fatal("the batch in flight was not finished")
		}
		r.topic.Latency = 0
		r.startFor(time.Minute)
		r.wantOnce()
	})
}

func TestShutdownTimesOut(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.start()
		r.after(time.Second) // the start is committed
		r.source.Grow(100)
		r.topic.SetLatency(time.Hour)
		r.after(5 * time.Second)
		began := time.Now()
		must.Be(t, r.end(), engine.ErrShutdown)
		if took := time.Since(began); took != r.cfg.ShutdownTimeout {
			t.Errorf("took %v, want %v", took, r.cfg.ShutdownTimeout)
		}
	})
}

func TestHeartbeatRestoresTheStore(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(15, time.Second)
		before := r.store.Checkpoint()
		r.store.Wipe()
		r.after(40 * time.Second)
		after := r.store.Checkpoint()
		if after.Cursor != before.Cursor || len(after.Tail) != len(before.Tail) || after.Kind != bridge.KindHeartbeat {
			t.Errorf("restored %+v, want a heartbeat at %+v", after, before)
		}
		r.grow(30, time.Minute)
		r.wantOnce()
	})
}

func TestWipedWhileDataFlows(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.source.Grow(500)
		r.start()
		for range 5 {
			r.after(100 * time.Millisecond)
			r.store.Wipe()
		}
		r.after(time.Minute)
		r.wantOnce()
	})
}

// TestStoreRolledBack: a fail-over that lost the last writes.
func TestStoreRolledBack(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.follow(500, 300*time.Millisecond)
		r.store.RollBack(3)
		r.after(300 * time.Millisecond)
		r.apply("r1", bridge.Target{})
		r.after(50 * time.Millisecond)
		r.store.RollBack(5) // loses the reset too, which was acknowledged
		r.after(time.Minute)
		if c := r.store.Checkpoint(); c.Epoch != 1 || c.ChangeID() != "r1" {
			t.Errorf("the store holds %s of change %q, want the acknowledged reset", c.Version, c.ChangeID())
		}
	})
}

func TestCheckpointLost(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.ran(50, time.Second)
		r.store.Wipe()
		asked := r.source.Requests()
		r.startFor(10 * time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonCheckpointLost)
		if r.source.Requests() != asked {
			t.Error("asked the API without a checkpoint")
		}
		r.push("r", 0, bridge.Target{Start: 1})
		r.applied(r.await("r"))
		r.after(time.Minute)
		r.wantState(bridge.StateIdle, "")
		r.wantEvents(100)
	})
}

// A stream begins only when it is known that it has not begun before.
func TestBegunBeforeOrNot(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(50)
		r.topic.Vast(true)
		r.startFor(10 * time.Minute)
		r.wantState(bridge.StateBlocked, bridge.ReasonCheckpointLost)
		if n := r.source.Requests(); n > 0 {
			t.Errorf("asked the API %d times, not knowing whether the stream is new", n)
		}
		r.topic.Vast(false)
		r.after(2 * time.Minute)
		r.wantState(bridge.StateIdle, "")
		r.wantEvents(50)
	})
}

func TestSecondBridgeIsNoticed(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 50 * time.Millisecond}, func(r *harness) {
		shared := turns{make(chan struct{}, 1), r.source}
		r.source.Grow(2000)
		r.startWith(engine.Ports{Source: shared})
		r.after(310 * time.Millisecond)
		first, stop, ended := r.bridge, r.stop, r.ended
		r.cfg.Owner = "you"
		r.startWith(engine.Ports{Source: shared})
		r.after(5 * time.Second)
		states := []bridge.Reason{first.Status().Reason, r.bridge.Status().Reason}
		if !slices.Contains(states, bridge.ReasonOwner) {
			t.Errorf("two bridges on one stream: %v, want one of them blocked (owner)", states)
		}
		stop()
		<-ended
		r.after(10 * time.Minute)
		r.wantState(bridge.StateIdle, "")
	})
}

// TestStoreFailsDuringDoubt: the session is over, and the store that it would
// recover from lost everything, or the last commits. The process still knows.
func TestStoreFailsDuringDoubt(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(s *bridgetest.Store){
		"wiped":       func(s *bridgetest.Store) { s.Wipe() },
		"rolled back": func(s *bridgetest.Store) { s.RollBack(3) },
	} {
		row(t, name, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
			r.source.Grow(500)
			r.topic.Latency = 50 * time.Millisecond
			r.startFor(310 * time.Millisecond)
			fail(r.store)
			r.topic.FailNext(bridgetest.Failed)
			r.after(time.Minute)
			r.wantIdleAfter(0)
		})
	}
}

// A store that is rolled back to before a reset of an earlier process is put
// right.
func TestRollbackBeyondOwnKnowledge(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.follow(500, 2*time.Second)
		r.apply("r1", bridge.Target{})
		r.after(100 * time.Millisecond)
		r.restart(200 * time.Millisecond) // another process: knows r1 only
		h := r.store.History()
		r.store.RollBack(len(h) - slices.IndexFunc(h, func(c bridge.Checkpoint) bool { return c.Epoch == 1 }))
		r.after(time.Minute)
		if c := r.store.Checkpoint(); c.Epoch < 1 {
			t.Errorf("the running bridge went back to %v and dropped the acknowledged rewind", c.Version)
		}
	})
}

// A restart soon after the store was rolled back goes on where it was.
func TestRollbackThenGracefulStop(t *testing.T) {
	t.Parallel()
	for _, lose := range []func(s *bridgetest.Store){(*bridgetest.Store).Wipe,
		func(s *bridgetest.Store) { s.RollBack(1) }} {
		inBubble(t, bridgetest.Export{}, func(r *harness) {
			r.follow(95, 2*time.Second)
			lose(r.store)
			r.after(5 * time.Second)
			r.mustEnd()
			r.start()
			r.wantIdleAfter(time.Minute)
		})
	}
}
