//go:build unix

package e2e_test

import (
	"sort"
	"strconv"
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

// routing is a value of KAFKA_ROUTES, with T for the stage's topic, and what it means.
type routing struct {
	text string
	to   func(topic, eventType string) string
}

var routings = []routing{
	{"page*=T.pages,/payload/type=orderPlaced:T.orders,/payload/@type=orderPlaced:T.orders,*Changed=T.changes,tab*=drop",
		routedTo},
	{"", func(topic, _ string) string { return topic }},
	{"*=T.pages", func(topic, _ string) string { return topic + ".pages" }},
	{"*r*=T.orders", func(topic, eventType string) string {
		if strings.Contains(eventType, "r") {
			return topic + ".orders"
		}
		return topic
	}},
	{"*=T.changes", func(topic, _ string) string { return topic + ".changes" }},
}

func (r *routing) of(topic string) string { return strings.ReplaceAll(r.text, "T", topic) }

func (s *stage) testRoutes() string { return routings[0].of(s.topic) }

// routed reads the topics of the stage. Each must have every event of which it has a copy
// once, in the order of its key unless jobs with these eb-origins have published too. In
// at-least-once mode there is no order: what was published and not committed before a death is
// published again, by the routes of then, behind later events that the topic has.
func (s *stage) routed(origins ...string) (total *contents, in map[string]*contents) {
	s.t.Helper()
	total, in = newContents(s.t.Errorf), make(map[string]*contents)
	for _, suffix := range []string{"", ".pages", ".orders", ".changes"} {
		c := newContents(s.t.Errorf)
		c.private, c.jumps = s.private, s.settings["KAFKA_DELIVERY"] != string(bridge.ExactlyOnce)
		if len(origins) > 0 {
			c.origins = make(map[string]int)
			for _, origin := range origins {
				c.origins[origin] = 0
			}
		}
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

// TestE2EProofRoutes kills the bridge of a stream with four topics and rules for private data
// again and again, while routes and rules change eight times. Each event is once in the topic
// of the routes of its checkpoint, as an independent redactor has it by the rules that the
// record names. What a route drops is in none. While values are encrypted, a subject is
// forgotten during each death: its events stay, and nobody opens their values.
func TestE2EProofRoutes(t *testing.T) {
	t.Parallel()
	kills, seed := int(size(t, "E2E_KILLS", 18, 18)), seedOf(t)
	v := startServers(t, owned{})
	each(t, servers.Real(t), []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce}, func(t *testing.T, mode bridge.Mode) {
		const burst = 1500
		s := proofStage(t, v, exportsim.Config{Events: kills * burst / 3, Rate: 200, Latency: 2 * time.Millisecond})
		s.deliver(mode)
		s.simulate()
		d, private := newDeaths(s, seed, burst), newRedactions(t)
		seals := newUnsealer(t)
		s.private, private.seals = private, seals
		f := newForgetter(s, seed, seals)
		if mode == bridge.AtLeastOnce {
			d.points = plainPoints
		}
		for phase := range private.sets {
			s.settings["KAFKA_ROUTES"] = routings[phase%len(routings)].of(s.topic)
			s.hide(private.sets[phase])
			dies := func(do func()) { do() }
			if private.sets[phase].encrypt != "" {
				s.command(0, "topics", "create", "--execute") // run creates no topic of keys beside events
				dies = func(do func()) { f.during(s.settings, int(s.checkpoint().Events), do) }
			}
			dies(func() { d.afterEvents(200) }) // each change is committed
			for range max(1, kills/len(private.sets)) - 1 {
				dies(d.one)
			}
		}
		s.finish()
		seals.load(s)
		n := int(s.checkpoint().Events)
		total, in := s.routed()
		lost, dropped := s.wantRouted(n, mode, in)
		if twice := total.twice(); lost > 0 || total.wrong > 0 || twice > s.copies(kills*8*100) {
			t.Errorf("%d of %d events are not in a topic, %d records are copies, %d are wrong", lost, n, twice, total.wrong)
		}
		private.wantAll()
		seals.wantForgotten(s)
		changes := s.changedRoutes()
		if want := len(private.sets) - 1; changes != want || dropped == 0 {
			t.Errorf("the history has %d changes of the routes, want %d; %d events were dropped", changes, want, dropped)
		}
		t.Logf("e2e: proof, routes and private data: %s, %d kills (%s), %d events: %d lost, %d twice, %d dropped, "+
			"%d sets of rules, %d changes of the routes, %d subjects forgotten with %d kills, %d values readable, %d not, "+
			"%d constants, E2E_SEED=%d", mode, kills, ways(d.ways), n, lost, total.twice(), dropped, len(private.named), changes,
			len(seals.forgotten), f.kills, seals.readable, seals.unreadable, seals.constants, seed)
	})
}

// wantRouted wants each of the first n events in the topic of its routes: in exactly-once mode
// those of the checkpoint that counts it, else any that the stream has had.
func (s *stage) wantRouted(n int, mode bridge.Mode, in map[string]*contents) (lost, dropped int) {
	s.t.Helper()
	l, elsewhere := newLedger("events", s.t.Errorf), 0
	s.eachRecord(s.settings["KAFKA_CHECKPOINT_TOPIC"], l.addCheckpoint)
	for i := range n {
		eventType, may := typeOf(s.t, s.truth.Event(i)), make(map[string]bool)
		for _, r := range routings {
			at := sort.Search(len(l.entries), func(at int) bool { return l.entries[at].Events > int64(i) })
			if mode == bridge.AtLeastOnce || l.entries[at].Routes == r.of(s.topic) {
				may[r.to(s.topic, eventType)] = true
			}
		}
		copies := 0
		for topic, c := range in {
			if i < len(c.copies) && c.copies[i] > 0 {
				if copies += c.copies[i]; !may[topic] {
					elsewhere++
				}
			}
		}
		switch {
		case copies > 0:
		case may[""]:
			dropped++
		default:
			lost++
		}
	}
	if elsewhere > 0 {
		s.t.Errorf("%d events are in a topic that their routes do not name", elsewhere)
	}
	for topic, c := range in {
		if c.records == 0 {
			s.t.Errorf("topic %s is empty", topic)
		}
	}
	return lost, dropped
}

// changedRoutes counts the changes of the routes in the history.
func (s *stage) changedRoutes() (n int) {
	s.t.Helper()
	p, _ := s.command(0, "cursor", "history", "--limit", "0", "--json")
	var entries []struct{ Kind bridge.Kind }
	decode(s.t, p.stdout(), &entries)
	for _, e := range entries {
		if e.Kind == bridge.KindRoutes {
			n++
		}
	}
	return n
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

// TestE2EProofRoutesGaps changes the routes five times between kills. Four of them drop what
// belongs into one of the topics: verify finds each of these events, and repairs it.
func TestE2EProofRoutesGaps(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	const burst, atLeast = 500, 300
	s := proofStage(t, startServers(t, owned{}), exportsim.Config{Events: 2 * burst, Rate: 200,
		Latency: 2 * time.Millisecond})
	all := strings.ReplaceAll("page*=T.pages,order*=T.orders,*Changed=T.changes", "T", s.topic)
	s.settings["KAFKA_ROUTES"] = all // makes all topics
	s.simulate()
	s.run("--max-events", strconv.Itoa(burst)).wantExit(0, stepTimeout)
	d := newDeaths(s, seed, burst)
	// Each leaves events for other topics: a death at a point of publishing needs some.
	for _, routes := range []string{"pag*=drop," + all, "orde*=drop," + all, "*hanged=drop," + all, all + ",*=drop"} {
		s.settings["KAFKA_ROUTES"] = routes
		d.one()
		s.run("--max-events", strconv.Itoa(atLeast)).wantExit(0, outageTimeout)
	}
	s.settings["KAFKA_ROUTES"] = all
	s.finish()
	last := s.checkpoint()
	total, in := s.routed()
	n, missing, gaps := int(last.Events), 0, make(map[string]int)
	for i := range n {
		if i < len(total.copies) && total.copies[i] > 0 {
			continue
		}
		missing++
		switch eventType := typeOf(t, s.truth.Event(i)); {
		case strings.HasPrefix(eventType, "page"):
			gaps[".pages"]++
		case strings.HasPrefix(eventType, "order"):
			gaps[".orders"]++
		case strings.HasSuffix(eventType, "Changed"):
			gaps[".changes"]++
		default:
			gaps[""]++
		}
	}
	if len(gaps) != len(in) || int64(missing) != last.Dropped || total.twice() > 0 {
		t.Errorf("%d events are missing (%v), %d were dropped, %d are twice", missing, gaps, last.Dropped, total.twice())
	}
	from, to := s.truth.EventTime(0), s.truth.EventTime(n-1).Add(time.Millisecond)
	if got := s.verify(3, from, to); got.API != n || got.Missing != missing || got.Extra+got.Again > 0 {
		t.Errorf("verify says %+v, want %d of %d missing", got, missing, n)
	}
	s.run()
	s.awaitState("idle")
	if got := s.verify(0, from, to, "--repair", "--execute"); got.Repair == nil || got.Repair.Events != missing {
		t.Errorf("verify says %+v, repaired %+v, want %d", got, got.Repair, missing)
	}
	if total, in = s.routed("live", "repair"); total.lost(n)+total.twice() > 0 {
		t.Errorf("after the repair %d events are lost, %d twice", total.lost(n), total.twice())
	}
	for suffix, want := range gaps {
		if got := in[s.topic+suffix].origins["repair"]; got != want {
			t.Errorf("%d events of %s are repaired, want %d", got, s.topic+suffix, want)
		}
	}
	t.Logf("e2e: proof, routes with gaps: %d kills (%s), %d of %d events dropped (%v), found and repaired, E2E_SEED=%d",
		len(gaps), ways(d.ways), missing, n, gaps, seed)
}
