//go:build unix

package e2e_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/kafkarecord"
)

// TestE2ERoutesVerify hides events of every topic at first: verify reports them as missing,
// publishes each into its topic, and knows what a route drops.
func TestE2ERoutesVerify(t *testing.T) {
	t.Parallel()
	const n = 3005
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"], s.settings["KAFKA_ROUTES"] = "200", s.testRoutes()
	hidden := func(i int) bool { return i%10 == 3 && i < 2800 } // of pages that are passed
	api := s.serveAltered(hiding(hidden))
	s.finish()
	from, to := s.times()
	want, dropped := make(map[string]int), 0
	for i := range n {
		switch topic := routedTo(s.topic, typeOf(t, s.truth.Event(i))); {
		case topic == "":
			dropped++
		case hidden(i):
			want[topic]++
		}
	}
	missing, had := 0, make(map[string]int)
	for topic, hidden := range want {
		missing, had[topic] = missing+hidden, s.held(topic)
	}
	if len(want) != 4 {
		t.Fatalf("events are hidden in the topics %v only", want)
	}
	api.serve(asServed)
	if got := s.verify(3, from, to); got.API != n || got.Held != n-missing-dropped || got.Missing != missing ||
		got.Extra+got.Again > 0 {
		t.Errorf("%+v, want %d missing, %d dropped", got, missing, dropped)
	}
	s.run()
	s.awaitState("idle")
	for _, repaired := range []int{missing, 0} {
		if got := s.verify(0, from, to, "--repair", "--execute"); got.Repair == nil || got.Missing != repaired ||
			got.Repair.Events != repaired || got.Extra+got.Again > 0 {
			t.Errorf("%+v, repaired %+v, want %d", got, got.Repair, repaired)
		}
	}
	s.settings["KAFKA_ROUTES"] = "" // the stream still has its topics
	if got := s.verify(3, from, to); got.Missing != dropped || got.Extra > 0 {
		t.Errorf("without routes %+v, want the %d dropped events to be missing", got, dropped)
	}
	copies := make(map[string]int) // by the topic and the id of the event
	for topic, repaired := range want {
		s.eachRecord(topic, func(r *kgo.Record) { copies[topic+" "+deadletter.Header(r, kafkarecord.HeaderID)]++ })
		if now := s.held(topic); now < had[topic]+repaired {
			t.Errorf("%d records are in %s after the repair of %d, had %d before", now, topic, repaired, had[topic])
		}
	}
	for i := range n {
		topic, id := routedTo(s.topic, typeOf(t, s.truth.Event(i))), exportsim.EventID(s.config.Seed, i)
		if topic != "" && copies[topic+" "+id] != 1 {
			t.Errorf("event %d is %d times in %s", i, copies[topic+" "+id], topic)
		}
	}
	if len(copies) != n-dropped {
		t.Errorf("%d events are in the topics, want %d", len(copies), n-dropped)
	}
}
