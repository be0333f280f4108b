package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
)

// Random failures, wipes, roll-backs, restarts and latency, without resets:
// nothing is lost, and first copies come in order.
func TestChaos(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		for _, end := range bridgetest.Ends {
			rnd := rand.New(rand.NewPCG(seed, 7))
			synctest.Test(t, func(t *testing.T) {
				r := newHarness(t, bridgetest.Export{End: end, NoIDs: seed%3 == 0, PageSize: 3 + rnd.IntN(8),
					Latency: time.Duration(rnd.IntN(30)) * time.Millisecond})
				r.topic.Latency = time.Duration(rnd.IntN(30)) * time.Millisecond
				r.store.Latency = time.Duration(rnd.IntN(10)) * time.Millisecond
				r.cfg.PrefetchPages = 2 + rnd.IntN(6)
				r.source.Grow(rnd.IntN(80))
				r.start()
				for range 40 {
					switch rnd.IntN(10) {
					case 0:
						r.topic.FailNext(bridgetest.Failure(rnd.IntN(3)))
					case 1:
						f := bridgetest.Failed
						if rnd.IntN(2) == 0 {
							f = bridgetest.Persisted
						}
						r.store.FailNext(f)
					case 2:
						r.source.FailRequest(r.source.Requests()+1+rnd.IntN(3), errors.New("x"))
					case 3:
						heal := r.store.Break()
						r.after(time.Duration(rnd.IntN(8000)) * time.Millisecond)
						heal()
					case 4:
						if rnd.IntN(2) == 0 {
							r.cfg.ShutdownTimeout = time.Nanosecond
						} else {
							r.cfg.ShutdownTimeout = 20 * time.Second
						}
						if err := r.end(); err != nil && !errors.Is(err, engine.ErrShutdown) {
							t.Logf("seed %d %s: end %v", seed, end, err)
						}
						r.start()
					default:
						r.source.Grow(rnd.IntN(12))
					}
					r.after(time.Duration(rnd.IntN(3000)) * time.Millisecond)
				}
				r.after(3 * time.Minute)
				r.wantAll()
				r.wantState(bridge.StateIdle, "")
				r.end()
				if t.Failed() {
					t.Fatalf("seed %d end %s noids %v\n%s", seed, end, seed%3 == 0, r.log.String())
				}
			})
			if t.Failed() {
				return
			}
		}
	}
}

// A window over a sparse export publishes all of it in spite of any failures.
func TestWindowChaos(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		inBubble(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
			rnd := rand.New(rand.NewPCG(seed, 9))
			r.cfg.Origin.Start, r.cfg.Origin.End = 1, 946684800001
			n, want, empties := 3+rnd.IntN(12), 0, 0
			pages := make(map[string]bridgetest.Answer)
			for at, i := "", 1; i <= n; i++ {
				next := fmt.Sprint("c", i)
				if i == n {
					next = ""
				}
				if i < n && empties < 4 && rnd.IntN(3) > 0 {
					empties++
					pages[at] = answer(next)
				} else {
					empties = 0
					want++
					pages[at] = answer(next, sparseItem(fmt.Sprint(i), 0))
				}
				at = next
			}
			r.source.Serve(func(at bridge.Position) bridgetest.Answer {
				page := pages[at.Cursor]
				page.Outage = rnd.IntN(6) == 0
				return page
			})
			r.mustRun()
			if r.wantEvents(want); t.Failed() {
				t.Fatalf("seed %d: %q", seed, r.bridge.Status().Ended)
			}
		})
	}
}

// A run to the end of the results ends after EXPORT_EMPTY_PAGES empty pages in a
// row, and the next run continues after them.
func TestOnceSparse(t *testing.T) {
	bubble(t, bridgetest.Export{Latency: 20 * time.Millisecond}, func(r *harness) {
		r.cfg.Limits.Once = true
		pages := map[string]bridgetest.Answer{"": answer("e1", sparseItem("1", 0)), "e6": answer("", sparseItem("2", 0))}
		for i := 1; i <= 5; i++ {
			pages[fmt.Sprint("e", i)] = answer(fmt.Sprint("e", i+1))
		}
		r.source.Serve(func(at bridge.Position) bridgetest.Answer { return pages[at.Cursor] })
		for run, want := range []string{"drained after 5 empty pages in a row", "drained on its last page"} {
			r.mustRun()
			if got := r.bridge.Status().Ended; got != want || len(r.values()) != run+1 {
				t.Errorf("run %d ended with %q and %d events in all, want %q", run+1, got, len(r.values()), want)
			}
		}
	})
}

// Commands that race with commits are applied once or refused.
func TestCommandsChaos(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		synctest.Test(t, func(t *testing.T) {
			r := newHarness(t, bridgetest.Export{PageSize: 5, Latency: time.Duration(rnd.IntN(20)) * time.Millisecond})
			r.topic.Latency = time.Duration(rnd.IntN(20)) * time.Millisecond
			r.store.Latency = time.Duration(rnd.IntN(10)) * time.Millisecond
			r.follow(150, 50*time.Millisecond)
			applied, ids := 0, []string{}
			withdrawn := map[string]bool{}
			for i := range 12 {
				id := fmt.Sprint("c", i)
				cmd := reset(id, r.bridge.Status().Version.Epoch, bridge.Target{})
				cmd.Deadline = time.Now().Add(30 * time.Second).UnixMilli()
				switch rnd.IntN(4) {
				case 0:
					r.topic.FailNext(bridgetest.Failure(rnd.IntN(3)))
				case 1:
					r.store.FailNext([]bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted}[rnd.IntN(2)])
				case 2:
					r.inbox.FailAnswer(1+i, []bridgetest.Failure{bridgetest.Failed, bridgetest.Persisted}[rnd.IntN(2)])
				}
				r.inbox.Push(cmd)
				ids = append(ids, id)
				r.after(time.Duration(rnd.IntN(400)) * time.Millisecond)
				if rnd.IntN(3) == 0 && r.inbox.Withdraw(cmd) {
					withdrawn[id] = true
				}
				if rnd.IntN(3) == 0 {
					r.cfg.ShutdownTimeout = []time.Duration{time.Nanosecond, 20 * time.Second}[rnd.IntN(2)]
					r.end()
					r.start()
				}
				r.after(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			}
			r.after(2 * time.Minute)
			seen := map[string]int{}
			last := ""
			for _, h := range r.store.History() {
				if c := h.ChangeID(); c != last {
					seen[c]++
					last = c
				}
			}
			for _, id := range ids {
				a, ok := r.inbox.AnswerTo(id)
				switch {
				case withdrawn[id] && seen[id] > 0:
					t.Errorf("withdrawn %s applied", id)
				case withdrawn[id]:
				case !ok:
					t.Errorf("%s has no answer", id)
				case a.Applied && seen[id] != 1 || !a.Applied && seen[id] != 0:
					t.Errorf("%s answer %+v, in history %d times", id, a, seen[id])
				}
				if a.Applied {
					applied++
				}
			}
			if e := r.store.Checkpoint().Epoch; int(e) != applied {
				t.Errorf("epoch %d, %d applied", e, applied)
			}
			r.end()
			if t.Failed() {
				t.Fatalf("seed %d\n%s", seed, r.log)
			}
		})
		if t.Failed() {
			return
		}
	}
}
