//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

func TestE2ERetention(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) {
		t.Skip("embedded Kafka deletes nothing by itself: run with make test-real")
	}
	const n, week = 5000, 7 * 24 * time.Hour
	k := servers.StartKafka(t, servers.KafkaOptions{RetentionCheck: 500 * time.Millisecond})
	r := servers.StartRedis(t, servers.RedisOptions{})
	v := &backends{brokers: strings.Join(k.Addrs(), ","), redisURL: r.URL()}
	month := time.Now().Add(-30 * 24 * time.Hour).Truncate(time.Second)

	t.Run("publish-time", func(t *testing.T) {
		s := newStage(t, v, exportsim.Config{Events: n, Start: month})
		s.settings["KAFKA_RETENTION"] = week.String()
		s.simulate()
		began := time.Now()
		run := s.run()
		s.awaitPublished(n)
		restamped := int(s.metric("events_restamped_total"))
		run.stop()
		// That checks take place shows in what they delete elsewhere.
		for range 3 {
			awaitDeletion(t, v.brokers, s.topic+"-control", month)
		}
		c := s.read()
		c.wantAll(n, 0)
		if restamped != n || c.oldest.Before(began.Add(-time.Second)) {
			t.Errorf("%d of %d events counted as restamped, the oldest record is of %s", restamped, n, c.oldest)
		}
		t.Logf("e2e: retention: %d events of last month in a topic of 7 days, %d lost after three deletions of others "+
			"as old, %d restamped",
			n, c.lost(n), restamped)
	})
	t.Run("stop", func(t *testing.T) {
		s := newStage(t, v, exportsim.Config{Events: n, Start: month})
		s.settings["KAFKA_RETENTION"], s.settings["BRIDGE_ON_EXPIRED"] = week.String(), "stop"
		s.simulate()
		run := s.run("--once")
		run.wantExit(5, stepTimeout)
		if !bytes.Contains(run.stderr(), []byte("blocked (retention)")) {
			t.Errorf("run says\n%s", tail(run.stderr()))
		}
		for partition, end := range s.ends(s.topic) {
			if end != 0 {
				t.Errorf("partition %d holds %d records, want none", partition, end)
			}
		}
		if t.Failed() {
			return
		}
		t.Logf("e2e: retention: BRIDGE_ON_EXPIRED=stop: blocked, exit 5, nothing published")
	})
}

// awaitDeletion writes a record of that time to a topic of 7 days and waits
// until the broker has deleted it.
func awaitDeletion(t *testing.T, brokers, topic string, at time.Time) {
	t.Helper()
	client := servers.Client(t, brokers)
	admin := kadm.NewClient(client)
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	retention := strconv.FormatInt((7 * 24 * time.Hour).Milliseconds(), 10)
	if _, err := admin.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": &retention}, topic); err != nil &&
		!strings.Contains(err.Error(), "TOPIC_ALREADY_EXISTS") {
		t.Fatal(err)
	}
	written := must.Get(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Timestamp: at, Value: []byte("old")}).First())(t)
	eventually(t, stepTimeout, "the broker to delete an old record", func() bool {
		starts := must.Get(admin.ListStartOffsets(ctx, topic))(t)
		o, _ := starts.Lookup(topic, 0)
		return o.Offset > written.Offset
	})
}

func TestE2EShutdown(t *testing.T) {
	t.Parallel()
	const n, some = 20_000, 1000
	s := newStage(t, startServers(t, owned{kafka: true}), exportsim.Config{Events: n, Latency: 10 * time.Millisecond})
	s.settings["EXPORT_PAGE_SIZE"] = "50"
	// So long may a transaction that an outage has left open hold readers up.
	s.settings["KAFKA_TRANSACTION_TIMEOUT"] = "10s"
	s.simulate()
	run := s.run()
	s.awaitPublished(some)
	took := run.stop()
	if took > stopMargin+loaded {
		t.Errorf("SIGTERM took %s", took)
	}
	stopped := int(s.checkpoint().Events)
	c := s.read()
	c.wantAll(stopped, 0) // what was published was committed
	before := c.twice()
	if stopped >= n {
		t.Errorf("all %d events were published before SIGTERM: it interrupted nothing", n)
	}

	// A batch that waits to be acknowledged is waited for. An outage that fails
	// the batch, or hits the end of its transaction, leaves nothing to wait for:
	// the bridge has dropped the batch, and says why.
	var up func()
	var asked time.Time
	for try := 1; ; try++ {
		run = s.run()
		s.awaitPublished(some)
		up = s.servers.kafkaDown()
		eventually(t, stepTimeout, "the bridge to meet the outage", func() bool {
			return s.metric("prefetched_pages") == 8 || s.metric("state", `state="running"`) == 0
		})
		asked = time.Now()
		run.signal(syscall.SIGTERM)
		passes(500 * time.Millisecond)
		if run.running() {
			break
		}
		if said := string(run.stderr()); !strings.Contains(said, "commit a transaction of") &&
			!strings.Contains(said, "publish to "+s.topic) {
			t.Fatal("a bridge that waits for Kafka did not wait for it at SIGTERM")
		}
		run.wantExit(0, stepTimeout)
		up()
		if try == 10 {
			t.Fatal("ten outages, and none left a batch to wait for")
		}
	}
	run.signal(syscall.SIGTERM)
	run.wantExit(130, 5*time.Second)
	second := time.Since(asked)
	up()
	s.finish()
	c = s.read()
	c.wantAll(n, s.copies(8*50))
	t.Logf("e2e: shutdown: SIGTERM at %d of %d events: exit 0 in %s, %d twice; second signal during an outage of "+
		"Kafka: exit 130 in %s, %d lost, %d twice",
		stopped, n, took.Round(time.Millisecond), before, second.Round(time.Millisecond), c.lost(n), c.twice())
}

func TestE2ESecrets(t *testing.T) {
	t.Parallel()
	const n, key = 500, "e2e-secret-4b7f9d-key"
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, APIKey: key})
	s.settings["EXPORT_API_KEY"], s.settings["LOG_LEVEL"] = key, "debug"
	s.settings["EXPORT_POLL_INTERVAL"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "100ms", "100ms"
	var seen bytes.Buffer
	look := func() {
		for _, path := range []string{"/metrics", "/readyz?verbose", "/livez"} {
			code, body := s.get(path)
			fmt.Fprintf(&seen, "%s %d\n%s\n", path, code, body)
		}
	}
	s.simulate()
	run := s.run()
	s.awaitPublished(n)
	s.sim.stop()
	s.awaitState("backoff")
	look()
	run.stop()
	s.command(0, "config", "show")
	s.command(0, "cursor", "show")
	s.command(0, "cursor", "history", "--json")

	// The key in the query: where errors name URLs, they would show it.
	s.settings["EXPORT_KEY_QUERY"] = "api_key"
	run = s.run()
	s.awaitState("backoff")
	look()
	s.simulate()
	s.awaitState("blocked") // the simulator takes it from the header only
	look()
	run.stop()
	delete(s.settings, "EXPORT_KEY_QUERY")

	// A key that is wrong is a secret all the same.
	const wrong = "e2e-secret-0c22aa-wrong"
	s.settings["EXPORT_API_KEY"] = wrong
	s.run("--once").wantExit(5, stepTimeout)
	s.settings["EXPORT_API_KEY"] = wrong + "\nsecond line"
	s.run("--once").wantExit(2, stepTimeout)

	files := 0
	clean := func(name string, content []byte) {
		for _, secret := range []string{key, wrong} {
			if i := bytes.Index(content, []byte(secret)); i >= 0 {
				t.Errorf("%s shows the key: %s", name, content[max(0, i-200):min(len(content), i+60)])
			}
		}
	}
	s.eachOutput(func(name string, content []byte) { files++; clean(name, content) })
	clean("HTTP", seen.Bytes())
	clean("Redis", s.redisDump())
	s.eachRecord(s.topic,
		func(r *kgo.Record) { clean("a record", fmt.Append(nil, string(r.Key), string(r.Value), r.Headers)) })
	if t.Failed() {
		return
	}
	t.Logf("e2e: secrets: the key is in none of %d files of output, %d bytes of HTTP answers, Redis and the topic",
		files, seen.Len())
}

// redisDump returns everything that Redis holds of the stage.
func (s *stage) redisDump() []byte {
	s.t.Helper()
	client := s.redis()
	ctx, cancel := context.WithTimeout(s.t.Context(), stepTimeout)
	defer cancel()
	var dump bytes.Buffer
	keys, err := client.Keys(ctx, s.topic+":*").Result()
	if err != nil || len(keys) == 0 {
		s.t.Errorf("Redis holds %d keys, %v", len(keys), err)
	}
	for _, key := range keys {
		fmt.Fprintln(&dump, key, client.HGetAll(ctx, key).Val(), client.Get(ctx, key).Val())
	}
	return dump.Bytes()
}

func TestE2EOutages(t *testing.T) {
	t.Parallel()
	n := int(size(t, "E2E_EVENTS", 6000, 50_000))
	const prefetch = 8
	pageSize := max(20, min(1000, n/120))
	// Only when Kafka goes is the outcome of a page unknown.
	copies := map[string]int{"kafka": prefetch * pageSize}
	each(t, servers.Real(t), []string{"kafka", "redis", "api"}, func(t *testing.T, server string) {
		s := newStage(t, startServers(t, owned{kafka: server == "kafka", redis: server == "redis"}),
			exportsim.Config{Events: n, Latency: 10 * time.Millisecond})
		s.settings["EXPORT_PAGE_SIZE"], s.settings["EXPORT_RETRY_MAX_INTERVAL"] = strconv.Itoa(pageSize), "2s"
		s.simulate()
		run := s.run()
		memory := run.memory()
		s.awaitPublished(n / 3)
		down := map[string]func() func(){
			"kafka": s.servers.kafkaDown, "redis": s.servers.redisDown,
			"api": func() func() { s.sim.kill(); return func() { s.simulate() } },
		}[server]
		broke := time.Now()
		up := down()
		dependency := fmt.Sprintf("dependency=%q", server)
		eventually(t, stepTimeout, "the status to say that "+server+" is down", func() bool {
			_, body := s.get("/metrics")
			return bytes.Contains(body, []byte("exportbridge_dependency_up{"+dependency)) &&
				s.metric("dependency_up", dependency) == 0
		})
		noticed := time.Since(broke)
		state := s.shownState(server)
		before := s.published()
		if code, _ := s.get("/livez"); code != 200 {
			t.Errorf("/livez without %s = %d, want 200", server, code)
		}
		if held := s.metric("prefetched_pages"); held > prefetch {
			t.Errorf("%.0f pages are held in memory without %s", held, server)
		}
		passes(2 * time.Second) // several tries must fail
		up()
		healed := time.Now()
		s.awaitPublished(min(n, max(before+1, n/2))) // without Redis it may have gone on to the end
		resumed := time.Since(healed)
		s.awaitState("idle")
		eventually(t, stepTimeout, "the status to say that "+server+" is up again", func() bool {
			return s.metric("dependency_up", dependency) == 1
		})
		run.stop()
		s.finish()
		c := s.read()
		c.wantAll(n, s.copies(copies[server]))
		peak := memory()
		if peak >= maxMemory {
			t.Errorf("run used %d MB, want less than %d", peak>>20, maxMemory>>20)
		}
		t.Logf("e2e: outage of %s: noticed in %s (%q), resumed %s after it was back, %d events, %d lost, %d twice, "+
			"peak memory %d MB",
			server, noticed.Round(time.Millisecond), state, resumed.Round(time.Millisecond), n, c.lost(n), c.twice(), peak>>20)
	})
}

// shownState waits until people are told that the bridge waits for the server:
// by cursor show, or while Redis is down by the bridge itself.
func (s *stage) shownState(server string) (state string) {
	s.t.Helper()
	eventually(s.t, stepTimeout, "the state to name "+server, func() bool {
		if server == "redis" {
			_, body := s.get("/readyz?verbose")
			state = strings.TrimSpace(string(body))
			return strings.Contains(state, "redis")
		}
		p, _ := s.command(0, "cursor", "show")
		for line := range strings.Lines(string(p.stdout())) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "state "); ok {
				state = strings.TrimSpace(rest)
			}
		}
		return strings.Contains(state, "retrying: "+server) || strings.HasPrefix(state, "retry in ")
	})
	return state
}
