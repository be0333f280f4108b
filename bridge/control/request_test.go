package control_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/control"
)

// noReply is a Redis that stores a request, but whose reply is lost.
type noReply struct {
	*redis
	then func() // once the request is stored
}

func (s noReply) Request(ctx context.Context, c bridge.Command, ttl time.Duration) error {
	if err := s.redis.Request(ctx, c, ttl); err != nil {
		return err
	}
	s.then()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fault(bridgetest.ErrDown)
}

// withoutReply moves a stream that another process owns. then is called once Redis has
// the request.
func (r *harness) withoutReply(ctx context.Context, then func()) error {
	r.kafka.own(bridge.Member{Process: "pod-1", Owner: true})
	r.ports.Inbox = noReply{r.redis, then}
	r.control()
	_, err := r.Move(ctx, r.plan(control.ResetToEarliest{}), why)
	return err
}

// Redis stored a request, and its reply was lost. The request is withdrawn before a command
// says that the change is impossible, or that it was interrupted.
func TestRequestWithoutReply(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		err := r.withoutReply(t.Context(), func() {})
		if want[*control.StoreAwayError](t, err); r.redis.last.ID != "" {
			t.Errorf("%v; the request is stored", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = r.withoutReply(ctx, cancel)
		if e := want[*control.UnacknowledgedError](t, err); !e.Interrupted || e.State != bridge.CommandWithdrawn ||
			r.redis.last.ID != "" {
			t.Errorf("%v; the request is %q", err, r.redis.last.ID)
		}
	})
}

// A bridge applies the request whose reply was lost before it can be withdrawn. The command
// says that the change was made.
func TestRequestAppliedWithoutReply(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		defer r.run()()
		wait := func() { time.Sleep(2 * time.Second) } //nolint:forbidigo // virtual
		wait()
		err := r.withoutReply(t.Context(), wait)
		if at := r.now(); err != nil || at.Epoch != 1 {
			t.Errorf("%v; the stream is at %s by %+v", err, at.Version, at.Change)
		}
	})
}

// If Redis cannot withdraw a request either, the error says that the request may be applied
// later, and until when.
func TestRequestNotWithdrawn(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		heal := func() {}
		err := r.withoutReply(t.Context(), func() { heal = r.redis.away() })
		heal()
		e := want[*control.UnacknowledgedError](t, err)
		if want[*control.StoreAwayError](t, err); e.State != bridge.CommandUnknown || !strings.Contains(err.Error(),
			"; request "+e.ID+" is not acknowledged, and Redis does not answer: server is down; "+
				"a bridge may apply it up to 30s after Redis answers again") {
			t.Error(err)
		}
	})
}

// forgetful is a Redis that lost a request and its answer, as after a fail-over.
type forgetful struct{ *redis }

func (forgetful) Wait(ctx context.Context, _ string) (bridge.Answer, error) {
	<-ctx.Done()
	return bridge.Answer{}, ctx.Err()
}

func (forgetful) Withdraw(context.Context, string) (bridge.CommandOutcome, error) {
	return bridge.CommandOutcome{State: bridge.CommandUnknown}, nil
}

// If Redis lost a request, the newest checkpoint shows whether a bridge had applied it.
// Without such a checkpoint the outcome is unknown.
func TestRequestForgotten(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, r *harness) {
		defer r.run()()
		time.Sleep(2 * time.Second) //nolint:forbidigo // virtual
		r.ports.Inbox = forgetful{r.redis}
		r.control()
		done, err := r.Move(t.Context(), r.plan(control.ResetToEarliest{}), why)
		if c := r.now(); err != nil || c.Epoch != 1 || done.Answer.Version.Epoch != 1 || done.Answer.By != "pod-1" {
			t.Errorf("%v, %+v; the stream is at %s by %+v", err, done, c.Version, c.Change)
		}
	})
	for _, unreadable := range []error{nil, errors.New("no leader")} {
		inBubble(t, bridge.ExactlyOnce, func(t *testing.T, r *harness) {
			r.ports.Inbox = forgetful{r.redis}
			r.control()
			r.redis.tell(&bridge.Status{Owner: "pod-1", State: bridge.StateBackoff, Error: "503"})
			r.kafka.dark = unreadable
			_, err := r.Pause(t.Context(), why, 0)
			if e := want[*control.UnacknowledgedError](t, err); e.State != bridge.CommandUnknown ||
				!strings.Contains(err.Error(), "and Redis does not know it: ") ||
				unreadable != nil && !errors.Is(err, unreadable) {
				t.Error(err)
			}
		})
	}
}
