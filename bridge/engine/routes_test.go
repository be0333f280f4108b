package engine_test

import (
	"context"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/engine"
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

// readsNamed reads back the topic of the settings and the named ones, as
// kafkarecord.Published does. It keeps what it was asked for.
type readsNamed struct {
	publishedIn
	former string
	until  int // number of records that are in the former topic
	asked  *bridge.Since
}

func (p readsNamed) Index(ctx context.Context, since bridge.Since,
	of bridge.SourceIdentity) (bridge.PublishedIndex, error) {
	*p.asked = since
	held, err := p.publishedIn.Index(ctx, bridge.Since{Time: since.Time}, of)
	if index, ok := held.(topicIndex); ok && bridge.FindTopic(since.Topics, p.former) == nil {
		for _, r := range p.topic.Records()[:p.until] {
			index[string(r.Value)]--
		}
	}
	return held, err
}

// TestOverlapReadsFormerTopic: an overlap after a change of the routes knows the events in a
// former topic too.
func TestOverlapReadsFormerTopic(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"time", "previous"} {
		exactRow(t, policy, bridgetest.Export{}, func(r *harness) {
			r.cfg.Routes = "a*=events"
			r.follow(30, time.Minute)
			r.end()
			r.topic.Name, r.cfg.Routes, r.cfg.OnInvalidCursor = "orders", "*=orders", policy
			asked := new(bridge.Since)
			r.startWith(engine.Ports{Inbox: r.inbox, Published: readsNamed{
				publishedIn{r.topic, new([]time.Time)}, "events", len(r.topic.Records()), asked}})
			r.after(time.Minute)
			r.grow(5, time.Minute)
			before := r.store.Checkpoint()
			r.expire(before.Cursor, func(at bridge.Position) bool {
				return at.Cursor != before.Cursor && (policy == "previous" || at.Start > 0)
			})
			r.grow(5, 5*time.Minute)
			if bridge.FindTopic(asked.Topics, "events") == nil {
				r.t.Errorf("the overlap reads %+v, want the former topic too", asked.Topics)
			}
			r.wantOnce()
		})
	}
}

// minuteWindows lists no items by windows of a minute.
type minuteWindows struct{}

func (minuteWindows) Fetch(_ context.Context, at bridge.Position) (*bridge.Page, error) {
	now := time.Now()
	p := &bridge.Page{At: at, RequestedAt: now, ArrivedAt: now, ServerTime: now, Next: at.Cursor}
	if w, _ := at.Watermark(); w.At+time.Minute.Milliseconds() <= now.UnixMilli() {
		p.Next = bridge.Watermark{At: w.At + time.Minute.Milliseconds()}.Cursor()
	}
	return p, nil
}

func (minuteWindows) Decode(*bridge.Page) error { return nil }

// TestLookBackReadsFormerTopic: windows after a route that was added and removed within the
// look-back know the events in the topic of that route.
func TestLookBackReadsFormerTopic(t *testing.T) {
	exactBubble(t, bridgetest.Export{}, func(r *harness) {
		r.cfg.Origin.Follow, r.cfg.Origin.Start, r.cfg.LookBack = bridge.FollowWindows, time.Now().UnixMilli(), time.Hour
		asked := new(bridge.Since)
		run := func(topic, routes string, d time.Duration) {
			r.topic.Name, r.cfg.Routes = topic, routes
			r.startWith(engine.Ports{Source: minuteWindows{}, Inbox: r.inbox,
				Published: readsNamed{publishedIn{r.topic, new([]time.Time)}, "extra", 0, asked}})
			r.after(d)
			r.mustEnd()
		}
		run("events", "", 20*time.Minute)
		run("extra", "*=extra", 5*time.Minute)
		run("events", "", 5*time.Minute)
		if extra := bridge.FindTopic(asked.Topics, "extra"); extra == nil || extra.Ends != "" {
			t.Errorf("the look-back reads %+v, want all of the former topic too", asked.Topics)
		}
	})
}

// A command's process without the stream's topics, as from a shell without KAFKA_ROUTES, does
// not make them former ones: a recreated topic is noticed after a pause, and after a rewind.
func TestApplyKeepsTopics(t *testing.T) {
	t.Parallel()
	rewind := reset("r1", 0, bridge.Target{Entry: &bridge.Version{}})
	for _, cmd := range []bridge.Command{pause("p1", 0), rewind} {
		exactlyInBubble(t, bridgetest.Export{}, func(r *harness) {
			r.topic.Name, r.cfg.Routes = "orders", "*=orders" // the fake has one topic: it stands for the routed one
			r.ran(30, time.Minute)
			r.topic.Name, r.cfg.Routes = "events", ""
			if cmd.Kind == bridge.KindPause {
				cmd.PausedUntil = time.Now().Add(time.Minute).UnixMilli()
			}
			if a, err := r.applyWithout(cmd); err != nil || !a.Applied {
				t.Fatal(a, err)
			}
			r.topic.Recreate()
			r.topic.Name, r.cfg.Routes = "orders", "*=orders"
			r.startFor(5 * time.Minute)
			if s := r.bridge.Status(); s.State != bridge.StateBlocked {
				t.Errorf("after a %s the topic was recreated: the stream is %s, the topics are %+v", cmd.Kind, s.State,
					r.store.Checkpoint().Topics)
			}
		})
	}
}
