//go:build unix

package e2e_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// typeOf returns the type of an event of the simulator.
func typeOf(t *testing.T, event []byte) string {
	t.Helper()
	var e struct {
		Payload struct {
			Type  string `json:"type"`
			Older string `json:"@type"`
		}
	}
	decode(t, event, &e)
	return e.Payload.Type + e.Payload.Older
}

// routedTo says by means of its own where testRoutes send a type: to the stage's topic, that
// topic with a suffix, or nowhere.
func routedTo(topic, eventType string) string {
	switch {
	case strings.HasPrefix(eventType, "page"):
		return topic + ".pages"
	case eventType == "orderPlaced":
		return topic + ".orders"
	case strings.HasSuffix(eventType, "Changed"):
		return topic + ".changes"
	case strings.HasPrefix(eventType, "tab"):
		return ""
	}
	return topic
}

func (s *stage) testRoutes() string {
	return strings.ReplaceAll("page*=T.pages,/payload/type=orderPlaced:T.orders,/payload/@type=orderPlaced:T.orders,"+
		"*Changed=T.changes,tab*=drop", "T", s.topic)
}

// routed reads the topics of the stage. Each must have every event of which it has a copy
// once, in the order of its key.
func (s *stage) routed() (total *contents, in map[string]*contents) {
	s.t.Helper()
	total, in = newContents(s.t.Errorf), make(map[string]*contents)
	for _, suffix := range []string{"", ".pages", ".orders", ".changes"} {
		c := newContents(s.t.Errorf)
		s.eachRecord(s.topic+suffix, func(r *kgo.Record) { c.add(s.truth, s.config.Seed, r) })
		for i, copies := range c.copies {
			for len(total.copies) <= i {
				total.copies = append(total.copies, 0)
			}
			total.copies[i] += copies
		}
		in[s.topic+suffix], total.wrong, total.records = c, total.wrong+c.wrong, total.records+c.records
	}
	return total, in
}

// TestE2EProofRoutes kills the bridge of a stream with four topics: each event is once in
// its topic, and what a route drops is in none.
func TestE2EProofRoutes(t *testing.T) {
	t.Parallel()
	kills, seed := int(size(t, "E2E_KILLS", 12, 12)), seedOf(t)
	v := startServers(t, owned{})
	each(t, servers.Real(t), []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce}, func(t *testing.T, mode bridge.Mode) {
		const burst = 1500
		s := proofStage(t, v, exportsim.Config{Events: kills * burst / 3, Rate: 200, Latency: 2 * time.Millisecond})
		s.deliver(mode)
		s.settings["KAFKA_ROUTES"] = s.testRoutes()
		s.simulate()
		d := newDeaths(s, seed, burst)
		if mode == bridge.AtLeastOnce {
			d.points = plainPoints
		}
		for range kills {
			d.one()
		}
		s.finish()
		n := int(s.checkpoint().Events)
		total, in := s.routed()
		lost, dropped := 0, 0
		for i := range n {
			to := routedTo(s.topic, typeOf(t, s.truth.Event(i)))
			copies := 0
			if i < len(total.copies) {
				copies = total.copies[i]
			}
			if to == "" {
				if dropped++; copies > 0 {
					t.Errorf("event %d, which a route drops, is in a topic", i)
				}
				continue
			}
			if c := in[to]; i >= len(c.copies) || c.copies[i] == 0 {
				lost++
			} else if c.copies[i] != copies {
				t.Errorf("event %d is in another topic than %s too", i, to)
			}
		}
		if twice := total.twice(); lost > 0 || mode == bridge.ExactlyOnce && twice > 0 {
			t.Errorf("%d of %d events are not in their topic, %d records are copies", lost, n, twice)
		}
		if copies := s.copies(kills * 8 * 100); mode == bridge.AtLeastOnce && total.twice() > copies {
			t.Errorf("%d records are copies, at most %d were in flight", total.twice(), copies)
		}
		for topic, c := range in {
			if c.records == 0 {
				t.Errorf("topic %s is empty", topic)
			}
		}
		t.Logf("e2e: proof, routes: %s, %d kills (%s), %d events: %d lost, %d twice, %d dropped, E2E_SEED=%d",
			mode, kills, ways(d.ways), n, lost, total.twice(), dropped, seed)
	})
}

// TestE2EProofRoutesChange changes the routes between kills: each event is once in one of
// the topics, and the history has each change.
func TestE2EProofRoutesChange(t *testing.T) {
	t.Parallel()
	kills, seed := int(size(t, "E2E_KILLS", 12, 12)), seedOf(t)
	const burst, changes = 1500, 5
	s := proofStage(t, startServers(t, owned{}), exportsim.Config{Events: kills * burst / 3, Rate: 200,
		Latency: 2 * time.Millisecond})
	all := strings.ReplaceAll("page*=T.pages,order*=T.orders,*Changed=T.changes", "T", s.topic)
	s.settings["KAFKA_ROUTES"] = all // makes all topics
	s.simulate()
	s.run("--once").wantExit(0, stepTimeout)
	d, random := newDeaths(s, seed, burst), rand.New(rand.NewPCG(seed, 9))
	texts := []string{"", all, strings.ReplaceAll("*=T.pages", "T", s.topic), strings.ReplaceAll("*r*=T.orders", "T", s.topic)}
	for range changes {
		s.settings["KAFKA_ROUTES"] = pick(random, texts)
		for range max(1, kills/changes) {
			d.one()
		}
	}
	s.settings["KAFKA_ROUTES"] = strings.ReplaceAll("*=T.changes", "T", s.topic)
	s.finish()
	last := s.checkpoint()
	total, _ := s.routed()
	total.wantAll(int(last.Events), 0)
	if want := s.settings["KAFKA_ROUTES"]; last.Routes != want {
		t.Errorf("the checkpoint has the routes %q, want %q", last.Routes, want)
	}
	for _, suffix := range []string{"", ".pages", ".orders", ".changes"} {
		if bridge.FindTopic(last.Topics, s.topic+suffix) == nil {
			t.Errorf("the checkpoint lacks topic %s", s.topic+suffix)
		}
	}
	p, _ := s.command(0, "cursor", "history", "--json")
	var entries []struct{ Kind bridge.Kind }
	if err := json.Unmarshal(p.stdout(), &entries); err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, e := range entries {
		if e.Kind == bridge.KindRoutes {
			changed++
		}
	}
	if changed == 0 {
		t.Errorf("the history has no change of the routes among %d entries", len(entries))
	}
	t.Logf("e2e: proof, routes changed: %d kills (%s), %d events, %d changes in the history: %d lost, %d twice, "+
		"E2E_SEED=%d", kills, ways(d.ways), last.Events, changed, total.lost(int(last.Events)), total.twice(), seed)
}

// TestE2ERouteMissing wants a route to a topic that does not exist to be refused at start.
func TestE2ERouteMissing(t *testing.T) {
	t.Parallel()
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 100})
	s.simulate()
	s.run("--once").wantExit(0, stepTimeout)
	delete(s.settings, "KAFKA_CREATE_TOPICS")
	s.settings["KAFKA_ROUTES"] = "order*=" + s.topic + ".missing"
	p := s.run("--once")
	if code := p.wait(stepTimeout); code == 0 {
		t.Errorf("run --once ended with exit code 0")
	}
	if said := string(p.stderr()); !strings.Contains(said, s.topic+".missing does not exist") {
		t.Errorf("run says\n%s\nwant it to name the missing topic", tail(p.stderr()))
	}
}
