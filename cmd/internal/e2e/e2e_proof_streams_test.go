//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/exportapi/exportsim"
)

// trio are the streams of a stage with several, by the path of their resource.
var trio = map[string]string{"events": "/events", "sessions": "/session", "users": "/user"}

// TestE2EProofStreams shares three streams among processes that come and go, as members of
// one consumer group.
func TestE2EProofStreams(t *testing.T) {
	t.Parallel()
	const key = "right"
	s := proofStage(t, startServers(t, owned{quick: true}), exportsim.Config{Events: 20_000, Rate: 400,
		Latency: 5 * time.Millisecond, APIKey: key})
	s.settings["EXPORT_API_KEY"], s.settings["BRIDGE_SESSION_TIMEOUT"] = key, shortSession.String()
	s.settings["BRIDGE_STREAMS"], s.settings["BRIDGE_OWNERSHIP"] = "events,sessions,users", "group"
	delete(s.settings, "KAFKA_TOPIC")
	for stream := range trio {
		s.settings[streamVariable(stream, "KAFKA_TOPIC")] = s.topicOf(stream)
	}
	s.simulate()
	var gone []time.Duration

	first := s.bridgeNamed("a")
	s.awaitFlow(first)
	second := s.bridgeNamed("b")
	s.awaitFlow(first, second)
	first.kill()
	died := time.Now()
	s.awaitFlow(second)
	gone = append(gone, time.Since(died))
	third := s.bridgeNamed("c") // one that was never there
	s.awaitFlow(second, third)
	second.stop()
	s.awaitFlow(third)

	// A process that runs only one of the streams.
	s.settings["BRIDGE_STREAMS"] = "users"
	users := s.bridgeNamed("d")
	s.awaitFlow(third, users)
	third.kill()
	s.awaitFlowOf([]string{"users"}, users)

	// The owner of a stream with a wrong key leaves the others running.
	users.stop()
	s.settings["BRIDGE_STREAMS"] = "events,sessions,users"
	s.settings[streamVariable("users", "EXPORT_API_KEY")] = "wrong"
	wrong := s.bridgeNamed("e")
	eventually(t, outageTimeout, "the stream with a wrong key to be blocked", func() bool {
		return wrong.metric("state", `stream="users"`, `state="blocked"`) == 1
	})
	s.awaitFlowOf([]string{"events", "sessions"}, wrong)
	wrong.stop()
	delete(s.settings, streamVariable("users", "EXPORT_API_KEY"))
	there := make(map[string][]json.RawMessage)
	for stream, path := range trio {
		s.eachItem(path, url.Values{}, func(item json.RawMessage) { there[stream] = append(there[stream], item) })
	}
	s.finish()
	summary := ""
	for _, stream := range slices.Sorted(maps.Keys(trio)) {
		total := len(there[stream])
		lost, twice := s.compare(stream, there[stream])
		if lost > 0 || twice > 0 {
			t.Errorf("stream %s: %d of %d items are lost, %d twice", stream, lost, total, twice)
		}
		summary += fmt.Sprintf(" %s %d items, %d lost, %d twice;", stream, total, lost, twice)
	}
	t.Logf("e2e: proof, streams: three in up to three processes that die, join, leave, and have a wrong key:%s all "+
		"three flow %s after kill -9, session time-out %s",
		summary, quantiles(gone), shortSession)
}

func streamVariable(stream, name string) string {
	return "STREAM_" + strings.ToUpper(stream) + "_" + name
}

func (s *stage) topicOf(stream string) string { return s.topic + "-" + stream }

// awaitFlow waits until all three streams have published more, whichever of
// the bridges runs them.
func (s *stage) awaitFlow(bridges ...*program) {
	s.t.Helper()
	s.awaitFlowOf(slices.Sorted(maps.Keys(trio)), bridges...)
}

func (s *stage) awaitFlowOf(streams []string, bridges ...*program) {
	s.t.Helper()
	count := func(stream string) (sum float64) {
		for _, b := range bridges {
			sum += b.metric("events_published_total", fmt.Sprintf("stream=%q", stream))
		}
		return sum
	}
	had := make(map[string]float64)
	for _, stream := range streams {
		had[stream] = count(stream)
	}
	for _, stream := range streams {
		eventually(s.t, outageTimeout, "stream "+stream+" to flow", func() bool { return count(stream) > had[stream] })
	}
}

// compare counts which items are not in a stream's topic, and which records are
// copies of others.
func (s *stage) compare(stream string, items []json.RawMessage) (lost, twice int) {
	s.t.Helper()
	found := make(map[string]int)
	s.eachRecord(s.topicOf(stream), func(r *kgo.Record) {
		if found[string(r.Value)]++; found[string(r.Value)] > 1 {
			twice++
		}
	})
	for _, item := range items {
		if found[string(item)] == 0 {
			lost++
		}
	}
	return lost, twice
}
