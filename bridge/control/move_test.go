package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/control"
)

// A running bridge applies a request and acknowledges it.
func TestRunningBridge(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		defer r.run()()
		time.Sleep(5 * time.Second) //nolint:forbidigo // virtual
		ctx := t.Context()
		if _, err := r.Resume(ctx, why); !errors.Is(err, control.ErrRejected) ||
			!want[*control.RefusedError](t, err).NotPaused() || !strings.Contains(err.Error(),
			"refused by pod-1: the stream is not paused") {
			t.Errorf("a resume of what is not paused: %v", err)
		}
		began := time.Now()
		done, err := r.Pause(ctx, why, 0)
		if err != nil || done.Answer.By != "pod-1" || done.PausedUntil != bridge.Forever ||
			time.Since(began) > 2*time.Second {
			t.Fatalf("paused after %s: %+v, %v", time.Since(began), done, err)
		}
		if done, err = r.Resume(ctx, why); err != nil || done.Answer.Version.Epoch != 2 || done.PausedUntil != 0 {
			t.Errorf("resumed: %+v, %v", done, err)
		}
		// The end of the pause is by Redis's clock.
		if done, err = r.Pause(ctx, why, time.Minute); err != nil ||
			time.Until(time.UnixMilli(done.PausedUntil)).Round(time.Second) != time.Hour+time.Minute {
			t.Errorf("paused for a minute: %+v, %v", done, err)
		}
		m := r.plan(control.RewindPages{Pages: 5})
		if err := errors.Join(m.CheckEpoch(3), m.CheckEpoch(m.BaseEpoch)); err != nil {
			t.Errorf("the plan is for epoch %d: %v", m.BaseEpoch, err)
		}
		if done, err = r.Move(ctx, m, why); err != nil || done.Answer.By != "pod-1" || done.Answer.Version.Epoch != 4 {
			t.Errorf("rewound: %+v, %v", done, err)
		}
		// The same plan again is for an older epoch.
		must.Fail(r.Move(ctx, m, why))(t, control.ErrRejected, "the command expects 3")
		err = r.plan(control.ResetToEarliest{}).CheckEpoch(3)
		if !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "its epoch is 4, the plan is for epoch 3") {
			t.Errorf("planned for another epoch: %v", err)
		}
	})
}

// If no bridge runs the stream, the controller applies the request, in the same steps.
func TestNobodyRuns(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		const self = "this command (no bridge runs the stream)"
		for epoch, change := range []func() (control.Done, error){
			func() (control.Done, error) { return r.Pause(t.Context(), why, 0) },
			func() (control.Done, error) { return r.Resume(t.Context(), why) },
			func() (control.Done, error) { return r.Move(t.Context(), r.plan(control.RewindPages{Pages: 5}), why) },
		} {
			done, err := change()
			if now := r.now(); err != nil || done.Answer.By != self || now.Epoch != int64(epoch+1) ||
				done.Answer.Version != now.Version || now.Change.ID != done.ID {
				t.Errorf("change %d: %+v, %v; the stream is at %s", epoch, done, err, now.Version)
			}
		}
		r.kafka.unknown = errors.New("no coordinator")
		_, err := r.Pause(t.Context(), why, 0)
		must.Be(t, err, control.ErrOwnerUnknown)
		if state := r.redis.last.ID; state != "" || r.now().Epoch != 3 {
			t.Errorf("the request %q stays, or was applied", state)
		}
	})
}

// If a bridge does not answer in time, the request is withdrawn, or reported as applied or
// unknown.
func TestUnacknowledged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens     func(r *harness) // while the request waits
		state       bridge.CommandState
		interrupted bool
		text        string
	}{
		"nobody takes it up": {func(*harness) {}, bridge.CommandWithdrawn, false, "no acknowledgement within 30s: request "},
		"claimed": {func(r *harness) { r.claim("one") }, bridge.CommandClaimed, false,
			"is being applied by pod-1, which has not acknowledged it yet"},
		"interrupted": {func(*harness) {}, bridge.CommandWithdrawn, true, "interrupted: request "},
		"claimed, then interrupted": {
			func(r *harness) { r.claim("one") }, bridge.CommandClaimed, true, "is being applied by pod-1",
		},
		"redis goes away": {func(r *harness) { r.redis.away() }, bridge.CommandUnknown, false,
			"is not acknowledged, and Redis does not answer: server is down"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
				r.redis.tell(&bridge.Status{Owner: "pod-1", State: bridge.StateBackoff, Error: "503"})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				var asking sync.WaitGroup
				asking.Go(func() {
					_, err := r.Pause(ctx, why, 0)
					e := want[*control.UnacknowledgedError](t, err)
					if e.State != c.state || e.Interrupted != c.interrupted || !strings.Contains(err.Error(), c.text) {
						t.Errorf("%v, %+v", err, e)
					}
					if withdrawn := e.State == bridge.CommandWithdrawn &&
						!e.Interrupted; withdrawn != strings.HasSuffix(err.Error(), "; pod-1 is retrying: 503") {
						t.Errorf("what the bridge does: %v", err)
					}
				})
				time.Sleep(time.Second) //nolint:forbidigo // virtual
				synctest.Wait()
				c.happens(r)
				if c.interrupted {
					cancel()
				}
				asking.Wait()
				if took := time.Since(began); !c.interrupted && (took < timeout || took > timeout+time.Second) {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// TestUnseenOwner: the owner in Kafka reports to another Redis. The caller is told after five
// seconds, and again when the request is withdrawn.
func TestUnseenOwner(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		r.kafka.own(bridge.Member{Process: "pod-1", Host: "10.0.0.7", Owner: true})
		began := time.Now()
		var said []time.Duration
		by := why
		by.Waiting = func(err error) {
			if e := want[*control.UnseenOwnerError](t, err); e.By.Process != "pod-1" {
				t.Errorf("owner %+v", e)
			}
			said = append(said, time.Since(began))
		}
		_, err := r.Pause(t.Context(), by, 0)
		if e := want[*control.UnacknowledgedError](t, err); e.Unseen == nil ||
			!strings.Contains(err.Error(), "; pod-1 at 10.0.0.7 runs stream events, but this Redis has no status of it") {
			t.Errorf("%v, %+v", err, e)
		}
		if len(said) != 1 || said[0] < 5*time.Second || said[0] > 6*time.Second {
			t.Errorf("said after %v, want once after five seconds", said)
		}
	})
}

// TestFencedStream: a fenced bridge applies no request. The error comes within seconds, unless
// the other bridge answers, or the fenced one resumes.
func TestFencedStream(t *testing.T) {
	t.Parallel()
	for _, answers := range []bool{false, true} {
		t.Run(fmt.Sprintf("the other one answers: %t", answers), func(t *testing.T) {
			t.Parallel()
			inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
				r.redis.tell(&bridge.Status{
					Owner: "pod-1", State: bridge.StateBlocked, Reason: bridge.ReasonOwner,
					Error: "fenced 3 times in a row by group other.events", Hint: "stop one",
				})
				began := time.Now()
				var asking sync.WaitGroup
				asking.Go(func() {
					_, err := r.Pause(t.Context(), why, 0)
					if answers {
						if err != nil {
							t.Errorf("pause: %v", err)
						}
						return
					}
					e := want[*control.UnacknowledgedError](t, err)
					if e.State != bridge.CommandWithdrawn || e.Live == nil || e.Live.Hint == "" ||
						!strings.Contains(err.Error(),
							"the stream applies no requests, pod-1 is blocked (owner): fenced 3 times in a row by group other.events") {
						t.Errorf("%v, %+v", err, e)
					}
				})
				time.Sleep(4 * time.Second) //nolint:forbidigo // virtual
				synctest.Wait()
				if answers {
					r.claim("other")
					must.Get(r.redis.Answer(t.Context(), r.redis.last, bridge.Claim{Owner: "pod-1", Session: "other"},
						bridge.Answer{Applied: true}))(t)
				}
				asking.Wait()
				if took := time.Since(began); took > 7*time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// A request that was applied just before its withdrawal is reported as applied.
func TestAlreadyApplied(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		r.redis.tell(&bridge.Status{Owner: "pod-1", State: bridge.StateRunning})
		var asking sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		asking.Go(func() {
			done, err := r.Pause(ctx, why, 0)
			if err != nil || !done.Answer.Applied || done.Answer.By != "pod-1" {
				t.Errorf("%+v, %v", done, err)
			}
		})
		time.Sleep(time.Second) //nolint:forbidigo // virtual
		synctest.Wait()
		r.claim("one")
		cancel()
		must.Get(r.redis.Answer(t.Context(), r.redis.last, bridge.Claim{},
			bridge.Answer{Applied: true, By: "pod-1"}))(t)
		asking.Wait()
	})
}

// pend leaves another request, with a deadline in ten seconds.
func (r *harness) pend(id string, epoch int64) bridge.Command {
	r.t.Helper()
	c := bridge.Command{ID: id, Kind: bridge.KindPause, BaseEpoch: epoch, PausedUntil: bridge.Forever, Who: "bob"}
	must.Do(r.t, r.redis.Request(r.t.Context(), c, 10*time.Second))
	return r.redis.last
}

// overtaken is Redis with a bridge that takes over the claim of a request before the answer,
// and applies the request three seconds later.
type overtaken struct {
	*redis
	kafka *kafka
}

func (o overtaken) Answer(
	ctx context.Context, c bridge.Command, by bridge.Claim, a bridge.Answer,
) (bridge.Answer, error) {
	pod := bridge.Claim{Owner: "pod-1", Session: "pod", Over: by.Session}
	if _, err := o.Claim(ctx, c, pod); err != nil {
		return bridge.Answer{}, err
	}
	o.kafka.own(bridge.Member{Owner: true})
	time.AfterFunc(3*time.Second, func() {
		_, _ = o.redis.Answer(context.Background(), c, pod, bridge.Answer{Applied: true, By: "pod-1"})
	})
	return o.redis.Answer(ctx, c, by, a)
}

// A bridge starts while this process rejects a request: the bridge's answer counts.
func TestRefusalOvertaken(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		m := r.plan(control.ResetToEarliest{})
		if _, err := r.Pause(t.Context(), why, 0); err != nil { // somebody else
			t.Fatal(err)
		}
		r.ports.Inbox = overtaken{r.redis, r.kafka}
		r.control()
		if done, err := r.Move(t.Context(), m, why); err != nil || !done.Answer.Applied || done.Answer.By != "pod-1" {
			t.Errorf("the operator reads %+v, %v; want the bridge's answer", done, err)
		}
	})
}

// While a request is pending, another one is rejected. Once the pending one is overdue, the
// other one settles it.
func TestPending(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		r.redis.tell(&bridge.Status{Owner: "pod-1", State: bridge.StateRunning})
		r.pend("other", 0)
		r.claim("killed")
		began := time.Now()
		_, err := r.Pause(t.Context(), why, 0)
		if e := want[*bridge.PendingError](t, err); e.Command.ID != "other" || e.Owner != "pod-1" || e.Overdue ||
			time.Since(began) > time.Second {
			t.Errorf("after %s: %+v", time.Since(began), e)
		}
		// A bridge that reports a status has time to answer.
		time.Sleep(20 * time.Second) //nolint:forbidigo // virtual
		began = time.Now()
		_, err = r.Pause(t.Context(), why, 0)
		if e := want[*bridge.PendingError](t, err); !e.Overdue || time.Since(began) < timeout {
			t.Errorf("after %s: %+v", time.Since(began), e)
		}
		// First the outcome of the overdue request must be known.
		r.redis.tell(nil)
		r.kafka.unknown = errors.New("no coordinator")
		_, err = r.Pause(t.Context(), why, 0)
		must.Be(t, err, control.ErrOwnerUnknown)
		if want[*bridge.PendingError](t, err); !strings.Contains(err.Error(), "its outcome is unknown") {
			t.Errorf("nobody knows: %v", err)
		}
		r.kafka.unknown = nil
		done, err := r.Pause(t.Context(), why, 0)
		if err != nil || !done.Answer.Applied {
			t.Fatalf("%+v, %v", done, err)
		}
		if other, ok := r.redis.inbox.AnswerTo("other"); !ok || !other.Expired() {
			t.Errorf("the overdue one is answered %v, %+v", ok, other)
		}
	})
}

// A request for one epoch is not applied to another epoch that began meanwhile, whatever the
// answer to another request was.
func TestRefusalIsNotHidden(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.AtLeastOnce, func(t *testing.T, r *harness) {
		m := r.plan(control.ResetToEarliest{})
		if _, err := r.Pause(t.Context(), why, 0); err != nil { // somebody else
			t.Fatal(err)
		}
		r.redis.tell(&bridge.Status{Owner: "pod-1", State: bridge.StateRunning})
		other := r.pend("other", 7)
		r.claim("one")
		time.Sleep(20 * time.Second) //nolint:forbidigo // virtual
		var asking sync.WaitGroup
		asking.Go(func() {
			if done, err := r.Move(t.Context(), m, why); !errors.Is(err, control.ErrRejected) {
				t.Errorf("a move that was planned for epoch 0, at %s: %+v, %v", r.now().Version, done, err)
			}
		})
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // virtual
		refusal := bridge.Answer{By: "pod-1", Detail: "the epoch changed", Version: r.now().Version}
		must.Get(r.redis.Answer(t.Context(), other, bridge.Claim{Session: "one"}, refusal))(t)
		r.redis.tell(nil)
		asking.Wait()
	})
}

// While Redis is unreachable, Kafka alone decides whether a bridge owns the stream.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		heal := r.redis.away()
		if done, err := r.Pause(t.Context(), why, time.Minute); err != nil ||
			done.PausedUntil != time.Now().Add(time.Minute).UnixMilli() &&
				time.Until(time.UnixMilli(done.PausedUntil)) > time.Minute {
			t.Errorf("paused: %+v, %v", done, err)
		}
		if done, err := r.Move(t.Context(), r.plan(control.RewindPages{Pages: 5}), why); err != nil ||
			done.Answer.Version.Epoch != 2 {
			t.Errorf("rewound: %+v, %v", done, err)
		}
		stuck := func() *control.StoreAwayError {
			t.Helper()
			_, err := r.Move(t.Context(), r.plan(control.ResetToEarliest{}), why)
			e := want[*control.StoreAwayError](t, err)
			if !errors.Is(err, bridgetest.ErrDown) || !strings.HasPrefix(err.Error(), "Redis does not answer, and ") ||
				r.now().Epoch != 2 {
				t.Errorf("at %s: %v", r.now().Version, err)
			}
			return e
		}
		r.kafka.own(bridge.Member{ClientID: "c", Host: "/10.0.0.1"})
		if by := want[*control.OwnedError](t, stuck().Because).By.String(); by != "c at /10.0.0.1" {
			t.Errorf("owned by %q", by)
		}
		r.kafka.unknown = errors.New("no coordinator")
		must.Be(t, stuck().Because, control.ErrOwnerUnknown)
		r.kafka.unknown = nil
		r.kafka.own()
		r.open = func() bridge.Sink { return fenced{r.kafka.Open("events")} }
		want[*control.TakenOverError](t, stuck().Because)
		r.ports.OpenSink = func() (bridge.Sink, error) { return nil, errors.New("no such file") }
		r.control()
		must.Fail(r.Pause(t.Context(), why, 0))(t, nil, "no such file")
		heal()
	})
	inBubble(t, bridge.AtLeastOnce, func(t *testing.T, r *harness) {
		m := r.plan(control.ResetToEarliest{})
		r.redis.away()
		_, err := r.Move(t.Context(), m, why)
		if want[*control.StoreAwayError](t, err); !errors.Is(err, control.ErrStoreHolds) {
			t.Errorf("in at-least-once mode: %v", err)
		}
	})
}

// fenced is a sink whose stream a bridge takes over at once.
type fenced struct{ bridge.Sink }

func (fenced) Recover(context.Context, func(context.Context) error) (bridge.Checkpoint, error) {
	return bridge.Checkpoint{}, fmt.Errorf("recover: %w", bridge.ErrFenced)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
		s := r.Status(t.Context())
		if s.Live != nil || s.Checkpoint == nil || !s.MembersKnown || len(s.Notes) > 0 || len(s.Changes) > 0 ||
			!strings.HasPrefix(s.Guarantee, "exactly-once") {
			t.Errorf("nobody runs it: %+v", s)
		}
		for i := range 7 {
			by := why
			by.Reason = fmt.Sprint(i)
			must.Get(r.Move(t.Context(), r.plan(control.ResetToCurrent{}), by))(t)
		}
		r.engine.Topic = "live"
		stop := r.run()
		time.Sleep(time.Minute) //nolint:forbidigo // virtual
		r.engine.Topic = "other"
		r.control()
		if s = r.Status(t.Context()); len(s.Notes) != 1 || !strings.Contains(s.Notes[0],
			"publishes to topic live, these settings name other") {
			t.Errorf("notes of a status with another topic: %q", s.Notes)
		}
		r.engine.Topic = "live"
		r.control()
		s = r.Status(t.Context())
		if s.Live == nil || s.Live.Owner != "pod-1" || len(s.Members) != 1 || len(s.Changes) != 5 ||
			s.Changes[0].Reason != "6" || s.Changes[4].Reason != "2" || s.LagSeconds != 0 {
			t.Errorf("pod-1 runs it: %+v", s)
		}
		stop()
		r.redis.away()
		r.kafka.unreadable, r.kafka.unknown = errors.New("no leader"), errors.New("no coordinator")
		s = r.Status(t.Context())
		if s.Live != nil || s.Checkpoint != nil || s.MembersKnown || len(s.Notes) != 3 || s.LagSeconds != -1 ||
			s.CaughtUpIn != -1 {
			t.Errorf("nobody answers: %+v", s)
		}
	})
}
