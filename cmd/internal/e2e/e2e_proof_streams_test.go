//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// trio are the streams of a stage with several, by the path of their resource.
var trio = map[string]string{"events": "/events", "sessions": "/session", "users": "/user"}

// TestE2EProofStreams shares three streams among processes that come and go, as members of
// one consumer group. E2E_STREAMS shares more of them, in three brokers. Then E2E_KILLS
// processes of three end in every way (crowd).
func TestE2EProofStreams(t *testing.T) {
	t.Parallel()
	s, paths := shareStreams(t, int(size(t, "E2E_STREAMS", float64(len(trio)), float64(len(trio)))))
	scriptStreams(s)
	kills, seed := int(size(t, "E2E_KILLS", 3, 10)), seedOf(t)
	c := newCrowd(s, slices.Sorted(maps.Keys(paths)), seed)
	began := time.Now()
	for range kills {
		c.one()
	}
	took := time.Since(began)
	c.stop()
	s.settings["BRIDGE_STREAMS"] = strings.Join(c.names, ",")
	there := make(map[string][]json.RawMessage) // by path
	for _, path := range trio {
		s.eachItem(path, url.Values{}, func(item json.RawMessage) { there[path] = append(there[path], item) })
	}
	s.finish()
	total, allLost, allTwice := 0, 0, 0
	for _, stream := range c.names {
		items := there[paths[stream]]
		lost, twice := s.compare(stream, items)
		if lost > 0 || twice > 0 {
			t.Errorf("stream %s: %d of %d items are lost, %d twice", stream, lost, len(items), twice)
		}
		total, allLost, allTwice = total+len(items), allLost+lost, allTwice+twice
	}
	t.Logf("e2e: proof, streams: %d in three processes, %d turns in %.0f s (%v), %d items: %d lost, %d twice; all flow "+
		"again after %s, session time-out %s, E2E_SEED=%d",
		len(c.names), kills, took.Seconds(), c.ways, total, allLost, allTwice, quantiles(c.flowing),
		s.settings["BRIDGE_SESSION_TIMEOUT"], seed)
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
	s := proofStage(t, v, exportsim.Config{Events: 60_000 / n, Rate: 1200 / float64(n), Latency: 5 * time.Millisecond,
		APIKey: "right"})
	s.settings["EXPORT_API_KEY"], s.settings["BRIDGE_SESSION_TIMEOUT"] = "right", shortSession.String()
	if many {
		s.settings["BRIDGE_SESSION_TIMEOUT"], s.settings["EXPORT_POLL_INTERVAL"] = manySession.String(), "500ms"
		s.settings["EXPORT_POLL_INTERVAL_MAX"] = "500ms"
	}
	if v.kafka != nil && many {
		s.settings["KAFKA_REPLICATION"] = "3"
	}
	s.settings["BRIDGE_OWNERSHIP"] = "group"
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
	s.simulate()
	return s, paths
}

// manySession is the session time-out where many streams keep the machine busy.
const manySession = 3 * time.Second

// scriptStreams has processes come and go with different streams of the trio.
func scriptStreams(s *stage) {
	t := s.t
	t.Helper()
	s.settings["BRIDGE_STREAMS"] = "events,sessions,users"
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

// crowd is three processes with the same streams, each with a file of its own.
type crowd struct {
	s       *stage
	random  *rand.Rand
	names   []string // of the streams
	slots   [3]place
	ways    map[string]int // how often a turn went which way
	flowing []time.Duration
}

// place is a process of a crowd.
type place struct {
	run    *program
	file   string // of BRIDGE_CONFIG
	listed []string
	kind   string // BRIDGE_OWNERSHIP
	at     string // the point that it is to die at, if any
}

func newCrowd(s *stage, names []string, seed uint64) *crowd {
	s.t.Helper()
	c := &crowd{s: s, random: rand.New(rand.NewPCG(seed, 6)), names: names, ways: make(map[string]int)}
	for i := range c.slots {
		c.slots[i] = place{file: filepath.Join(s.t.TempDir(), "streams.yaml"), kind: "group"}
		c.list(i, names)
		c.start(i)
	}
	c.awaitFlow()
	return c
}

// list writes the file of a process.
func (c *crowd) list(i int, names []string) {
	c.s.t.Helper()
	text := "streams:\n"
	for _, name := range names {
		text += "  " + name + ":\n"
	}
	if err := os.WriteFile(c.slots[i].file, []byte(text), 0o600); err != nil {
		c.s.t.Fatal(err)
	}
	c.slots[i].listed = names
}

// start starts a process, at times as a static member, at times to die at some point of
// the protocol.
func (c *crowd) start(i int) {
	c.s.t.Helper()
	p, was := &c.slots[i], maps.Clone(c.s.settings)
	defer func() { c.s.settings = was }()
	delete(c.s.settings, "BRIDGE_STREAMS")
	c.s.settings["BRIDGE_CONFIG"], c.s.settings["BRIDGE_OWNERSHIP"] = p.file, p.kind
	p.at = ""
	if c.random.IntN(4) == 0 {
		p.at = nthOf(c.random, pick(c.random, points), 30*len(c.names))
		c.s.settings["PROOF_CRASH"] = p.at
	}
	id := ""
	if c.random.IntN(2) == 0 {
		id = fmt.Sprint(i)
	}
	p.run = c.s.bridgeNamed(id)
}

// one has one of the processes end and start, or pause for longer than a session, or
// list other streams.
func (c *crowd) one() {
	c.s.t.Helper()
	passes(time.Duration(c.random.Int64N(int64(time.Second))))
	i := c.random.IntN(len(c.slots))
	way := pick(c.random, []string{"killed", "killed", "stopped", "paused", "reloaded", "kind changed"})
	if way == "paused" && !servers.Real(c.s.t) { // whom embedded Kafka lets all others wait for
		way = "killed"
	}
	p := &c.slots[i]
	if !p.run.running() {
		way = "dead at a point"
	}
	c.ways[way]++
	began := time.Now()
	switch way {
	case "paused":
		p.run.signal(syscall.SIGSTOP)
		passes(2 * manySession)
		p.run.signal(syscall.SIGCONT)
	case "reloaded":
		names := slices.Clone(c.names)
		if len(p.listed) == len(names) {
			c.random.Shuffle(len(names), func(a, b int) { names[a], names[b] = names[b], names[a] })
			names = names[len(names)/3:]
		}
		c.list(i, names)
		p.run.signal(syscall.SIGHUP)
	case "kind changed":
		p.kind = map[string]string{"group": "stream", "stream": "group"}[p.kind]
		c.end(i, syscall.SIGTERM)
		c.start(i)
	case "stopped":
		c.end(i, syscall.SIGTERM)
		c.start(i)
	default:
		c.end(i, syscall.SIGKILL)
		c.start(i)
	}
	if c.random.IntN(3) == 0 {
		return // the next one follows at once
	}
	c.awaitFlow()
	c.flowing = append(c.flowing, time.Since(began))
}

// end ends a process.
func (c *crowd) end(i int, by syscall.Signal) {
	c.s.t.Helper()
	c.slots[i].run.end(by, c.slots[i].at != "")
}

// stop ends all processes in order.
func (c *crowd) stop() {
	c.s.t.Helper()
	for i := range c.slots {
		c.end(i, syscall.SIGTERM)
	}
}

// newestOf finds the time of the newest event that a process knows of a stream. (A counter
// of a stream that a reload has added says 0 for a minute.)
var newestOf = regexp.MustCompile(`(?m)^exportbridge_last_event_timestamp_seconds\{.*stream="([^"]+)".*\} (\S+)$`)

// awaitFlow waits until each stream that some process lists has published more. A process
// that was to die at a point and did is started again.
func (c *crowd) awaitFlow() {
	c.s.t.Helper()
	had, flows := make(map[string]float64), make(map[string]bool)
	eventually(c.s.t, 2*outageTimeout, "all streams to flow", func() bool {
		now := make(map[string]float64)
		for i := range c.slots {
			p := &c.slots[i]
			if !p.run.running() {
				c.ways["dead at a point"]++
				c.end(i, syscall.SIGKILL)
				c.start(i)
			}
			_, scraped := get(p.run.ops, "/metrics")
			for _, name := range p.listed {
				now[name] += 0
			}
			for _, found := range newestOf.FindAllSubmatch(scraped, -1) {
				name := string(found[1])
				if at, err := strconv.ParseFloat(string(found[2]), 64); err == nil && slices.Contains(p.listed, name) {
					now[name] = max(now[name], at)
				}
			}
		}
		all := true
		for name, at := range now {
			was := had[name]
			had[name] = max(was, at)
			flows[name] = flows[name] || was > 0 && at > was
			all = all && flows[name]
		}
		return all
	})
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
