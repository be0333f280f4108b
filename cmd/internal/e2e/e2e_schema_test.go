//go:build unix

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/kafkarecord"
)

// schemaFile sets EVENT_SCHEMA_FILE to a schema with one member. Events of the topics free may have
// any other.
func (s *stage) schemaFile(kind string, free ...string) {
	s.t.Helper()
	file := filepath.Join(s.dir, "events.schema.json")
	text := `{"additionalProperties": true, "properties": {"extra": {"type": "` + kind + `"}}, "$defs": {`
	for _, topic := range free {
		text += `"` + topic + `": {"additionalProperties": true}`
	}
	text += "}}"
	must.Do(s.t, os.WriteFile(file, []byte(text), 0o600))
	s.settings["EVENT_SCHEMA_FILE"] = file
}

// withExtra adds a member to every tenth event.
func withExtra(i int, item []byte) []byte {
	if i%10 != 5 {
		return item
	}
	return append([]byte(`{"extra":"private",`), item[1:]...)
}

// TestE2ESchema: a stream publishes events that differ from their schema, and counts and shows
// the differences, without a value of an event.
func TestE2ESchema(t *testing.T) {
	t.Parallel()
	const n, differing = 40, 4
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["EXPORT_PAGE_SIZE"] = "7" // the last page has events, and is listed again and again
	s.schemaFile("integer")
	s.serveAltered(withExtra)
	live := s.run()
	s.awaitPublished(n)
	s.awaitState("idle")
	var reports []struct {
		Live struct{ Schema *bridge.SchemaCheck }
	}
	eventually(t, stepTimeout, "a status with the differences", func() bool {
		p, _ := s.command(0, "status", "--json")
		decode(t, p.stdout(), &reports)
		return reports[0].Live.Schema != nil && reports[0].Live.Schema.Mismatches == differing
	})
	want := bridge.Difference{Pointer: "/extra", Text: "is string, want integer"}
	if got := reports[0].Live.Schema.Differences; len(got) != 1 || got[0] != want {
		t.Errorf("the differences are %v, want %v", got, want)
	}
	s.awaitShown("4 events differ from EVENT_SCHEMA", "/extra is string, want integer")
	eventually(t, stepTimeout, "the metric of the differences, which is 0 for a minute",
		func() bool { return s.metric("events_schema_mismatched_total") == differing })
	live.stop()
	s.eachOutput(func(name string, content []byte) {
		if strings.Contains(string(content), "private") {
			t.Errorf("%s has a value of an event:\n%s", name, content)
		}
	})
	s.wantRepaired(n, never, func(i int) []byte { return withExtra(i, s.truth.Event(i)) })
}

// TestE2ESchemaBadEvents: with bad-event, events that differ are dead letters. A retry publishes them
// once their schema is corrected.
func TestE2ESchemaBadEvents(t *testing.T) {
	t.Parallel()
	const n, differing = 40, 4
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.settings["BRIDGE_ON_SCHEMA_MISMATCH"] = "bad-event"
	s.schemaFile("integer")
	s.serveAltered(withExtra)
	s.run("--once").wantExit(0, 10*time.Minute)
	all := s.letters()
	if len(all) != differing || all[0].Reason != string(bridge.DefectMismatch) || all[0].Holds != "bytes" {
		t.Fatalf("%d letters: %+v", len(all), all)
	}
	refused := s.retry(1, "--all", "--execute")
	if len(refused) != differing || !strings.Contains(refused[0].Detail, "/extra is string, want integer") {
		t.Errorf("with the same schema: %+v", refused)
	}
	s.schemaFile("string")
	if got := results(s.retry(0, "--all", "--execute")); got["published"] != differing {
		t.Errorf("with a corrected schema: %v", got)
	}
	s.wantRepaired(n, func(i int) bool { return i%10 == 5 }, func(i int) []byte { return withExtra(i, s.truth.Event(i)) })
}

// TestE2ESchemaWays: events are compared as they are published, whatever publishes them: those that
// differ are dead letters, each once, and the others are in their topics.
func TestE2ESchemaWays(t *testing.T) {
	t.Parallel()
	each(t, servers.Real(t), []string{"windows", "rules", "routes", "backfill"}, func(t *testing.T, way string) {
		const n, seam = 200, 120
		s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
		s.settings["BRIDGE_ON_SCHEMA_MISMATCH"], s.settings["EXPORT_START"] = "bad-event", s.timeOf(0)
		s.schemaFile("integer")
		s.serveAltered(withExtra)
		topics := []string{s.topic}
		differs, topicOf := func(i int) bool { return i%10 == 5 }, func(int) string { return s.topic }
		switch way {
		case "windows":
			s.settings["EXPORT_FOLLOW"], s.settings["EXPORT_SETTLE"] = "windows", "1s"
			s.settings["EXPORT_LOOK_BACK"] = "72h"
		case "rules": // which drop what differs
			s.hide(privacy{drop: "/extra", keys: 1})
			differs = never
		case "routes":
			s.settings["KAFKA_ROUTES"] = s.testRoutes()
			topics = append(topics, s.topic+".pages", s.topic+".orders", s.topic+".changes")
			s.schemaFile("integer", topics[1])
			topicOf = func(i int) string { return routedTo(s.topic, typeOf(t, s.truth.Event(i))) }
			differs = func(i int) bool { return i%10 == 5 && topicOf(i) != "" && topicOf(i) != topics[1] }
		case "backfill":
			s.settings["EXPORT_START"] = s.timeOf(seam)
		}
		s.finish()
		if way == "backfill" {
			s.command(0, "backfill", "--from", s.timeOf(0), "--to", s.timeOf(seam), "--windows", "3", "--execute")
		}
		got := make(map[string]int) // by the topic and the id of the event
		letters := s.letters()
		for _, l := range letters {
			got[l.Reason+" "+l.ID]++
		}
		for _, topic := range topics {
			s.eachRecord(topic, func(r *kgo.Record) { got[r.Topic+" "+deadletter.Header(r, kafkarecord.HeaderID)]++ })
		}
		for i := range n {
			at := topicOf(i)
			if differs(i) {
				at = string(bridge.DefectMismatch)
			}
			if key := at + " " + exportsim.EventID(s.config.Seed, i); at != "" && got[key] != 1 {
				t.Errorf("event %d is %d times in %s", i, got[key], at)
			} else {
				delete(got, key)
			}
		}
		if len(got) > 0 {
			t.Errorf("%d events are elsewhere: %v", len(got), got)
		}
		t.Logf("e2e: schema, %s: %d of %d events differ", way, len(letters), n)
	})
}

// TestE2ESchemaStops: with bad-event and stop, an event that differs blocks the stream before it.
func TestE2ESchemaStops(t *testing.T) {
	t.Parallel()
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 20})
	s.settings["BRIDGE_ON_SCHEMA_MISMATCH"], s.settings["BRIDGE_ON_BAD_EVENT"] = "bad-event", "stop"
	s.schemaFile("integer")
	s.serveAltered(withExtra)
	live := s.run()
	s.awaitState("blocked")
	s.awaitShown("/extra is string, want integer", "correct EVENT_SCHEMA")
	live.stop()
	if got := len(s.recordsByID()); got != 0 {
		t.Errorf("%d events are published", got)
	}
}

// awaitShown waits until status shows the texts.
func (s *stage) awaitShown(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		eventually(s.t, stepTimeout, "a status with "+text, func() bool {
			p, _ := s.command(0, "status")
			return strings.Contains(strings.Join(strings.Fields(string(p.stdout())), " "), text)
		})
	}
}
