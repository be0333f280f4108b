package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

func (r *harness) wantObserved(what bridge.What, code string, n int) {
	r.t.Helper()
	if got := len(r.observed(what, code)); got != n {
		r.t.Errorf("%d observations %s %q, want %d", got, what, code, n)
	}
}

func TestPagesAreObservedByFullness(t *testing.T) {
	exactBubble(t, bridgetest.Export{End: bridgetest.EndEmptyItems}, func(r *harness) {
		r.cfg.Limits.Once = true
		r.source.Grow(25)
		r.mustRun()
		r.wantObserved(bridge.ObserveDecode, "full", 2)
		r.wantObserved(bridge.ObserveDecode, "partial", 1)
		r.wantObserved(bridge.ObserveOwner, "owner", 1)
		r.wantObserved(bridge.ObserveOwner, "standby", 1)
		if len(r.observed(bridge.ObserveDecode, "empty")) == 0 {
			t.Error("no empty page was observed")
		}
	})
}

// All times of a small page are observed, a few of a large one, and none of events that a
// rewind publishes again.
func TestTimesOfEvents(t *testing.T) {
	exactBubble(t, bridgetest.Export{PageSize: 100}, func(r *harness) {
		times := func() (n int) {
			for _, o := range r.observed(bridge.ObserveCommit, "") {
				n += len(o.Times)
			}
			return n
		}
		r.follow(5, time.Second)
		if n := times(); n != 5 {
			t.Errorf("%d times of 5 events", n)
		}
		r.grow(295, 20*time.Second)
		n := times()
		if n < 5+2*8 || n > 5+3*16 {
			t.Errorf("%d times of 300 events on three pages", n)
		}
		first := r.store.History()[0].Version
		r.command("back", bridge.Target{Entry: &first})
		r.after(20 * time.Second)
		if again := times() - n; r.again.Load() != 300 || again != 0 {
			t.Errorf("%d more times after a rewind, of %d marked events", again, r.again.Load())
		}
	})
}

func TestPagesThatLeadNowhereAreObserved(t *testing.T) {
	t.Parallel()
	item := func(id string) string { return fmt.Sprintf(`{"eventId":%q,"timestamp":946684800000}`, id) }
	for _, tc := range []struct {
		name, first, again string
		kind               string
		most               int
	}{
		{"back to a page before", "b", "c", "cycle", 10},
		{"a full page that names itself", "b", "b", "full-tail", 20},
	} {
		row(t, tc.name, bridgetest.Export{PageSize: 1}, func(r *harness) {
			r.source.Serve(func(at bridge.Position) bridgetest.Answer {
				next := map[string]string{"": "a", "a": tc.first, "b": tc.again, "c": "b"}[at.Cursor]
				return answer(next, item("at "+at.Cursor))
			})
			r.startFor(time.Minute)
			if n := len(r.observed(bridge.ObserveStuck, tc.kind)); n < 1 || n > tc.most {
				r.t.Errorf("%d observations %s, want some", n, tc.kind)
			}
			if n := len(r.observed(bridge.ObserveStuck, "")); n != len(r.observed(bridge.ObserveStuck, tc.kind)) {
				r.t.Errorf("%d observations of pages that lead nowhere, some of another kind than %s", n, tc.kind)
			}
		})
	}
}

func TestRejectionsAreObserved(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.follow(15, 5*time.Second)
		must.Get(r.topic.Open("events").Recover(r.t.Context(), nil))(t)
		r.grow(30, time.Minute)
		r.wantObserved(bridge.ObserveRejected, bridge.DependencySink, 1)
		r.wantObserved(bridge.ObservePublish, "ok", len(r.observed(bridge.ObserveTransaction, "committed")))
		r.wantObserved(bridge.ObservePublish, "error", len(r.observed(bridge.ObserveTransaction, "fenced")))
		r.wantOnce()
	})
}

// A sink whose receipt names fewer events than were sent to it has lost some.
func TestUnaccountedEventsAreObserved(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.source.Grow(15)
		r.startWith(engine.Ports{Inbox: r.inbox, Sink: forgetfulSink{r.topic.Open("events")}})
		r.after(5 * time.Second)
		missing := 0
		for _, o := range r.observed(bridge.ObserveCommit, "") {
			missing += o.Unaccounted
		}
		if commits := len(r.observed(bridge.ObserveCommit, "")); missing != commits || commits == 0 {
			t.Errorf("%d events unaccounted for in %d commits, want one each", missing, commits)
		}
	})
}

// forgetfulSink leaves an event of each batch out of its receipt.
type forgetfulSink struct{ bridge.Sink }

func (s forgetfulSink) Publish(ctx context.Context, b bridge.Batch) (bridge.Receipt, error) {
	r, err := s.Sink.Publish(ctx, b)
	r.Published = max(0, r.Published-1)
	return r, err
}

// The lag of an unreachable store is reported, also across a reset.
func TestStoreLag(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		want := func(least, most int64) {
			t.Helper()
			if n := r.bridge.Status().StoreLagPages; n < least || n > most {
				t.Errorf("the store is %d pages behind, want %d to %d", n, least, most)
			}
		}
		r.follow(100, 5*time.Second)
		want(0, 0)
		heal := r.store.Break()
		r.grow(200, 20*time.Second)
		want(19, 21)
		heal()
		r.after(20 * time.Second)
		want(0, 0)
		r.end()
		want(0, 0)
		if !strings.Contains(r.log.String(), "stream stopped") {
			t.Error("the stream did not stop in order")
		}
	})
}
