package kafkasink_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// exactly makes the configuration one of exactly-once delivery.
func exactly(c *kafkastream.Config) { c.Mode = bridge.ExactlyOnce }

// checkpoint is the state after commit seq of epoch 1.
func checkpoint(cfg kafkastream.Config, seq int) bridge.Checkpoint {
	return bridge.Checkpoint{
		Format: bridge.CheckpointFormat, Stream: cfg.Stream, Mode: cfg.Mode,
		Version: bridge.Version{Epoch: 1, Seq: int64(seq)},
		Kind:    bridge.KindData, Cursor: fmt.Sprint("c", seq), Origin: bridge.Origin{Resource: "events"}, Session: "s",
	}
}

// batch has events for all partitions, and commit seq's checkpoint.
func batch(cfg kafkastream.Config, seq int) bridgetest.Load {
	var events []bridge.Event
	for i := range 20 {
		events = append(events, event(fmt.Sprintf("b%d-%d", seq, i), fmt.Sprint("user", i)))
	}
	return bridgetest.Load{Pages: []*bridge.Page{page(events...)},
		Batch: bridge.Batch{Checkpoint: checkpoint(cfg, seq), From: checkpoint(cfg, seq-1)}}
}

func commit(t *testing.T, s *kafkasink.Sink, b bridgetest.Load) error {
	t.Helper()
	ctx := kafkatest.Context(t)
	_, err := b.Publish(ctx, s)
	return err
}

func mustCommit(t *testing.T, s *kafkasink.Sink, b bridgetest.Load) {
	t.Helper()
	must.Do(t, commit(t, s, b))
}

// recoverTo recovers and checks what comes back; seq -1 is none.
func recoverTo(t *testing.T, s *kafkasink.Sink, cfg kafkastream.Config, seq int) {
	t.Helper()
	ctx := kafkatest.Context(t)
	c, err := s.Recover(ctx, nil)
	switch {
	case seq < 0 && errors.Is(err, bridge.ErrNoCheckpoint):
	case seq < 0 || err != nil:
		t.Fatalf("recovered %s, %v; want commit %d", c.Version, err, seq)
	default:
		if diff := cmp.Diff(checkpoint(cfg, seq), c); diff != "" {
			t.Fatalf("recovered another checkpoint (-want +got):\n%s", diff)
		}
	}
}

// wantOnce checks that the topic holds the events of these batches, once each.
func wantOnce(t *testing.T, cfg kafkastream.Config, batches ...int) {
	t.Helper()
	want, got := map[string]int{}, map[string]int{}
	for _, seq := range batches {
		for i := range 20 {
			want[fmt.Sprintf("b%d-%d", seq, i)] = 1
		}
	}
	for _, r := range consume(t, cfg, cfg.Topic) {
		got[headersOf(r)["ce_id"]]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("topic differs (-want +got):\n%s", diff)
	}
}

// eachVersion runs a test on brokers of both kinds.
func eachVersion(t *testing.T, test func(*testing.T, *kfake.Cluster, kafkastream.Config)) {
	t.Parallel()
	for name, opts := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kafkatest.Fake(t, opts...)
			test(t, c, config(t, c.ListenAddrs(), exactly))
		})
	}
}

// TestOneRecordFails: the client would commit the rest.
func TestOneRecordFails(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config) {
		s := recovered(t, cfg)
		for seq, topic := range []string{cfg.Topic, cfg.CheckpointTopic} {
			c.Fault(refuse(topic, kerr.InvalidRecord, 1))
			kafkatest.AsFault(t, commit(t, s, batch(cfg, seq)), bridge.Transient, "")
			recoverTo(t, s, cfg, seq-1)
			mustCommit(t, s, batch(cfg, seq))
		}
		wantOnce(t, cfg, 0, 1)
	})
}

// TestCheckpointLast: where a late end of an earlier transaction may commit
// what there is of this one, the checkpoint waits for its events.
func TestCheckpointLast(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config) {
		s := recovered(t, cfg)
		version := must.Get(s.TransactionVersion(t.Context()))(t)
		seen := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: cfg.CheckpointTopic, Count: -1, Observe: true})
		held := c.Fault(refuse(cfg.Topic, kerr.NotEnoughReplicas, -1))
		result := started(func() error { return commit(t, s, batch(cfg, 0)) })
		must.Do(t, held.Wait(t.Context(), 3))
		if n := seen.Hits(); (n == 0) != (version < 2) {
			t.Errorf("version %d: %d requests with the checkpoint before its events were acknowledged", version, n)
		}
		held.Remove()
		must.Do(t, <-result)
		wantOnce(t, cfg, 0)
	})
}

// TestUnknownOutcome: the end of a transaction is not answered. Only the next
// session knows what became of it.
func TestUnknownOutcome(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config) {
		s := recovered(t, cfg)
		c.Fault(refuseEnd(cfg.CheckpointTopic+".events", kerr.UnknownServerError, 1))
		kafkatest.AsFault(t, commit(t, s, batch(cfg, 0)), bridge.Transient, "")
		if err := commit(t, s, batch(cfg, 0)); err == nil {
			t.Fatal("publish after an unknown outcome and without a recovery returned nil")
		}
		recoverTo(t, s, cfg, -1)
		mustCommit(t, s, batch(cfg, 0))
		loseEnd(t, c)
		kafkatest.AsFault(t, commit(t, s, batch(cfg, 1)), bridge.Transient, "")
		recoverTo(t, s, cfg, 1)
		wantOnce(t, cfg, 0, 1)
	})
}

// TestCutBeforeEnd: the process ends with a transaction open.
func TestCutBeforeEnd(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config) {
		s := recovered(t, cfg)
		held := c.Fault(refuse(cfg.CheckpointTopic, kerr.NotEnoughReplicas, -1))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		must.Fail(batch(cfg, 0).Publish(ctx, s))(t, context.DeadlineExceeded)
		held.Remove()
		recoverTo(t, s, cfg, -1)
		wantOnce(t, cfg)
	})
}

// TestShutdownWhileEnding: what has been asked of the brokers is waited for briefly,
// since only they can undo it.
func TestShutdownWhileEnding(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config) {
		s := recovered(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
			cancel()
			c.DropControl()
			return nil, nil, false
		})
		must.Get(batch(cfg, 0).Publish(ctx, s))(t)
		recoverTo(t, s, cfg, 0)
		wantOnce(t, cfg, 0)
	})
}

// TestSlowCoordinator: what brokers say while they settle things is no error.
func TestSlowCoordinator(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config) {
		s := open(t, cfg)
		for _, key := range []kmsg.Key{kmsg.InitProducerID, kmsg.EndTxn} {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, TxnID: cfg.CheckpointTopic + ".events",
				Err: kerr.ConcurrentTransactions, Count: 5})
		}
		recoverTo(t, s, cfg, -1)
		c.Fault(refuseEnd(cfg.CheckpointTopic+".events", kerr.ConcurrentTransactions, 5))
		mustCommit(t, s, batch(cfg, 0))
		wantOnce(t, cfg, 0)
	})
}

// TestFenced: a newer session ends the older one, which returns ErrFenced.
func TestFenced(t *testing.T) {
	test := func(t *testing.T, cfg kafkastream.Config) {
		older, newer := open(t, cfg), open(t, cfg)
		recoverTo(t, older, cfg, -1)
		mustCommit(t, older, batch(cfg, 0))
		recoverTo(t, newer, cfg, 0)
		err := commit(t, older, batch(cfg, 1))
		if f := kafkatest.AsFault(t, err, bridge.Transient, ""); !errors.Is(err, bridge.ErrFenced) || f.Code != "fenced" {
			t.Errorf("error %v with code %s, want ErrFenced", err, f.Code)
		}
		mustCommit(t, newer, batch(cfg, 1))
		recoverTo(t, older, cfg, 1) // fences in turn
		err = commit(t, newer, bridgetest.Load{Batch: bridge.Batch{Checkpoint: checkpoint(cfg, 2)}})
		must.Be(t, err, bridge.ErrFenced)
		wantOnce(t, cfg, 0, 1)
	}
	eachVersion(t, func(t *testing.T, _ *kfake.Cluster, cfg kafkastream.Config) { test(t, cfg) })
	t.Run("on Kafka", func(t *testing.T) {
		servers.NeedReal(t)
		t.Parallel()
		test(t, config(t, kafkatest.Brokers(t), exactly))
	})
}

// TestFencedAtTheEnd: a session whose transaction another session has ended is fenced.
func TestFencedAtTheEnd(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config) {
		s := recovered(t, cfg)
		c.Fault(refuseEnd(cfg.CheckpointTopic+".events", kerr.InvalidTxnState, 1))
		err := commit(t, s, batch(cfg, 0))
		if f := kafkatest.AsFault(t, err, bridge.Transient, ""); !errors.Is(err, bridge.ErrFenced) || f.Code != "fenced" {
			t.Errorf("error %v with code %s, want ErrFenced", err, f.Code)
		}
	})
}

// TestFencedWhileRecovering: another session begins between the producer id
// and the barrier.
func TestFencedWhileRecovering(t *testing.T) {
	t.Parallel()
	cfg, _ := ready(t, exactly)
	other := open(t, cfg)
	_, err := open(t, cfg).Recover(t.Context(), func(context.Context) error {
		recoverTo(t, other, cfg, -1)
		return nil
	})
	must.Be(t, err, bridge.ErrFenced)
	must.Do(t, commit(t, other, batch(cfg, 0)))
}

// TestHealedClient: where a broker no longer knows a producer and has deleted
// all that it sent, the client takes a new epoch and sends again. The brokers
// have aborted what they had acknowledged until then: to commit the rest would
// lose it.
func TestHealedClient(t *testing.T) {
	t.Parallel()
	// Not a strict one: this healing Apache Kafka allows, after a time-out.
	c := must.Get(kfake.NewCluster(kfake.NumBrokers(2)))(t)
	defer c.Close()
	cfg := config(t, c.ListenAddrs(), exactly)
	s := recovered(t, cfg)
	for p := range int32(3) {
		c.MoveTopicPartition(cfg.Topic, p, 0)
	}
	c.MoveTopicPartition(cfg.CheckpointTopic, kafkasink.CheckpointPartition(cfg.Stream), 1)
	mustCommit(t, s, batch(cfg, 0))
	before := length(c, cfg.Topic)
	forgotten := false
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if c.CurrentNode() != 1 {
			return nil, nil, false
		}
		c.SleepControl(func() { // until the events are in the transaction
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for length(c, cfg.Topic) < before+20 && t.Context().Err() == nil {
				<-tick.C
			}
		})
		forgotten = true
		return forget(req.(*kmsg.ProduceRequest)), nil, true
	})
	f := kafkatest.AsFault(t, commit(t, s, batch(cfg, 1)), bridge.Transient, "")
	if !forgotten || f.Code != "producer_changed" {
		t.Errorf("fault %v with code %s, want producer_changed", f, f.Code)
	}
	recoverTo(t, s, cfg, 0)
	mustCommit(t, s, batch(cfg, 1))
	wantOnce(t, cfg, 0, 1)
}

// length returns the number of records in a topic, control records included.
func length(c *kfake.Cluster, topic string) (n int64) {
	for _, p := range c.PartitionInfos(topic) {
		n += p.HighWatermark
	}
	return n
}

// forget answers that the producer is unknown, and all that it sent deleted.
func forget(req *kmsg.ProduceRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	answer := kmsg.NewProduceResponseTopic()
	answer.Topic, answer.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
	part := kmsg.NewProduceResponseTopicPartition()
	part.Partition, part.ErrorCode = req.Topics[0].Partitions[0].Partition, kerr.UnknownProducerID.Code
	part.LogStartOffset = 1 << 40
	answer.Partitions = append(answer.Partitions, part)
	resp.Topics = append(resp.Topics, answer)
	return resp
}

func TestCheckpointTooLarge(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	kafkatest.CreateCheckpointTopic(t, cfg.Brokers, cfg.CheckpointTopic,
		map[string]*string{"max.message.bytes": new("20000")})
	s := recovered(t, cfg)
	b := batch(cfg, 0)
	b.Checkpoint.Cursor = strings.Repeat("c", 16<<10)
	if err := commit(t, s, b); err != nil {
		t.Fatal(err) // fits
	}
	b.Checkpoint.Seq, b.Checkpoint.Tail = 1, make(bridge.Tail, 300)
	f := kafkatest.AsFault(t, commit(t, s, b), bridge.Permanent, bridge.ReasonTopic)
	if !kafkatest.Mentions("21", "20000", cfg.CheckpointTopic)(f) || !strings.Contains(f.Hint, "max.message.bytes") {
		t.Errorf("fault %v, hint %q: want size, limit, topic and a command", f, f.Hint)
	}
	wantOnce(t, cfg, 0)
}

// TestTransactionTimesOut: the brokers abort a transaction that takes too long.
// That costs a new session and is no fencing.
func TestTransactionTimesOut(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *kfake.Cluster, cfg kafkastream.Config) {
		cfg.TransactionTimeout = 5 * time.Second
		s := recovered(t, cfg)
		held := c.Fault(refuse(cfg.CheckpointTopic, kerr.NotEnoughReplicas, -1))
		result := started(func() error { return commit(t, s, batch(cfg, 0)) })
		awaitState(t, cfg, "Ongoing")
		awaitState(t, cfg, "Empty", "CompleteAbort")
		held.Remove()
		err := <-result
		if f := kafkatest.AsFault(t, err, bridge.Transient, ""); errors.Is(err, bridge.ErrFenced) {
			t.Errorf("a time-out counts as fenced: %v, code %s", err, f.Code)
		}
		recoverTo(t, s, cfg, -1)
		mustCommit(t, s, batch(cfg, 0))
		wantOnce(t, cfg, 0)
	})
}

// awaitState waits until the brokers show the stream's transactional id in one
// of the states.
func awaitState(t *testing.T, cfg kafkastream.Config, states ...string) {
	t.Helper()
	client := connect(t, cfg)
	id := cfg.CheckpointTopic + "." + cfg.Stream
	kafkatest.Eventually(t, fmt.Sprintf("show %s as one of %v", id, states), func() (bool, error) {
		described, err := kadm.NewClient(client).DescribeTransactions(t.Context(), id)
		return slices.Contains(states, described[id].State), err
	})
}

// TestEpochRollsOver: producer epochs have 16 bits, and each session and each transaction
// takes one. Then the brokers give another producer id.
func TestEpochRollsOver(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Fake(t).ListenAddrs(), exactly)
	session := kmsg.NewInitProducerIDRequest()
	session.TransactionalID, session.TransactionTimeoutMillis = new(cfg.TransactionalID()), 60_000
	client := connect(t, cfg)
	producer := func() int64 {
		all := must.Get(kadm.NewClient(client).DescribeTransactions(t.Context(), cfg.TransactionalID()))(t)
		return must.Get(all.On(cfg.TransactionalID(), nil))(t).ProducerID
	}
	for range math.MaxInt16 - 100 {
		r := must.Get(session.RequestWith(t.Context(), client))(t)
		must.Do(t, kerr.ErrorForCode(r.ErrorCode))
	}
	s, first := recovered(t, cfg), producer()
	const transactions = 200
	for seq := range transactions {
		if _, err := s.Publish(t.Context(), bridge.Batch{Checkpoint: checkpoint(cfg, seq)}); err != nil {
			t.Fatalf("transaction %d: %v", seq, err)
		}
	}
	if producer() == first {
		t.Errorf("the producer id is still %d", first)
	}
	recoverTo(t, s, cfg, transactions-1)
}
