//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// trio are the streams of a stage with several, by the path of their resource.
var trio = map[string]string{"events": "/events", "sessions": "/session", "users": "/user"}

// TestE2EProofStreams shares three streams among processes that come and go, as members of
// one consumer group.
func TestE2EProofStreams(t *testing.T) {
	t.Parallel()
	s, paths := shareStreams(t, len(trio))
	scriptStreams(s)
	total, lost, twice := s.compareAll(paths, func(string) int64 { return 0 })
	t.Logf("e2e: proof, streams: three, %d items: %d lost, %d twice", total, lost, twice)
}

// shareStreams returns a stage with n streams, three of them the trio, and the paths of
// all.
func shareStreams(t *testing.T, n int) (*stage, map[string]string) {
	t.Helper()
	many := n > len(trio)
	var v *backends
	if many && servers.Real(t) {
		k := servers.StartKafka(t, servers.KafkaOptions{Own: true, Brokers: 3, Properties: quickSessions})
		r := servers.StartRedis(t, servers.RedisOptions{Own: true})
		v = &backends{brokers: strings.Join(k.Addrs(), ","), redisURL: r.URL(), kafka: k, redis: r}
	} else {
		v = startServers(t, owned{quick: true})
	}
	s := proofStage(t, v, exportsim.Config{Events: min(60_000/n, 6000), Rate: 1200 / float64(n),
		Latency: 5 * time.Millisecond, APIKey: "right"})
	s.settings["EXPORT_API_KEY"], s.settings["BRIDGE_SESSION_TIMEOUT"] = "right", shortSession.String()
	if many {
		s.settings["BRIDGE_SESSION_TIMEOUT"], s.settings["EXPORT_POLL_INTERVAL"] = manySession.String(), "500ms"
		s.settings["EXPORT_POLL_INTERVAL_MAX"] = "500ms"
	}
	if v.kafka != nil && many {
		s.settings["KAFKA_REPLICATION"] = "3"
	}
	delete(s.settings, "KAFKA_TOPIC")
	paths := maps.Clone(trio)
	for i := range n - len(trio) {
		resource := slices.Sorted(maps.Keys(trio))[i%len(trio)]
		stream := fmt.Sprintf("%s%d", resource, i)
		paths[stream] = trio[resource]
		s.settings[streamVariable(stream, "EXPORT_RESOURCE")] = resource
	}
	for stream := range paths {
		s.settings[streamVariable(stream, "KAFKA_TOPIC")] = s.topicOf(stream)
	}
	s.settings["BRIDGE_STREAMS"] = strings.Join(slices.Sorted(maps.Keys(paths)), ",")
	s.simulate()
	return s, paths
}

// manySession is the session time-out where many streams keep the machine busy.
const manySession = 3 * time.Second

// scriptStreams has processes come and go with different streams of the trio.
func scriptStreams(s *stage) {
	t := s.t
	t.Helper()
	first := s.bridgeNamed("a")
	s.awaitFlow(first)
	second := s.bridgeNamed("b")
	s.awaitFlow(first, second)
	first.kill()
	s.awaitFlow(second)
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

// compareAll drains all streams and compares each topic with what the simulator had before, from
// a start in ms on.
func (s *stage) compareAll(paths map[string]string, startOf func(stream string) int64) (total, lost, twice int) {
	s.t.Helper()
	names, queries := slices.Sorted(maps.Keys(paths)), make(map[string]string)
	there := make(map[string][]json.RawMessage) // by query
	for _, stream := range names {
		query := url.Values{"start": {strconv.FormatInt(startOf(stream), 10)}}
		key := paths[stream] + query.Encode()
		if queries[stream] = key; there[key] == nil {
			s.eachItem(paths[stream], query, func(item json.RawMessage) { there[key] = append(there[key], item) })
		}
	}
	s.finish()
	for _, stream := range names {
		items := there[queries[stream]]
		l, d := s.compare(stream, items)
		if l > 0 || d > 0 {
			s.t.Errorf("stream %s: %d of %d items are lost, %d twice", stream, l, len(items), d)
		}
		total, lost, twice = total+len(items), lost+l, twice+d
	}
	return total, lost, twice
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
