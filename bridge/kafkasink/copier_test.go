package kafkasink_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// mirroring opens a Sink that copies checkpoints often.
func mirroring(t *testing.T, cfg kafkastream.Config) *kafkasink.Sink {
	t.Helper()
	s := open(t, cfg)
	s.MirrorEvery(20 * time.Millisecond)
	return s
}

// copies returns the mirror's records.
func copies(t *testing.T, cfg kafkastream.Config) (all []*kgo.Record) {
	t.Helper()
	for _, r := range consume(t, cfg, cfg.CheckpointTopic) {
		if string(r.Key) == cfg.Stream+"/mirror" {
			all = append(all, r)
		}
	}
	return all
}

// awaitCopy waits until the newest copy is that of commit seq.
func awaitCopy(t *testing.T, cfg kafkastream.Config, seq int) {
	t.Helper()
	kafkatest.Eventually(t, fmt.Sprint("have a copy of commit ", seq), func() (bool, error) {
		all := copies(t, cfg)
		if len(all) == 0 {
			return false, nil
		}
		c, err := bridge.DecodeCheckpoint(all[len(all)-1].Value)
		return c.Seq == int64(seq), err
	})
}

// TestMirror: the checkpoint that the store had before the last batch comes
// back, and every later session finds it, in either mode.
func TestMirror(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t))
	s := mirroring(t, cfg)
	recoverTo(t, s, cfg, -1)
	publish(t, s, page(event("e", "u"))) // From is no checkpoint yet
	for seq := 1; seq < 4; seq++ {
		mustCommit(t, s, batch(cfg, seq))
	}
	awaitCopy(t, cfg, 2)
	if diff := cmp.Diff(checkpoint(cfg, 2), recoveredFrom(t, s)); diff != "" {
		t.Errorf("recovered another checkpoint (-want +got):\n%s", diff)
	}
	before := len(copies(t, cfg))
	mustCommit(t, s, bridgetest.Load{Batch: bridge.Batch{Checkpoint: checkpoint(cfg, 3), From: checkpoint(cfg, 2)}})
	mustCommit(t, s, bridgetest.Load{Batch: bridge.Batch{Checkpoint: checkpoint(cfg, 4), From: checkpoint(cfg, 3)}})
	awaitCopy(t, cfg, 3)
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; { // ten turns
		mustCommit(t, s, bridgetest.Load{Batch: bridge.Batch{Checkpoint: checkpoint(cfg, 4), From: checkpoint(cfg, 3)}})
	}
	if after := len(copies(t, cfg)); after != before+1 {
		t.Errorf("%d copies after %d: the same checkpoint was copied again", after, before)
	}
	s.Close()
	now := cfg
	now.Mode = bridge.ExactlyOnce
	other := open(t, now)
	if got := recoveredFrom(t, other); got.Seq != 3 {
		t.Errorf("exactly-once mode recovers %s, want the mirror's 1.3", got.Version)
	}
	next := checkpoint(now, 0)
	next.Epoch = 2
	mustCommit(t, other, bridgetest.Load{Batch: bridge.Batch{Checkpoint: next}})
	if got := recoveredFrom(t, s); got.Epoch != 2 {
		t.Errorf("at-least-once mode recovers %s, want 2.0 of the other mode", got.Version)
	}
}

func recoveredFrom(t *testing.T, s *kafkasink.Sink) bridge.Checkpoint {
	t.Helper()
	return must.Get(s.Recover(t.Context(), nil))(t)
}

// TestMirrorFenced: a process that lost the stream stops publishing, idle or
// in the middle of a batch.
func TestMirrorFenced(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"idle": false, "in a batch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Fake(t)
			cfg := config(t, cluster.ListenAddrs())
			older := mirroring(t, cfg)
			recoverTo(t, older, cfg, -1)
			mustCommit(t, older, batch(cfg, 1))
			awaitCopy(t, cfg, 0)
			recoverTo(t, open(t, cfg), cfg, 0)
			if busy {
				cluster.Fault(refuse(cfg.Topic, kerr.NotEnoughReplicas, -1))
			}
			var err error
			for seq := 2; err == nil && seq < 1_000_000; seq++ {
				err = commit(t, older, bridgetest.Load{
					Pages: batch(cfg, seq).Pages, Batch: bridge.Batch{From: checkpoint(cfg, seq-1)},
				})
			}
			if f := kafkatest.AsFault(t, err, bridge.Transient, ""); !errors.Is(err, bridge.ErrFenced) || f.Code != "fenced" {
				t.Errorf("publish returned %v with code %s, want ErrFenced", err, f.Code)
			}
			if err := commit(t, older, batch(cfg, 2)); err == nil {
				t.Error("publish after that and without a recovery returned nil")
			}
			recoverTo(t, older, cfg, 0)
		})
	}
}

// TestMirrorDoesNotHold: while the checkpoint topic takes nothing, events are
// published, and a quiet stream goes on.
func TestMirrorDoesNotHold(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	cfg := config(t, cluster.ListenAddrs())
	s := mirroring(t, cfg)
	recoverTo(t, s, cfg, -1)
	mustCommit(t, s, batch(cfg, 1))
	awaitCopy(t, cfg, 0)
	held := cluster.Fault(refuse(cfg.CheckpointTopic, kerr.NotEnoughReplicas, -1))
	for seq := 2; held.Hits() < 2; seq++ {
		mustCommit(t, s, batch(cfg, seq))
	}
	quiet, cancel := context.WithTimeout(t.Context(), kafkatest.Patience/2)
	defer cancel()
	heartbeat := bridge.Batch{Checkpoint: checkpoint(cfg, 1000), From: checkpoint(cfg, 999)}
	if _, err := s.Publish(quiet, heartbeat); err != nil {
		t.Errorf("a heartbeat returned %v", err)
	}
	began := time.Now()
	s.Close() // waits for the mirror
	if took := time.Since(began); took > kafkatest.Patience/2 {
		t.Errorf("close took %s", took)
	}
	held.Remove()
	recoverTo(t, s, cfg, 0)
}

// TestMirrorStalls: while Kafka takes no copy, it does not count as healthy: neither where events
// are published nevertheless, nor where the first commit of an epoch waits.
func TestMirrorStalls(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	cfg := config(t, cluster.ListenAddrs())
	var seen kafkatest.Reports
	cfg.Report = seen.Add
	s := mirroring(t, cfg)
	recoverTo(t, s, cfg, -1)
	stalls := kafkatest.Mentions("copy the checkpoint to topic " + cfg.CheckpointTopic)
	held := cluster.Fault(refuse(cfg.CheckpointTopic, kerr.NotEnoughReplicas, -1))
	seq := 0
	commitUntil := func(what string, suits func(error) bool) {
		t.Helper()
		kafkatest.Eventually(t, what, func() (bool, error) {
			seq++
			mustCommit(t, s, batch(cfg, seq))
			all := seen.Seen()
			return suits(all[len(all)-1]), nil
		})
	}
	commitUntil("report the copy", stalls)
	held.Remove()
	commitUntil("report that copies are written", kafkatest.IsNil)

	held = cluster.Fault(refuse(cfg.CheckpointTopic, kerr.NotEnoughReplicas, -1))
	reset := checkpoint(cfg, 0)
	reset.Epoch, reset.Kind = 7, bridge.KindReset
	done := make(chan error, 1)
	go func() { done <- commit(t, s, bridgetest.Load{Batch: bridge.Batch{Checkpoint: reset}}) }()
	seen.Await(t, "the copy that the reset waits for", stalls)
	held.Remove()
	must.Do(t, kafkatest.Receive(t, done, "the reset"))
	seen.Await(t, "a copy that is written", kafkatest.IsNil)
}

// TestMirrorLoggedOut: a copy that waits for a login says what to do about the login.
func TestMirrorLoggedOut(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "secret"))
	cfg := config(t, cluster.ListenAddrs(), func(c *kafkastream.Config) {
		c.SASLMechanism, c.SASLUsername, c.SASLPassword, c.SASLInsecure = "PLAIN", "alice", "secret", true
	})
	var seen kafkatest.Reports
	cfg.Report = seen.Add
	s := mirroring(t, cfg)
	recoverTo(t, s, cfg, -1)
	refused := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, Err: kerr.SaslAuthenticationFailed, Count: -1})
	cluster.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("the broker restarts"), true
	})
	reset := checkpoint(cfg, 0)
	reset.Epoch, reset.Kind = 7, bridge.KindReset
	done := make(chan error, 1)
	go func() { done <- commit(t, s, bridgetest.Load{Batch: bridge.Batch{Checkpoint: reset}}) }()
	seen.Await(t, "the hint of the login", func(err error) bool {
		return strings.Contains(bridge.FaultOf(err).Hint, "KAFKA_SASL_PASSWORD")
	})
	refused.Remove()
	must.Do(t, kafkatest.Receive(t, done, "the reset"))
}

// TestMirrorTooLarge: a copy that does not fit is left out.
func TestMirrorTooLarge(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t))
	kafkatest.CreateCheckpointTopic(t, cfg.Brokers, cfg.CheckpointTopic,
		map[string]*string{"max.message.bytes": new("20000")})
	s := mirroring(t, cfg)
	recoverTo(t, s, cfg, -1)
	large := batch(cfg, 1)
	large.From.Tail = make(bridge.Tail, 2000)
	for range 3 {
		mustCommit(t, s, large)
	}
	mustCommit(t, s, batch(cfg, 2))
	awaitCopy(t, cfg, 1)
}

// TestEpochIsIntroduced: the first checkpoint of an epoch is in Kafka before
// Publish returns, and the older ones that come after it do not replace it.
func TestEpochIsIntroduced(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t))
	s := mirroring(t, cfg)
	recoverTo(t, s, cfg, -1)
	reset := checkpoint(cfg, 0)
	reset.Epoch, reset.Kind = 7, bridge.KindReset
	mustCommit(t, s, bridgetest.Load{Batch: bridge.Batch{Checkpoint: reset, From: checkpoint(cfg, 3)}})
	s.Close()
	if got := recoveredFrom(t, s); got.Version != reset.Version {
		t.Errorf("recovered %s, want %s: the epoch was not there when Publish returned", got.Version, reset.Version)
	}
	recoveredFrom(t, open(t, cfg)) // somebody else takes the stream
	reset.Epoch = 8
	again := bridgetest.Load{Batch: bridge.Batch{Checkpoint: reset, From: checkpoint(cfg, 3)}}
	must.Be(t, commit(t, s, again), bridge.ErrFenced)
}
