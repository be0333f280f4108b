package kafkasink_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkarecord"
	"exportbridge/bridge/kafkastream"
)

// routed sets three routes: T.a, T.b and drop.
func routed(c *kafkastream.Config) {
	c.RouteText = "a=" + c.Topic + ".a,b=" + c.Topic + ".b,c=drop"
}

func onRoute(route uint8, e bridge.Event) bridge.Event {
	e.Route = route
	return e
}

// Each event is in the topic of its route. A dead letter names the topic that the event was
// for, and the checkpoint gets the state of all topics.
func TestRoutes(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			cfg, s := ready(t, inMode(mode), routed)
			large := event("large", "u")
			large.Raw = []byte(`{"big":"` + strings.Repeat("x", 2<<20) + `"}`)
			unread := event("unread", "u")
			unread.Defect = bridge.DefectTime
			sent := page(event("0", "u"), onRoute(1, event("1", "u")), onRoute(2, event("2", "u")),
				onRoute(bridge.RouteDrop, event("dropped", "u")), onRoute(1, event("3", "u")), onRoute(2, large),
				onRoute(bridge.RouteDrop, unread), onRoute(1, unread))
			sent.Traceparents = []string{"trace T", "trace T.a", "trace T.b"}
			r := publish(t, s, sent)
			if r.Published != 4 || r.Dropped != 2 || r.DeadLettered[bridge.DefectTooLarge] != 1 ||
				r.DeadLettered[bridge.DefectTime] != 1 {
				t.Errorf("receipt %+v", r)
			}
			got := make(map[string][]string)
			for _, topic := range cfg.Needs().Topics.Published() {
				for _, rec := range consume(t, cfg, topic) {
					text := headersOf(rec)[kafkarecord.HeaderID]
					if topic == cfg.DeadTopic() {
						text = strings.TrimPrefix(headersOf(rec)[kafkarecord.HeaderErrorTopic], cfg.Topic)
					}
					short := strings.Replace(topic, cfg.Topic, "T", 1)
					parent := headersOf(rec)[kafkarecord.HeaderTraceparent]
					if topic != cfg.DeadTopic() && parent != "trace "+short || parent == "" {
						t.Errorf("a record of %s has the context %q", short, parent)
					}
					got[short] = append(got[short], text)
				}
			}
			slices.Sort(got["dlq.T"])
			want := map[string][]string{"T": {"0"}, "T.a": {"1", "3"}, "T.b": {"2"}, "dlq.T": {".a", ".b"}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("topics (-want +got):\n%s", diff)
			}
			var known []string
			for i := range r.Topics {
				known = append(known, strings.Replace(r.Topics[i].Name, cfg.Topic, "T", 1))
			}
			if want := slices.Sorted(maps.Keys(want)); !slices.Equal(slices.Sorted(slices.Values(known)), want) {
				t.Errorf("the receipt has the topics %v, want %v", known, want)
			}
		})
	}
}

// What is published is found in all topics: of routes, of dead letters, and in former ones.
func TestRoutesRead(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, exactly, routed)
	one, two := event("1", "u"), event("2", "u")
	b := batch(cfg, 0)
	b.Pages = []*bridge.Page{page(onRoute(1, one), onRoute(2, two))}
	b.Pages[0].Source = batch(cfg, 0).Pages[0].Source
	source := b.Pages[0].Source
	mustCommit(t, s, b)
	known, err := s.PartialIndex(t.Context(), time.Now().Add(-time.Hour), source)
	if err != nil || !known.Match(&one) || !known.Match(&two) {
		t.Errorf("by time: %v, %v", known, err)
	}
	later := cfg
	later.RouteText = "b=" + cfg.Topic + ".b"
	s.Close()
	again := open(t, later)
	for name, test := range map[string]struct {
		topics []bridge.TopicState
		first  bool
	}{
		"a former topic":    {[]bridge.TopicState{{Name: cfg.Topic + ".a", Former: true}}, true},
		"its deleted topic": {[]bridge.TopicState{{Name: cfg.Topic + ".gone", Former: true}}, false},
		"no former topic":   {nil, false},
		"dead letters":      {[]bridge.TopicState{{Name: cfg.Topic + ".a", DeadLetters: true}}, true},
	} {
		index, err := again.Index(t.Context(), bridge.Since{Time: time.Now().Add(-time.Hour), Topics: test.topics}, source)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if index.Match(&one) != test.first || !index.Match(&two) {
			t.Errorf("%s: the first is known %t, the second %t", name, index.Match(&one), index.Match(&two))
		}
	}
}

// TestRenamedLettersAreKnown: after a change of KAFKA_DLQ_TOPIC, the former topic of dead
// letters still shows which items are dead letters.
func TestRenamedLettersAreKnown(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, exactly)
	bad := event("bad", "u")
	bad.Defect = bridge.DefectTime
	b := batch(cfg, 0)
	b.Pages = []*bridge.Page{page(bad)}
	source := b.Pages[0].Source
	before := must.Get(s.Topics(t.Context()))(t)
	mustCommit(t, s, b)
	s.Close()
	for _, name := range []string{"", "letters." + cfg.Topic} {
		now := cfg
		now.DLQTopic = name
		again := open(t, now)
		index := must.Get(again.Index(t.Context(), bridge.Since{Topics: before, EndsOnly: true}, source))(t)
		if !index.Match(&bad) {
			t.Errorf("KAFKA_DLQ_TOPIC=%q: the dead letter is unknown", name)
		}
	}
}
