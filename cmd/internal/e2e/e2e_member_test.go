//go:build unix

package e2e_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// TestE2ELiveMember: a process that owns the stream and says nothing in Redis is
// not taken for dead. A command waits for it and gives up; it takes the stream
// only when nobody is in the group.
func TestE2ELiveMember(t *testing.T) {
	t.Parallel()
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: 100})
	s.simulate()
	s.finish()
	sink, tenure := s.member()
	last := must.Get(sink.Recover(t.Context(), tenure.Confirm))(t)
	p, _ := s.command(1, "pause", "--timeout", "3s")
	s.wantSaid(p, "no acknowledgement within 3s", "is withdrawn, nothing was changed")
	next := last
	next.Kind, next.WrittenAt = bridge.KindHeartbeat, time.Now().UnixMilli()
	next.Seq++
	if _, err := sink.Publish(t.Context(), bridge.Batch{Checkpoint: next, From: last}); err != nil {
		t.Errorf("the member's session after the command: %v", err)
	}
	tenure.Release()
	p, _ = s.command(0, "pause", "--timeout", "30s")
	s.wantSaid(p, "acknowledged by this command")
	if c := s.checkpoint(); c.Kind != bridge.KindPause || c.Change == nil || c.Change.From != next.Version {
		t.Errorf("the stream is at %s %s after %+v, want a pause after the member's %s", c.Version, c.Kind, c.Change,
			next.Version)
	}
}

// TestE2ETwoGroups: two deployments fence each other until one of them is
// blocked. It says why it applies nothing, and resumes when the other one stops.
func TestE2ETwoGroups(t *testing.T) {
	t.Parallel()
	s := newStage(t, startServers(t, owned{quick: true}), exportsim.Config{Rate: 50})
	group := s.settings["BRIDGE_GROUP"]
	works, blocked, prefix := s.fight("-other")
	s.settings["CURSOR_PREFIX"] = prefix
	p, took := s.command(1, "pause", "--timeout", "60s")
	s.wantSaid(p, "the stream applies no requests", "is blocked (owner): fenced 3 times in a row by group "+group,
		"BRIDGE_GROUP")
	if took > 20*time.Second {
		t.Errorf("the command that nobody answers took %s", took)
	}
	works.signal(syscall.SIGTERM)
	works.wantExit(0, outageTimeout)
	stopped := time.Now()
	had := blocked.published()
	blocked.awaitMore(had)
	t.Logf("resumed %s after the other bridge stopped", time.Since(stopped).Round(100*time.Millisecond))
}

// TestE2ETwoGroupsOnOneRedis: the one of two deployments that works is shown, and
// applies every request.
func TestE2ETwoGroupsOnOneRedis(t *testing.T) {
	t.Parallel()
	s := newStage(t, startServers(t, owned{quick: true}), exportsim.Config{Rate: 50})
	s.fight("")
	for range 3 {
		p, _ := s.command(0, "pause", "--timeout", "60s")
		s.wantSaid(p, "acknowledged by ")
		s.command(0, "resume", "--timeout", "60s")
	}
}

// fight starts two deployments on the stream and waits until one of them is
// blocked, whose CURSOR_PREFIX it returns; the second one's ends with other.
func (s *stage) fight(other string) (works, blocked *program, prefix string) {
	s.t.Helper()
	s.simulate()
	prefix = s.settings["CURSOR_PREFIX"]
	blocked = s.bridgeNamed("one")
	blocked.awaitMore(0)
	s.settings["CURSOR_PREFIX"] += other
	s.settings["BRIDGE_GROUP"] += "-other"
	works = s.bridgeNamed("other")
	eventually(s.t, outageTimeout, "one of the two to be blocked", func() bool {
		if works.inState("blocked") {
			blocked, works, prefix = works, blocked, s.settings["CURSOR_PREFIX"]
		}
		return blocked.inState("blocked")
	})
	return works, blocked, prefix
}

// member makes the test a process of the stream's group, which owns the stream.
func (s *stage) member() (*kafkasink.Sink, bridge.Ownership) {
	s.t.Helper()
	cfg := kafkastream.DefaultConfig()
	cfg.Stream, cfg.Resource, cfg.Mode = "events", "events", bridge.ExactlyOnce
	cfg.Brokers, cfg.Topic = strings.Split(s.settings["KAFKA_BROKERS"], ","), s.topic
	cfg.CheckpointTopic, cfg.Group = s.settings["KAFKA_CHECKPOINT_TOPIC"], s.settings["BRIDGE_GROUP"]
	sink := must.Get(cfg.Sink())(s.t)
	s.t.Cleanup(sink.Close)
	group := cfg.Ownership().Owner()
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
		defer cancel()
		if err := group.Close(ctx); err != nil {
			s.t.Errorf("leave the group: %v", err)
		}
	})
	tenure := must.Get(group.Acquire(s.t.Context()))(s.t)
	return sink, tenure
}
