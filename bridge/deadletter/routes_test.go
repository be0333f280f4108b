package deadletter_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/fakelog"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
)

// routedEvents are the topics of a retry.
type routedEvents struct {
	*fakelog.Log
	routed *fakelog.Log
}

func (l routedEvents) Kept(ctx context.Context) ([]kafkaclient.Kept, error) {
	first, err := l.Log.Kept(ctx)
	if err != nil {
		return nil, err
	}
	second, err := l.routed.Kept(ctx)
	return append(first, second...), err
}

// routing gives the event b a route, and drops the event d.
type routing struct{ deadletter.Source }

func (s routing) DecodeItem(item []byte) (*bridge.Page, error) {
	page, err := s.Source.DecodeItem(item)
	if err == nil {
		page.Events[0].Route = map[string]uint8{"b": 1, "d": bridge.RouteDrop}[string(page.Events[0].ID)]
	}
	return page, err
}

// TestRetryTopicLost: while the stream is blocked because of a recreated topic, nothing is
// published to it.
func TestRetryTopicLost(t *testing.T) {
	w := newWorld(t)
	routed := fakelog.New("export.orders", 1)
	routed.Remake("orders")
	w.publisher.routed = routed
	places := []deadletter.Place{w.letter("a")}
	for _, known := range []string{"before", "orders"} {
		var got []deadletter.Retried
		r := w.retrying(func(one deadletter.Retried) error { got = append(got, one); return nil })
		r.Source, r.Events = routing{w.source}, routedEvents{w.events, routed}
		r.Known = []bridge.TopicState{{Name: "export.orders", ID: known}}
		w.publisher.open()
		err := r.Run(t.Context(), places)
		if fault, refused := errors.AsType[*bridge.Fault](err); refused != (known == "before") || len(got) > 0 == refused ||
			refused && (fault.HintCode != bridge.HintTopicLost || !strings.Contains(fault.Error(), "export.orders was deleted")) {
			t.Errorf("%s: %v, %v", known, got, err)
		}
	}
}

// TestRetryRoutes: a mark counts for the topic that its event was published to, and an event
// that a route drops is not published.
func TestRetryRoutes(t *testing.T) {
	w := newWorld(t)
	routed := fakelog.New("export.orders", 1)
	routed.Remake("orders")
	w.publisher.routed = routed
	places := []deadletter.Place{w.letter("a"), w.letter("b"), w.letter("d")}
	for _, c := range []struct {
		what   string
		change func()
		want   [2]deadletter.Outcome
	}{
		{"at first", func() {}, [2]deadletter.Outcome{deadletter.Published, deadletter.Published}},
		{"again", func() {}, [2]deadletter.Outcome{deadletter.PublishedBefore, deadletter.PublishedBefore}},
		{"the topic of the route made again", func() { routed.Remake("new") },
			[2]deadletter.Outcome{deadletter.PublishedBefore, deadletter.Published}},
		{"and again", func() {}, [2]deadletter.Outcome{deadletter.PublishedBefore, deadletter.PublishedBefore}},
		{"the other topic made again", func() { w.events.Remake("new") },
			[2]deadletter.Outcome{deadletter.Published, deadletter.PublishedBefore}},
	} {
		c.change()
		var got []deadletter.Outcome
		r := w.retrying(func(one deadletter.Retried) error { got = append(got, one.Result); return nil })
		r.Source, r.Events = routing{w.source}, routedEvents{w.events, routed}
		w.publisher.open()
		if err := r.Run(t.Context(), places); err != nil || len(got) != 3 || [2]deadletter.Outcome(got[:2]) != c.want ||
			got[2] != deadletter.Refused {
			t.Errorf("%s: %v, %v, want %v", c.what, got, err, c.want)
		}
	}
}
