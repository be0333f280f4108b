package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

// claimed leaves a reset that a session has claimed which is gone, to be
// applied within a minute.
func (r *harness) claimed(id string) bridge.Command {
	r.t.Helper()
	cmd := reset(id, r.store.Checkpoint().Epoch, bridge.Target{})
	r.inbox.Push(cmd)
	got, err := r.inbox.Claim(r.t.Context(), cmd, bridge.Claim{Owner: "gone", Session: "gone"})
	if err != nil || got.By != "gone" {
		r.t.Fatalf("claim: %+v, %v", got, err)
	}
	return cmd
}

// TestClaimEndsWithItsSession: a process claims a command and is killed. Within the
// deadline the next session applies the command, later it does not.
func TestClaimEndsWithItsSession(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce} {
		for _, late := range []bool{false, true} {
			row(t, string(mode)+map[bool]string{false: " in time", true: " late"}[late], bridgetest.Export{}, func(r *harness) {
				r.deliver(mode)
				r.ran(50, 5*time.Second)
				cmd := r.claimed("a")
				if late {
					r.after(time.Minute)
				}
				r.start()
				if a := r.await(cmd.ID); a.Applied == late || late && !strings.Contains(a.Detail, "expired") {
					r.t.Errorf("answer %+v", a)
				}
				r.after(time.Minute)
				want := map[bool]int{false: 100, true: 50}[late]
				r.wantEvents(want)
				r.apply("b", bridge.Target{})
				r.after(time.Minute)
				r.wantEvents(want + 50)
			})
		}
	}
}

// TestClaimerOnItsWay: in at-least-once mode, the claimer's write may still be on its way
// to the store when another process answers that the command expired. The write must not
// arrive.
func TestClaimerOnItsWay(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.ran(50, 5*time.Second)
		from := r.store.Checkpoint()
		cmd := r.claimed("a")
		r.after(time.Minute)
		r.inbox.FailAnswer(1, bridgetest.Failed)
		r.start()
		if a := r.await(cmd.ID); a.Applied || a.Version.Epoch != 1 {
			t.Fatalf("answer %+v, want one more epoch", a)
		}
		to := bridge.Reset(from, r.cfg.Origin, cmd)
		to.Session, to.WrittenAt = "gone", time.Now().UnixMilli()
		if err := r.store.Advance(t.Context(), from, to); err == nil {
			t.Error("the store took over a reset that was answered as expired")
		}
		r.after(time.Minute)
		r.wantEvents(50)
	})
}

// TestReplyPastTheDeadline: in at-least-once mode, Kafka has the checkpoint of a reset, but
// its reply is lost, and the deadline passes meanwhile. The session that claimed the reset
// must not answer that it expired: the next session finds it applied.
func TestReplyPastTheDeadline(t *testing.T) {
	bubble(t, bridgetest.Export{}, func(r *harness) {
		r.topic.Copies = true
		r.ran(50, 5*time.Second)
		r.topic.SetLatency(70 * time.Second)
		r.topic.FailNext(bridgetest.Persisted)
		r.push("a", r.store.Checkpoint().Epoch, bridge.Target{})
		r.start()
		r.after(65 * time.Second)
		r.topic.SetLatency(0)
		if a := r.await("a"); !a.Applied {
			t.Errorf("answer %+v", a)
		}
		r.after(time.Minute)
		r.wantEvents(100)
	})
}

// TestRefusalNeedsTheClaim: another session may be applying what this one, not
// knowing as much, would refuse.
func TestRefusalNeedsTheClaim(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.ran(50, 5*time.Second)
		cmd := reset("a", 0, bridge.Target{})
		cmd.Kind = bridge.KindResume
		r.inbox.Push(cmd)
		must.Get(r.inbox.Claim(t.Context(), cmd, bridge.Claim{Owner: "other", Session: "other"}))(t)
		begun := strings.Count(r.log.String(), "session started")
		r.start()
		if a := r.await("a"); a.Applied {
			t.Errorf("answer %+v", a)
		}
		synctest.Wait()                          // the bridge goes on logging after its answer
		r.wantLogged("session started", begun+2) // the second one after the claim was seen
	})
}

// overtaken is an Inbox whose answers come so late that another session has
// taken the claim over.
type overtaken struct{ *bridgetest.Inbox }

func (o overtaken) Answer(ctx context.Context, c bridge.Command, by bridge.Claim,
	a bridge.Answer) (bridge.Answer, error) {
	if _, err := o.Claim(ctx, c, bridge.Claim{Owner: "other", Session: "other", Over: by.Session}); err != nil {
		return bridge.Answer{}, err
	}
	return o.Inbox.Answer(ctx, c, by, a)
}

// TestRefusalOfAnotherClaim: an operator's process refuses a command, and stands
// still before it has said so. Another one takes the claim over, and applies it.
func TestRefusalOfAnotherClaim(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.ran(50, 5*time.Second)
		cmd := reset("a", 0, bridge.Target{})
		cmd.Kind = bridge.KindResume
		r.inbox.Push(cmd)
		a, err := engine.Apply(r.t.Context(), r.cfg, r.portsOf(overtaken{r.inbox}), cmd)
		if !errors.Is(err, bridge.ErrFenced) {
			t.Errorf("the operator reads %+v, %v; want to wait for the other", a, err)
		}
		if log := r.log.String(); strings.Contains(log, "command refused") ||
			!strings.Contains(log, "command answer rejected") {
			t.Error("the log says that the refusal counts")
		}
		if a, ok := r.inbox.AnswerTo("a"); ok {
			t.Errorf("the refusal %+v counts, and another session has the claim", a)
		}
		want := bridge.Answer{Applied: true, By: "other"}
		if a, err := r.inbox.Answer(r.t.Context(), cmd, bridge.Claim{Session: "other"}, want); a != want || err != nil {
			t.Errorf("the other's answer is %+v, %v", a, err)
		}
	})
}

// refused is an Inbox that has recorded a refusal when an answer comes.
type refused struct{ *bridgetest.Inbox }

func (x refused) Answer(ctx context.Context, c bridge.Command, by bridge.Claim,
	a bridge.Answer) (bridge.Answer, error) {
	if _, err := x.Inbox.Answer(ctx, c, by, bridge.ExpiredAnswer("said by an older version")); err != nil {
		return bridge.Answer{}, err
	}
	return x.Inbox.Answer(ctx, c, by, a)
}

// TestAppliedIsSaid: a committed change is reported as applied, even if the inbox has
// recorded another answer.
func TestAppliedIsSaid(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.ran(50, 5*time.Second)
		cmd := reset("a", 0, bridge.Target{})
		r.inbox.Push(cmd)
		a, err := engine.Apply(r.t.Context(), r.cfg, r.portsOf(refused{r.inbox}), cmd)
		if now := r.store.Checkpoint(); err != nil || !a.Applied || a.Version != now.Version || now.ChangeID() != "a" {
			t.Errorf("the operator reads %+v, %v; the stream is at %s", a, err, now.Version)
		}
	})
}

// TestAppliedIsRemembered: an operator's change stays known through epochs that
// the program itself begins after it.
func TestAppliedIsRemembered(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(50, time.Second)
		for n := 1; n < 30; n++ {
			r.inbox.FailAnswer(n, bridgetest.Failed)
		}
		r.push("a", 0, bridge.Target{})
		r.after(time.Second)
		r.end()
		if a, ok := r.inbox.AnswerTo("a"); ok {
			t.Fatalf("answered: %+v", a)
		}
		for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce, bridge.AtLeastOnce} {
			r.switchMode(mode)
			r.startWith(engine.Ports{Inbox: bridgetest.NewInbox(t)})
			r.after(time.Minute)
			r.end()
		}
		r.startFor(time.Minute)
		r.applied(r.await("a"))
	})
}
