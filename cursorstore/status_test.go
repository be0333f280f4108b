package cursorstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cursorstore"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		store := sp.open(stream)
		if _, alive, err := store.Status(t.Context()); alive || err != nil {
			t.Errorf("without a status: alive %v, %v", alive, err)
		}
		want := bridge.Status{Stream: stream, Owner: "pod-1", State: bridge.StateIdle, Events: 1<<53 + 1,
			Since: time.UnixMilli(1_700_000_000_000).UTC()}
		must.Do(t, store.PutStatus(t.Context(), want))
		got, alive, err := store.Status(t.Context())
		if diff := cmp.Diff(want, got); !alive || err != nil || diff != "" {
			t.Errorf("alive %v, %v, status differs (-want +got):\n%s", alive, err, diff)
		}
		ttl, err := sp.raw.PTTL(t.Context(), sp.key("status")).Result()
		if err != nil || ttl <= 0 || ttl > cursorstore.StatusTTL {
			t.Errorf("the status lives for %s: %v", ttl, err)
		}
		if s.mini != nil {
			s.mini.FastForward(cursorstore.StatusTTL)
			if _, alive, err := store.Status(t.Context()); alive || err != nil {
				t.Errorf("after %s: alive %v, %v", cursorstore.StatusTTL, alive, err)
			}
		}
		must.Do(t, errors.Join(store.PutStatus(t.Context(), want),
			store.PutStatus(t.Context(), bridge.Status{Stream: stream, Owner: "pod-1", State: bridge.StateStopped})))
		if _, alive, err := store.Status(t.Context()); alive || err != nil {
			t.Errorf("after the stop: alive %v, %v", alive, err)
		}
	})
}

// TestStatusOfTheOwner: who runs the stream is shown, whatever others say.
func TestStatusOfTheOwner(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		store := s.space(t).open(stream)
		leader := bridge.Status{Stream: stream, Owner: "pod-1", Leader: true, State: bridge.StateIdle}
		for _, other := range []bridge.Status{
			{Stream: stream, Owner: "pod-2", State: bridge.StateBlocked},
			{Stream: stream, Owner: "pod-2", State: bridge.StateStopped},
			{Stream: stream, Owner: "pod-1", State: bridge.StateBackoff}, // another process with the same name
		} {
			must.Do(t, errors.Join(store.PutStatus(t.Context(), leader), store.PutStatus(t.Context(), other)))
			if got, alive, err := store.Status(t.Context()); !alive || err != nil || got.Owner != "pod-1" || !got.Leader {
				t.Errorf("after %s of %s: alive %v, %v, %+v", other.State, other.Owner, alive, err, got)
			}
		}
		leader.Owner = "pod-2"
		must.Do(t, store.PutStatus(t.Context(), leader))
		if got, _, err := store.Status(t.Context()); err != nil || got.Owner != "pod-2" {
			t.Errorf("after a take-over: %v, %+v", err, got)
		}
	})
}

// TestStatusOfTheWorkingBridge: of two bridges on the stream, each the owner in a
// group of its own, the one is shown that can apply a request.
func TestStatusOfTheWorkingBridge(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, s *server) {
		sp := s.space(t)
		store := sp.open(stream)
		fenced := func(owner string) bridge.Status {
			return bridge.Status{Stream: stream, Owner: owner, Leader: true, State: bridge.StateBlocked,
				Reason: bridge.ReasonOwner}
		}
		works := func(owner string) bridge.Status {
			return bridge.Status{Stream: stream, Owner: owner, Leader: true, State: bridge.StateBackoff}
		}
		for _, step := range []struct {
			put  bridge.Status
			want string
		}{
			{fenced("one"), "one"}, {fenced("other"), "other"}, // neither works
			{works("one"), "one"}, {fenced("other"), "one"},
			{bridge.Status{Stream: stream, Owner: "other", Leader: true, State: bridge.StateBlocked, Reason: bridge.ReasonAuth},
				"other"}, // can apply one
			{works("one"), "one"}, {fenced("one"), "one"}, {fenced("other"), "other"}, // its own state changed
		} {
			must.Do(t, store.PutStatus(t.Context(), step.put))
			if got, _, err := store.Status(t.Context()); err != nil || got.Owner != step.want {
				t.Errorf("after %s (%s) of %s: %v, status of %s", step.put.State, step.put.Reason, step.put.Owner, err, got.Owner)
			}
		}
		must.Do(t, store.PutStatus(t.Context(), works("one")))
		if s.mini != nil {
			s.mini.FastForward(cursorstore.StatusTTL)
			must.Do(t, store.PutStatus(t.Context(), fenced("other")))
			if got, _, err := store.Status(t.Context()); err != nil || got.Owner != "other" {
				t.Errorf("after the end of the one that worked: %v, status of %s", err, got.Owner)
			}
		}
	})
}
