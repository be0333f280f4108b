//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
)

// eachDelivery runs a test in both.
func eachDelivery(t *testing.T, test func(t *testing.T, mode bridge.Mode)) {
	for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

// remake deletes the stage's topic and makes it again, by an operator's means.
func (s *stage) remake() *program {
	s.t.Helper()
	s.deleteTopic(s.topic)
	p, _ := s.command(0, "topics", "create", "--execute")
	return p
}

// wantTopicLost wants check to name the loss, with the choices.
func (s *stage) wantTopicLost(words string) {
	s.t.Helper()
	p, _ := s.command(3, "check", "--only", "kafka,redis")
	for _, want := range []string{"FAIL", words, "cursor reset --to-earliest", "--to-current"} {
		if !bytes.Contains(p.stdout(), []byte(want)) {
			s.t.Errorf("check says\n%s\nwant %q in it", p.stdout(), want)
		}
	}
}

// TestE2ETopicMadeAgain deletes the topic under a running bridge, follows the
// hint, and wants the loss to be loud and nothing in the new topic until an
// operator has decided.
func TestE2ETopicMadeAgain(t *testing.T) {
	t.Parallel()
	eachDelivery(t, func(t *testing.T, mode bridge.Mode) {
		const n, rate = 2000, 20
		s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Rate: rate})
		s.deliver(mode)
		s.settings["EXPORT_POLL_INTERVAL"], s.settings["EXPORT_POLL_INTERVAL_MAX"] = "100ms", "100ms"
		s.simulate()
		run := s.run()
		s.awaitPublished(n + rate)
		p := s.remake()
		if said := string(p.stderr()); !strings.Contains(said, "records were published to it") ||
			!strings.Contains(said, "--to-earliest") || strings.Contains(said, "topics create") {
			t.Errorf("topics create says\n%s\nwant it to say what follows", said)
		}
		eventually(t, 2*stepTimeout, "the stream to be blocked", func() bool {
			code, body := s.get("/readyz")
			return code == 503 && bytes.Contains(body, []byte("topic"))
		})
		eventually(t, 2*stepTimeout, "the loss to be counted",
			func() bool { return s.metric("broker_data_losses_total") == 1 })
		if got := s.records(s.topic); got > 0 {
			t.Errorf("%d records are in the topic that was made again", got)
		}
		s.wantTopicLost("was deleted and recreated")
		if said := string(run.stderr()); !strings.Contains(said, "was deleted and recreated") {
			t.Errorf("run says\n%s\nwant it to name the loss", tail(run.stderr()))
		}
		s.command(0, "cursor", "reset", "--to-earliest", "--reason", "the topic was lost", "--execute")
		eventually(t, stepTimeout, "all to be published again", func() bool { return s.held(s.topic) >= n })
		run.stop()
		s.finish()
		c := s.read()
		c.wantAll(len(c.copies), 0)
		if len(c.copies) < n+rate {
			t.Errorf("%d events are in the topic, want at least %d", len(c.copies), n+rate)
		}
		s.command(0, "check", "--only", "kafka,redis")
		t.Logf("e2e: topic made again while running, %s: blocked, 0 records in it, after the reset %d events, %d twice",
			mode, len(c.copies), c.twice())
	})
}

// TestE2ETopicVanished deletes the topic of a stopped bridge: run does not make
// it again by itself, and topics create does so aloud.
func TestE2ETopicVanished(t *testing.T) {
	t.Parallel()
	eachDelivery(t, func(t *testing.T, mode bridge.Mode) {
		const n = 500
		s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
		s.deliver(mode)
		s.simulate()
		s.finish()
		s.deleteTopic(s.topic)
		s.wantBlocked("topic")
		found, err := s.admin().ListTopics(t.Context(), s.topic)
		if err != nil || found.Has(s.topic) {
			t.Fatalf("with KAFKA_CREATE_TOPICS=true run has made the topic again (%v)", err)
		}
		s.wantTopicLost("no longer exists")

		s.command(0, "topics", "create", "--execute")
		s.wantBlocked("topic")
		s.wantTopicLost("was deleted and recreated")
		if got := s.records(s.topic); got > 0 {
			t.Errorf("%d records are in the topic that was made again", got)
		}
		before := s.checkpoint()
		s.command(0, "cursor", "reset", "--to-current", "--execute")
		s.finish()
		if got := s.records(s.topic); got > 0 {
			t.Errorf("%d records are in the topic, want none: the stream stays where it was", got)
		}
		if after := s.checkpoint(); after.Cursor != before.Cursor || after.Events != before.Events {
			t.Errorf("the stream is at %s, %d events, want %s, %d", after.Cursor, after.Events, before.Cursor, before.Events)
		}
		p, _ := s.command(0, "cursor", "history", "--json")
		var entries []json.RawMessage
		if decode(t, p.stdout(), &entries); len(entries) < 2 {
			t.Errorf("the history has %d entries, want the reset and what was before it", len(entries))
		}
		s.command(0, "check", "--only", "kafka,redis")
		t.Logf("e2e: topic vanished while stopped, %s: not made again, blocked; accepted by a reset", mode)
	})
}

// TestE2ETopicTrimmed: what retention deletes is no loss, what somebody deletes
// is one.
func TestE2ETopicTrimmed(t *testing.T) {
	t.Parallel()
	for retention, blocked := range map[string]bool{"-1": true, "8760h": false} {
		t.Run(retention, func(t *testing.T) {
			t.Parallel()
			const n = 500
			s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
			s.settings["KAFKA_RETENTION"] = retention
			s.simulate()
			s.finish()
			offsets := make(kadm.Offsets)
			for partition, end := range s.ends(s.topic) {
				offsets.Add(kadm.Offset{Topic: s.topic, Partition: partition, At: end / 2})
			}
			must.Get(s.admin().DeleteRecords(t.Context(), offsets))(t)
			if !blocked {
				s.finish()
				s.command(0, "check", "--only", "kafka,redis")
				return
			}
			s.wantBlocked("topic")
			s.wantTopicLost("although its retention is unlimited")
		})
	}
}

// TestE2ETopicGrows adds partitions: said once, counted, and shown by check.
func TestE2ETopicGrows(t *testing.T) {
	t.Parallel()
	const n = 500
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.simulate()
	s.finish()
	must.Get(s.admin().UpdatePartitions(t.Context(), 7, s.topic))(t)
	run := s.run()
	eventually(t, stepTimeout, "the growth to be counted",
		func() bool { return s.metric("topic_partition_changes_total") == 1 })
	run.stop()
	if said := bytes.Count(run.stderr(), []byte("partitions added")); said != 1 {
		t.Errorf("said %d times, want once:\n%s", said, tail(run.stderr()))
	}
	again := s.run()
	s.awaitState("idle")
	if got := s.metric("topic_partition_changes_total"); got != 0 {
		t.Errorf("the next process counts it again: %v", got)
	}
	again.stop()
	p, _ := s.command(0, "check", "--only", "kafka,redis")
	if !bytes.Contains(p.stdout(), []byte("7 partitions; it had 3 until "+time.Now().UTC().Format("2006-01-02"))) {
		t.Errorf("check says\n%s\nwant it to tell the growth", p.stdout())
	}
}

// TestE2EJobTopicMadeAgain: a backfill's next window does not begin in a topic
// that lacks the windows before.
func TestE2EJobTopicMadeAgain(t *testing.T) {
	t.Parallel()
	const n = 2000
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, Latency: 50 * time.Millisecond})
	s.settings["EXPORT_PAGE_SIZE"] = "20"
	s.simulate()
	again := s.topic + "-again"
	s.command(0, "topics", "create", "--execute")
	p := s.start("replay", "--from", s.timeOf(0), "--to", s.timeOf(n-1), "--topic", again, "--windows", "4",
		"--parallel", "1", "--execute")
	id := s.jobID(p)
	eventually(t, stepTimeout, "the replay to publish", func() bool { return s.committed(again) > 20 })
	p.kill()
	s.deleteTopic(again)
	forEver := "-1"
	must.Get(s.admin().CreateTopic(t.Context(), 3, -1, map[string]*string{"retention.ms": &forEver},
		again))(t)
	resumed := s.start("replay", "--resume", id, "--execute")
	resumed.wantExit(5, 2*stepTimeout)
	if said := string(resumed.stderr()); !strings.Contains(said, "recreated since the job began") ||
		!strings.Contains(said, "backfill cancel "+id) {
		t.Errorf("replay --resume says\n%s", tail(resumed.stderr()))
	}
}

// TestE2EKafkaVersion wants check to say which promise the brokers allow.
func TestE2EKafkaVersion(t *testing.T) {
	t.Parallel()
	if !servers.Real(t) {
		t.Skip("run with make test-real or make test-kafka")
	}
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 100})
	s.simulate()
	s.finish()
	p, _ := s.command(0, "check", "--only", "kafka")
	want := "transaction.version 2"
	if servers.SharedEpochs() {
		want = "after a crash a late EndTxn may duplicate events; none are lost"
	}
	if !bytes.Contains(p.stdout(), []byte(want)) {
		t.Errorf("check says\n%s\nwant %q in it", p.stdout(), want)
	}
	t.Logf("e2e: check on Apache Kafka %s:\n%s", os.Getenv("TEST_KAFKA_VERSION"), p.stdout())
}
