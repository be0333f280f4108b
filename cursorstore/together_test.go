package cursorstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

// TestNextTogether: one poll asks for all streams of a client. Each stream gets its own request,
// even if the polling callers leave.
func TestNextTogether(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		operator, owner := sp.client(), sp.client()
		const streams = 8
		got := make(chan string, streams)
		var waiting sync.WaitGroup
		leaving, leave := context.WithCancel(t.Context())
		for n := range streams {
			name, id := fmt.Sprintf("s%d", n), fmt.Sprintf("r%d", n)
			waiting.Go(func() {
				ctx := t.Context()
				if n%4 == 0 { // among them the first one to ask
					ctx = leaving
				}
				c, err := owner.Stream(name).Next(ctx)
				switch {
				case n%4 == 0 && !errors.Is(err, context.Canceled):
					t.Errorf("%s, which leaves: %v", name, err)
				case n%4 != 0 && (err != nil || c.ID != id):
					t.Errorf("%s has %q, %v", name, c.ID, err)
				}
				got <- name
			})
			if n == 0 {
				eventually(t, func() error { // it asks by then
					if s.mini != nil && s.mini.TotalConnectionCount() == 0 {
						return errors.New("no connection")
					}
					return nil
				})
			}
		}
		leave()
		for range streams / 4 {
			<-got
		}
		for n := streams - 1; n >= 0; n-- {
			if n%4 != 0 {
				mustRequest(t, operator.Stream(fmt.Sprintf("s%d", n)), reset(fmt.Sprintf("r%d", n)), time.Minute)
			}
		}
		waiting.Wait()
		// A caller that comes after all have left polls again.
		mustRequest(t, operator.Stream("s0"), reset("again"), time.Minute)
		if c, err := owner.Stream("s0").Next(t.Context()); err != nil || c.ID != "again" {
			t.Errorf("s0 has %q, %v", c.ID, err)
		}
	})
}

// TestNextTogetherFails: each stream gets its own errors, and all get those of the server.
func TestNextTogetherFails(t *testing.T) {
	t.Parallel()
	s := embedded(t)
	sp := s.space(t)
	c := sp.client()
	const bad = "foreign"
	must.Do(t, s.raw.Set(t.Context(), sp.prefix+":{"+bad+"}:request", "text", 0).Err())
	mustRequest(t, c.Stream("good"), reset("r1"), time.Minute)
	next := func() (foreign, good error) {
		var both sync.WaitGroup
		both.Go(func() { _, foreign = c.Stream(bad).Next(t.Context()) })
		both.Go(func() { _, good = c.Stream("good").Next(t.Context()) })
		both.Wait()
		return foreign, good
	}
	if foreign, good := next(); !errors.Is(foreign, bridge.ErrForeign) || good != nil {
		t.Errorf("next: %v, and of the other stream %v", foreign, good)
	}
	s.mini.SetError("LOADING")
	foreign, good := next()
	s.mini.SetError("")
	if foreign == nil || good == nil {
		t.Errorf("next of a server that loads: %v, %v", foreign, good)
	}
}

// TestPutStatuses: the statuses of many streams are written at once, even if the server lacks
// the script. A foreign value fails its own stream only.
func TestPutStatuses(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		c := sp.client()
		all := func(state bridge.State) (all []*cursorstore.EncodedStatus) {
			for n := range 450 {
				all = append(all, &cursorstore.EncodedStatus{Status: bridge.Status{Stream: fmt.Sprintf("s%d", n), Owner: "pod-1",
					Leader: true, State: state, Events: int64(n)}})
			}
			return all
		}
		broken := sp.prefix + ":{s7}:status"
		must.Do(t, s.raw.HSet(t.Context(), broken, "a", "b").Err())
		idle := all(bridge.StateIdle)
		for range 2 { // the second time as encoded before
			must.Be(t, c.PutStatuses(t.Context(), idle), bridge.ErrForeign)
			for _, n := range []int{0, 6, 8, 199, 200, 449} {
				got, ok, err := c.Stream(idle[n].Stream).Status(t.Context())
				if !ok || err != nil || got.Events != int64(n) {
					t.Errorf("%s: %d events, %t, %v", idle[n].Stream, got.Events, ok, err)
				}
			}
		}
		_ = c.PutStatuses(t.Context(), all(bridge.StateStopped))
		if _, ok, err := c.Stream("s449").Status(t.Context()); ok || err != nil {
			t.Errorf("the status of a stream that stopped: %t, %v", ok, err)
		}
	})
}
