package engine_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
)

// TestRoutesChanged: the checkpoint keeps a former topic, and the time up to which events may
// be in it, through restarts and the reset that accepts a recreated topic.
func TestRoutesChanged(t *testing.T) {
	t.Parallel()
	inModes(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.Routes = "a*=events"
		r.follow(30, time.Minute)
		r.end()
		was := r.store.Checkpoint()
		if was.RoutesChanged != 0 {
			r.t.Errorf("the routes of a new stream changed at %d", was.RoutesChanged)
		}
		r.topic.Recreate()
		r.topic.Name, r.cfg.Routes = "orders", "*=orders"
		r.startFor(time.Minute)
		changed := r.store.Checkpoint().RoutesChanged
		want := func(what, id string) {
			r.t.Helper()
			c := r.store.Checkpoint()
			former, now := bridge.FindTopic(c.Topics, "events"), bridge.FindTopic(c.Topics, "orders")
			if former == nil || !former.Former || former.ID != "topic-0" || now == nil || now.Former || now.ID != id ||
				c.Routes != r.cfg.Routes || c.RoutesChanged != changed || changed < max(was.WrittenAt, was.LastEventTime) {
				r.t.Errorf("%s: changed at %d, the topics are %+v", what, c.RoutesChanged, c.Topics)
			}
		}
		want("changed", "topic-1")
		r.grow(5, time.Minute)
		r.end()
		r.startFor(time.Minute)
		want("restarted", "topic-1")
		r.end()
		r.topic.Recreate()
		now := r.store.Checkpoint()
		r.steer(reset("accept", now.Epoch, bridge.Target{}), false)
		want("reset", "topic-2")
		r.after(2 * time.Minute)
		want("read again", "topic-2")
	})
}
