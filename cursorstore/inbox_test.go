package cursorstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/conformance"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

func TestInboxConformance(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		conformance.TestInbox(t, func(t *testing.T) conformance.InboxFixture {
			sp := s.space(t)
			operator := sp.open(stream)
			outcome := func(id string) bridge.CommandOutcome {
				o, err := operator.Outcome(t.Context(), id)
				if err != nil {
					t.Error(err)
				}
				return o
			}
			return conformance.InboxFixture{
				Inbox: sp.open(stream),
				Push: func(c bridge.Command) {
					if err := operator.Request(t.Context(), c, 0); err != nil {
						t.Error(err)
					}
				},
				Withdraw: func(c bridge.Command) bool {
					o, err := operator.Withdraw(t.Context(), c.ID)
					return err == nil && o.State == bridge.CommandWithdrawn
				},
				Claimed: func(id string) (string, bool) {
					o := outcome(id)
					return o.Owner, o.State == bridge.CommandClaimed
				},
				Answer: func(id string) (bridge.Answer, bool) {
					o := outcome(id)
					return o.Answer, o.State == bridge.CommandAnswered
				},
			}
		})
	})
}

func claimBy(owner string) bridge.Claim {
	if owner == "" {
		return bridge.Claim{}
	}
	return bridge.Claim{Owner: owner, Session: "session of " + owner}
}

func reset(id string) bridge.Command {
	return bridge.Command{ID: id, Kind: bridge.KindReset, Who: "ann", Reason: "bug 412",
		Target: bridge.Target{Cursor: "c"}}
}

func mustRequest(t *testing.T, s *cursorstore.Store, c bridge.Command, ttl time.Duration) {
	t.Helper()
	must.Do(t, s.Request(t.Context(), c, ttl))
}

func TestSecondRequestIsRefused(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		ann, bob := sp.open(stream), sp.open(stream)
		mustRequest(t, ann, reset("r1"), time.Minute)
		mustRequest(t, ann, reset("r1"), time.Minute) // a repetition
		for _, owner := range []string{"", "pod-1"} {
			if owner != "" {
				must.Get(sp.open(stream).Claim(t.Context(), reset("r1"), claimBy(owner)))(t)
			}
			err := bob.Request(t.Context(), reset("r2"), time.Minute)
			pending, ok := errors.AsType[*bridge.PendingError](err)
			if !ok {
				t.Fatalf("a second request returned %v, want a PendingError", err)
			}
			now, err2 := bob.Now(t.Context())
			if age := now.Sub(pending.Since); err2 != nil || age < 0 || age > patience {
				t.Errorf("the pending request is %s old: %v", age, err2)
			}
			if pending.Command.ID != "r1" || pending.Owner != owner || !strings.Contains(err.Error(), "ann") {
				t.Errorf("the error is %v, owner %q; want r1 by ann, %q", err, pending.Owner, owner)
			}
		}
	})
}

// TestRequestsAtOnce: exactly one of many concurrent requests is accepted.
func TestRequestsAtOnce(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		client := s.space(t).client()
		errs := make([]error, 8)
		var group sync.WaitGroup
		for i := range errs {
			group.Go(func() {
				errs[i] = client.Stream(stream).Request(t.Context(), reset(fmt.Sprint("r", i)), time.Minute)
			})
		}
		group.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if _, ok := errors.AsType[*bridge.PendingError](err); !ok {
				t.Errorf("request: %v", err)
			}
		}
		if won != 1 {
			t.Errorf("%d requests won, want 1", won)
		}
	})
}

// TestWithdrawRacesClaim: a request is either withdrawn and never claimed, or claimed and never
// withdrawn.
func TestWithdrawRacesClaim(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		client := s.space(t).client()
		for round := range 50 {
			store := client.Stream(fmt.Sprint("stream", round))
			c := reset("r")
			mustRequest(t, store, c, time.Minute)
			var claimed bridge.Claimed
			var claimErr error
			var group sync.WaitGroup
			group.Go(func() { claimed, claimErr = store.Claim(t.Context(), c, claimBy("pod-1")) })
			o, err := store.Withdraw(t.Context(), c.ID)
			group.Wait()
			must.Do(t, errors.Join(err, claimErr))
			if (claimed.By != "") == (o.State == bridge.CommandWithdrawn) {
				t.Fatalf("round %d: claimed %+v and %+v", round, claimed, o)
			}
		}
	})
}

// TestWithdrawAfterAnswer: after an answer a request is not withdrawn.
func TestWithdrawAfterAnswer(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		store := sp.open(stream)
		c := reset("r1")
		mustRequest(t, store, c, time.Minute)
		want := bridge.Answer{Applied: true, By: "pod-1", Version: bridge.Version{Epoch: 4}, At: 5}
		must.Get(store.Answer(t.Context(), c, bridge.Claim{}, want))(t)
		o, err := store.Withdraw(t.Context(), c.ID)
		if diff := cmp.Diff(bridge.CommandOutcome{State: bridge.CommandAnswered, Answer: want}, o); err != nil || diff != "" {
			t.Errorf("withdraw: %v, outcome differs (-want +got):\n%s", err, diff)
		}
		// A late repetition of the request must not apply it twice.
		mustRequest(t, store, c, time.Minute)
		if n, err := sp.raw.Exists(t.Context(), sp.key("request")).Result(); n != 0 || err != nil {
			t.Errorf("an answered request is pending again: %v", err)
		}
		if got, err := store.Claim(t.Context(), c, claimBy("pod-2")); got != (bridge.Claimed{}) || err != nil {
			t.Errorf("claim of an answered request returned %+v, %v", got, err)
		}
		if ttl, err := sp.raw.PTTL(t.Context(), sp.key("answer:r1")).Result(); err != nil || ttl <= 0 || ttl > time.Hour {
			t.Errorf("the answer lives for %s: %v", ttl, err)
		}
		if o, err := store.Withdraw(t.Context(), "r9"); err != nil || o.State != bridge.CommandUnknown {
			t.Errorf("withdraw of a request that never was returned %+v, %v", o, err)
		}
	})
}

// TestInboxUnheard: the script of each step is executed, and its reply is lost.
func TestInboxUnheard(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		store := sp.open(stream)
		c := reset("r1")
		lose := func() { sp.failScripts(1, bridgetest.Persisted) }
		if _, err := store.Outcome(t.Context(), "x"); err != nil { // the server knows the script from here on
			t.Fatal(err)
		}
		lose()
		mustRequest(t, store, c, time.Minute)
		lose()
		if o, err := store.Withdraw(t.Context(), c.ID); err != nil || o.State != bridge.CommandWithdrawn {
			t.Errorf("withdraw returned %+v, %v", o, err)
		}
		c = reset("r2")
		mustRequest(t, store, c, time.Minute)
		lose()
		if got, err := store.Claim(t.Context(), c, claimBy("pod-1")); got.By == "" || err != nil {
			t.Errorf("claim returned %+v, %v", got, err)
		}
		lose()
		must.Get(store.Answer(t.Context(), c, claimBy("pod-1"), bridge.Answer{Applied: true}))(t)
		if a, err := store.Wait(t.Context(), c.ID); err != nil || !a.Applied {
			t.Errorf("wait returned %+v, %v", a, err)
		}
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		operator, owner := sp.open(stream), sp.open(stream)
		mustRequest(t, operator, reset("r1"), time.Minute)
		var group sync.WaitGroup
		group.Go(func() {
			c, err := owner.Next(t.Context())
			if err == nil {
				_, err = owner.Answer(t.Context(), c, bridge.Claim{}, bridge.Answer{Applied: true, By: "pod-1"})
			}
			if err != nil {
				t.Error(err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if a, err := operator.Wait(ctx, "r1"); err != nil || !a.Applied {
			t.Errorf("wait returned %+v, %v", a, err)
		}
		group.Wait()

		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		must.Fail(operator.Wait(short, "r2"))(t, context.DeadlineExceeded)
		mustRequest(t, operator, reset("r3"), time.Minute)
		must.Get(operator.Withdraw(t.Context(), "r3"))(t)
		if _, err := operator.Wait(ctx, "r3"); err == nil || ctx.Err() != nil {
			t.Errorf("wait for a withdrawn request returned %v", err)
		}
	})
}

// TestWaitSurvivesOutage: Redis is unreachable for a moment while a command waits.
func TestWaitSurvivesOutage(t *testing.T) {
	t.Parallel()
	s := embedded(t)
	sp := s.space(t)
	store := sp.open(stream)
	mustRequest(t, store, reset("r1"), time.Minute)
	heal := sp.cutOff()
	var group sync.WaitGroup
	group.Go(func() {
		if a, err := store.Wait(t.Context(), "r1"); err != nil || !a.Applied {
			t.Errorf("wait returned %+v, %v", a, err)
		}
	})
	if _, err := store.Answer(t.Context(), reset("r1"), bridge.Claim{}, bridge.Answer{Applied: true}); err == nil {
		t.Error("answered without a server")
	}
	heal()
	eventually(t, func() error {
		_, err := store.Answer(t.Context(), reset("r1"), bridge.Claim{}, bridge.Answer{Applied: true})
		return err
	})
	group.Wait()

	s.mini.SetError("WRONGPASS invalid username-password pair or user is disabled.")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := store.Wait(ctx, "r2") // not worth waiting for
	s.mini.SetError("")
	wantFault(t, err, bridge.Permanent, "REDIS_PASSWORD")
	if ctx.Err() != nil {
		t.Error("waited for what only an operator can change")
	}
}

// TestDeadline moves the embedded server's clock past a request's deadline.
func TestDeadline(t *testing.T) {
	t.Parallel()
	s := embedded(t)
	store := s.space(t).open(stream)
	begin := time.UnixMilli(1_700_000_000_000)
	s.mini.SetTime(begin)
	mustRequest(t, store, reset("r1"), 30*time.Second)
	c, err := store.Next(t.Context())
	if want := begin.Add(30 * time.Second).UnixMilli(); err != nil || c.Deadline != want {
		t.Fatalf("the deadline is %d, want %d: %v", c.Deadline, want, err)
	}

	s.mini.SetTime(begin.Add(30 * time.Second))
	if got, err := store.Claim(t.Context(), c, claimBy("pod-1")); got != (bridge.Claimed{Late: true}) || err != nil {
		t.Errorf("claim after the deadline returned %+v, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if c, err := store.Next(ctx); err == nil {
		t.Errorf("next returned %+v after the deadline", c)
	}
	a, err := store.Wait(t.Context(), "r1")
	if err != nil || a.Applied || !strings.Contains(a.Detail, "expired") {
		t.Errorf("the answer is %+v, %v; want expired", a, err)
	}
}

// TestDeadlineMakesRoom: an expired request does not block the next request, but a claimed one
// does.
func TestDeadlineMakesRoom(t *testing.T) {
	t.Parallel()
	s := embedded(t)
	store := s.space(t).open(stream)
	begin := time.UnixMilli(1_700_000_000_000)
	s.mini.SetTime(begin)
	mustRequest(t, store, reset("r1"), 30*time.Second)
	s.mini.SetTime(begin.Add(time.Minute))
	mustRequest(t, store, reset("r2"), 30*time.Second)
	if o, err := store.Outcome(t.Context(), "r1"); err != nil || o.State != bridge.CommandAnswered || o.Answer.Applied {
		t.Errorf("the expired request stands at %+v, %v", o, err)
	}

	if got, err := store.Claim(t.Context(), reset("r2"), claimBy("pod-1")); got.By == "" || err != nil {
		t.Fatalf("claim returned %+v, %v", got, err)
	}
	for _, c := range []struct {
		after   time.Duration
		overdue bool
	}{{80 * time.Second, false}, {2 * time.Minute, true}} {
		s.mini.SetTime(begin.Add(c.after))
		pending, ok := errors.AsType[*bridge.PendingError](store.Request(t.Context(), reset("r3"), time.Minute))
		if !ok {
			t.Fatal("a request replaced one that an owner is applying")
		}
		if want := begin.Add(90 * time.Second).UnixMilli(); pending.Overdue != c.overdue || pending.Owner != "pod-1" ||
			pending.Command.Deadline != want {
			t.Errorf("after %s the request in the way is %+v; want overdue %v, deadline %d", c.after, pending, c.overdue, want)
		}
	}
	if c, err := store.Next(t.Context()); err != nil || c.ID != "r2" {
		t.Errorf("next returned %+v, %v; want the claimed one", c, err)
	}
}

// TestNextIsPaced: a caller that asks again at once does not spin.
func TestNextIsPaced(t *testing.T) {
	t.Parallel()
	s := embedded(t)
	sp := s.space(t)
	store := sp.open(stream)
	mustRequest(t, store, reset("r1"), time.Minute)
	began := time.Now()
	for range 3 {
		must.Get(store.Next(t.Context()))(t)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("three calls took %s, want at least two intervals", took)
	}
}

// TestInvalidRequests: the first reader rejects an invalid request, which then does not block
// the next request.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	valid := reset("r1")
	long, forged := valid, valid
	long.Reason = strings.Repeat("x", 3<<20)
	forged.Who = "ann\x1b[2J"
	for name, data := range map[string]string{
		"not JSON": "{", "another type": `{"id":"r1","base_epoch":"` + strings.Repeat("9", 1000) + `"}`,
		"another id":    mustJSON(t, reset("r2")),
		"a long reason": mustJSON(t, long), "a control character": mustJSON(t, forged),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onServers(t, func(t *testing.T, s *server) {
				for _, finds := range []string{"the owner", "the next request", "the next request, overdue"} {
					sp := s.space(t)
					store := sp.open(stream)
					mustRequest(t, store, valid, time.Minute)
					fields := []any{"data", data}
					if strings.HasSuffix(finds, "overdue") {
						fields = append(fields, "deadline", "1", "claimed", "gone", "session", "gone")
					}
					must.Do(t, sp.raw.HSet(t.Context(), sp.key("request"), fields...).Err())
					if finds == "the owner" {
						if c, err := store.Next(t.Context()); !errors.Is(err, bridge.ErrInvalidCommand) || len(err.Error()) > 500 {
							t.Errorf("next returned %.100v, %.600v", c, err)
						}
					}
					mustRequest(t, store, reset("r3"), time.Minute)
					if a, err := store.Wait(t.Context(), "r1"); err != nil || a.Applied ||
						!strings.Contains(a.Detail, "invalid request") {
						t.Errorf("found by %s: answer %+v, %v", finds, a, err)
					}
					if c, err := store.Next(t.Context()); err != nil || c.ID != "r3" {
						t.Errorf("found by %s: next returned %+v, %v", finds, c, err)
					}
				}
			})
		})
	}
}

// TestInvalidRequestInHand: a claimed request stays with its session.
func TestInvalidRequestInHand(t *testing.T) {
	t.Parallel()
	sp := embedded(t).space(t)
	store := sp.open(stream)
	mustRequest(t, store, reset("r1"), time.Minute)
	must.Get(store.Claim(t.Context(), reset("r1"), claimBy("pod-1")))(t)
	must.Do(t, sp.raw.HSet(t.Context(), sp.key("request"), "data", "{").Err())
	must.Fail(store.Next(t.Context()))(t, bridge.ErrInvalidCommand)
	must.Be(t, store.Request(t.Context(), reset("r2"), time.Minute), bridge.ErrInvalidCommand)
	if o, err := store.Outcome(t.Context(), "r1"); err != nil || o.State != bridge.CommandClaimed {
		t.Errorf("the request is %s, %v", o.State, err)
	}
}

// TestInvalidRequestIsNotMade: Request does not store an invalid command.
func TestInvalidRequestIsNotMade(t *testing.T) {
	t.Parallel()
	sp := embedded(t).space(t)
	c := reset("r1")
	c.Reason = strings.Repeat("x", 1001)
	must.Be(t, sp.open(stream).Request(t.Context(), c, time.Minute), bridge.ErrInvalidCommand)
	if keys := sp.keys(); len(keys) > 0 {
		t.Errorf("stored %q", keys)
	}
}

func mustJSON(t *testing.T, c bridge.Command) string {
	t.Helper()
	data := must.Get(json.Marshal(c))(t)
	return string(data)
}
