package bridge_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// BLOCKED(event) must be reported once, not once a minute; and how much does a Permanent publish fault cost?
func TestPublishPermanent(t *testing.T) {
	t.Parallel()
	inBubble(t, bridgetest.Export{}, func(r *rig) {
		r.source.Grow(50)
		sink := r.topic.Open("events")
		b, err := bridge.New(r.cfg, bridge.Ports{Source: r.source, Sink: refusingSink{sink}, Store: r.store, Inbox: r.inbox})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- b.Run(r.t.Context()) }()
		r.after(10 * time.Minute)
		s := b.Status()
		n := countErr(r.log.String())
		t.Logf("state %s since %s ago (blocked for 10 min), said %d times, failures %d", s.State, time.Since(s.Since), n, s.Failures)
		if n > 1 || time.Since(s.Since) < 9*time.Minute {
			t.Errorf("blocked since is reset with every probe, logged %d times", n)
		}
	})
}

type refusingSink struct{ bridge.Sink }

func countErr(s string) (n int) {
	for i := 0; i+11 < len(s); i++ {
		if s[i:i+11] == "level=ERROR" {
			n++
		}
	}
	return n
}

func (s refusingSink) Publish(ctx context.Context, b bridge.Batch) (bridge.Receipt, error) {
	if len(b.Pages) == 0 {
		return s.Sink.Publish(ctx, b)
	}
	return bridge.Receipt{}, &bridge.Fault{Class: bridge.Permanent, Code: "bad-timestamp", Reason: bridge.ReasonEvent, Err: errors.New("item 3")}
}
