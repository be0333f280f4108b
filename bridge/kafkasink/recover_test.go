package kafkasink_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/kafkaadmin"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

// TestCheckpointContract: the checkpoint topic is read by other versions of
// this program, and by people.
func TestCheckpointContract(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t, exactly)
	mustCommit(t, s, batch(cfg, 0))
	var got []golden
	for _, r := range consume(t, cfg, cfg.CheckpointTopic) {
		g := goldenOf(r, cfg)
		if strings.HasSuffix(string(r.Key), "/barrier") {
			if len(r.Value) < 20 {
				t.Errorf("the barrier's value %q is not unique", r.Value)
			}
			g.Value = "UNIQUE"
		}
		got = append(got, g)
	}
	compareGolden(t, filepath.Join("testdata", "checkpoint-v1.json"), got)
}

// TestCheckpointPartition has the murmur2 values of Kafka's own tests.
func TestCheckpointPartition(t *testing.T) {
	t.Parallel()
	for name, hash := range map[string]int32{"21": -973932308, "foobar": -790332482,
		"a-little-bit-long-string": -985981536} {
		if got, want := kafkasink.CheckpointPartition(name), hash&0x7fffffff%16; got != want {
			t.Errorf("stream %q has partition %d, Kafka's partitioner says %d", name, got, want)
		}
	}
}

// TestOwnedAsked: the owner is asked once the stream is taken, and before the
// time that the barrier takes.
func TestOwnedAsked(t *testing.T) {
	t.Parallel()
	cfg, older := ready(t, exactly)
	notOurs := fmt.Errorf("member 7: %w", bridge.ErrNotOwner)
	asked := 0
	_, err := open(t, cfg).Recover(t.Context(), func(context.Context) error {
		asked++
		must.Be(t, commit(t, older, batch(cfg, 0)), bridge.ErrFenced)
		return notOurs
	})
	if !errors.Is(err, notOurs) || asked != 1 {
		t.Errorf("recover returned %v after asking %d times, want %v after one", err, asked, notOurs)
	}
	if got := len(consume(t, cfg, cfg.CheckpointTopic)); got != 1 {
		t.Errorf("%d records in the checkpoint topic, want the first barrier only", got)
	}
	recoverTo(t, older, cfg, -1)
	wantOnce(t, cfg)
}

// foreignTransaction opens a transaction on the stream's partition of the
// checkpoint topic and returns what commits it.
func foreignTransaction(t *testing.T, cfg kafkastream.Config, id string) (end func()) {
	t.Helper()
	client := connect(t, cfg, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionTimeout(2*kafkatest.Patience)) // no test waits for it
	must.Do(t, client.BeginTransaction())
	rec := &kgo.Record{Topic: cfg.CheckpointTopic, Partition: kafkasink.CheckpointPartition(cfg.Stream),
		Key: []byte("foreign"), Value: []byte("x")}
	must.Do(t, client.ProduceSync(t.Context(), rec).FirstErr())
	return func() {
		if err := client.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Errorf("end the foreign transaction: %v", err)
		}
	}
}

// TestHeldBack: another producer's open transaction hides the newest checkpoint.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	var seen kafkatest.Reports
	cfg, older := ready(t, exactly, reportTo(&seen))
	end := foreignTransaction(t, cfg, "somebody."+cfg.Topic)
	mustCommit(t, older, batch(cfg, 0))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := fmt.Sprintf("partition %d of %s", kafkasink.CheckpointPartition(cfg.Stream), cfg.CheckpointTopic)
	gaveUp := make(chan error, 1)
	impatient := open(t, cfg)
	go func() {
		_, err := impatient.Recover(ctx, nil)
		gaveUp <- err
	}()
	seen.Await(t, "who holds it back", kafkatest.Mentions(p, "somebody."+cfg.Topic))
	cancel()
	f := kafkatest.AsFault(t, <-gaveUp, bridge.Transient, "")
	if !kafkatest.Mentions(p, "producer ", "somebody."+cfg.Topic)(f) ||
		!strings.Contains(f.Hint, "kafka-transactions.sh") || !strings.Contains(f.Hint, "--start-offset") {
		t.Errorf("recover returned %v, hint %q", f, f.Hint)
	}

	var again kafkatest.Reports
	cfg.Report = again.Add
	s, result := open(t, cfg), make(chan error, 1)
	go func() {
		c, err := s.Recover(t.Context(), nil)
		if err == nil && c.Seq != 0 {
			err = fmt.Errorf("recovered %s", c.Version)
		}
		result <- err
	}()
	again.Await(t, "who holds it back", kafkatest.Mentions(p, "somebody."+cfg.Topic))
	select {
	case err := <-result:
		t.Fatalf("recover did not wait: %v", err)
	default:
	}
	end()
	select {
	case err := <-result:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(kafkatest.Patience):
		t.Fatal("recover did not go on")
	}
	mustCommit(t, s, batch(cfg, 1))
	wantOnce(t, cfg, 0, 1)
}

// TestHeldBackByOurs: the open transaction of a stream without an owner is aborted, that of a
// running stream is not.
func TestHeldBackByOurs(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]string{"nobody runs it": "", "it is run": "ours",
		"another group runs it": "another"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, _ := ready(t, exactly, func(c *kafkastream.Config) { c.Group = c.Topic })
			// A unique name: a group of another test with the same ending
			// would count as running the stream.
			killed := fmt.Sprint("killed", time.Now().UnixNano())
			foreignTransaction(t, cfg, cfg.CheckpointTopic+"."+killed)
			run := by != ""
			if run {
				group := cfg.Group
				if by == "another" {
					group = "other." + cfg.Group
				}
				member := joinGroup(t, cfg, group+"."+killed)
				defer member.Close()
			}
			ctx, cancel := context.WithTimeout(t.Context(), freeing(run))
			defer cancel()
			_, err := open(t, cfg).Recover(ctx, nil)
			if freed := errors.Is(err, bridge.ErrNoCheckpoint); freed == run {
				t.Errorf("recover returned %v", err)
			}
		})
	}
}

// TestHeldBackBesideAnAbsentBroker: a broker that does not answer hides no transaction of the others.
func TestHeldBackBesideAnAbsentBroker(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t, kfake.NumBrokers(3))
	cfg := config(t, c.ListenAddrs(), exactly, func(c *kafkastream.Config) { c.Group = c.Topic })
	recovered(t, cfg)
	killed := cfg.CheckpointTopic + ".killed"
	foreignTransaction(t, cfg, killed)
	coordinator := kadm.NewClient(connect(t, cfg)).FindTxnCoordinators(t.Context(), killed)[killed].NodeID
	for _, key := range []kmsg.Key{kmsg.ListTransactions, kmsg.ListGroups} { // which each broker is asked for
		c.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return nil, errors.New("away"), c.CurrentNode() == (coordinator+1)%3
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), freeing(false))
	defer cancel()
	if _, err := open(t, cfg).Recover(ctx, nil); !errors.Is(err, bridge.ErrNoCheckpoint) {
		t.Errorf("recover returned %v", err)
	}
}

// freeing is how long it is waited for the end of an open transaction: for
// longer than it takes to look whose it is, where it must not be ended.
func freeing(run bool) time.Duration {
	if run {
		return 8 * time.Second
	}
	return kafkatest.Patience
}

func joinGroup(t *testing.T, cfg kafkastream.Config, group string) *kgo.Client {
	t.Helper()
	joined := make(chan struct{})
	member := must.Get(kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(cfg.CheckpointTopic),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { close(joined) })))(t)
	go member.PollFetches(t.Context()) // ends with Close
	select {
	case <-joined:
	case <-time.After(kafkatest.Patience):
		t.Fatal("the member did not join")
	}
	return member
}

// TestCheckpointTopicUnusable: each wrong topic is refused with the command
// that repairs it.
func TestCheckpointTopicUnusable(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	for name, c := range map[string]struct {
		configs    map[string]*string
		partitions int32
		text, hint string
	}{
		"deleted with time": {map[string]*string{"cleanup.policy": new("delete")}, 16, "cleanup.policy delete",
			"--add-config cleanup.policy=compact"},
		"compacted and deleted": {map[string]*string{"cleanup.policy": new("compact,delete")}, 16, "cleanup.policy",
			"--add-config cleanup.policy=compact"},
		"too few partitions": {map[string]*string{"cleanup.policy": new("compact")}, 8, "8 partitions",
			"--partitions 16"},
		"more partitions": {map[string]*string{"cleanup.policy": new("compact")}, 20, "", ""},
		"small max.message.byte": {map[string]*string{"cleanup.policy": new("compact"), "max.message.bytes": new("1000")},
			16, "1000 bytes", "max.message.bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, addrs, exactly)
			made := cfg
			made.Partitions = c.partitions
			kafkatest.CreateTopic(t, made.Brokers, cfg.CheckpointTopic, made.Partitions, c.configs)
			s := open(t, cfg)
			if c.hint == "" {
				recoverTo(t, s, cfg, -1)
				mustCommit(t, s, batch(cfg, 0))
				recoverTo(t, s, cfg, 0)
				return
			}
			f := kafkatest.AsFault(t, tryRecover(t, s), bridge.Permanent, bridge.ReasonTopic)
			if !kafkatest.Mentions(cfg.CheckpointTopic, c.text)(f) || !strings.Contains(f.Hint, c.hint) {
				t.Errorf("fault %v, hint %q; want %q, %q", f, f.Hint, c.text, c.hint)
			}
			for _, found := range cfg.Needs().Check(t.Context()) {
				if found.Level == kafkaadmin.LevelFail && strings.Contains(found.Text, c.text) &&
					strings.Contains(found.Hint, c.hint) {
					return
				}
			}
			t.Error("check does not say so")
		})
	}
}

// TestCheckpointTopicLost: without the checkpoint topic, a stream that has published before
// must not begin again.
func TestCheckpointTopicLost(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.AtLeastOnce, bridge.ExactlyOnce} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			cfg, s := ready(t, inMode(mode))
			mustCommit(t, s, batch(cfg, 0))
			s.Close()
			deleteTopic(t, cfg, cfg.CheckpointTopic)
			f := kafkatest.AsFault(t, tryRecover(t, s), bridge.Permanent, bridge.ReasonTopic)
			if !kafkatest.Mentions(cfg.CheckpointTopic, cfg.Topic)(f) || f.HintCode != bridge.HintCheckpointTopicLost {
				t.Errorf("fault %v, advice %q", f, f.HintCode)
			}
			// The check says what run would say.
			needs := cfg.Needs()
			needs.CreateTopics = true
			if !slices.ContainsFunc(needs.Check(t.Context()), func(f kafkaadmin.Finding) bool {
				return f.Level == kafkaadmin.LevelFail && f.HintCode == bridge.HintCheckpointTopicLost
			}) {
				t.Error("check does not say that the checkpoints are lost")
			}
			if _, err := cfg.Needs().Create(t.Context()); err != nil { // what the hint says
				t.Fatal(err)
			}
			recoverTo(t, s, cfg, -1)
			other := cfg
			other.Stream, other.Topic = "other", cfg.Topic+".other"
			recoverTo(t, open(t, other), other, -1) // a new stream makes it by itself
		})
	}
}

// TestCheckpointTopicDeleted: the checkpoint topic is deleted while in use, and recreated.
func TestCheckpointTopicDeleted(t *testing.T) {
	test := func(t *testing.T, cfg kafkastream.Config, anew bool) {
		s := recovered(t, cfg)
		for seq := range 3 {
			mustCommit(t, s, batch(cfg, seq))
		}
		deleteTopic(t, cfg, cfg.CheckpointTopic)
		if anew {
			kafkatest.CreateCheckpointTopic(t, cfg.Brokers, cfg.CheckpointTopic, nil)
		}
		published := []int{0, 1, 2}
		err := commit(t, s, batch(cfg, 3))
		for seq := 4; err == nil; seq++ { // brokers may still have the old one for a moment
			if published = append(published, seq-1); seq > 500 {
				t.Fatal("checkpoints go to a topic that is not the one it was")
			}
			err = commit(t, s, batch(cfg, seq))
		}
		t.Logf("after %d more: %v", len(published)-3, err)
		if _, ok := errors.AsType[*bridge.Fault](err); !ok {
			t.Errorf("error %v is no fault", err)
		}
		wantOnce(t, cfg, published...)
		err = tryRecover(t, s)
		if anew && !errors.Is(err, bridge.ErrNoCheckpoint) || !anew && !kafkaclient.IsPermanent(err) {
			t.Errorf("recover returned %v", err)
		}
	}
	for name, anew := range map[string]bool{"deleted": false, "made anew": true} {
		t.Run(name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, _ *kfake.Cluster, cfg kafkastream.Config) { test(t, cfg, anew) })
		})
		t.Run(name+" on Kafka", func(t *testing.T) {
			servers.NeedReal(t)
			t.Parallel()
			test(t, config(t, kafkatest.Brokers(t), exactly), anew)
		})
	}
}

func deleteTopic(t *testing.T, cfg kafkastream.Config, topic string) {
	t.Helper()
	admin := kadm.NewClient(connect(t, cfg))
	if _, err := admin.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatalf("delete topic %s: %v", topic, err)
	}
	kafkatest.Eventually(t, "forget topic "+topic, func() (bool, error) {
		topics, err := admin.ListTopics(t.Context(), topic)
		return err == nil && !topics.Has(topic), err
	})
}

func TestTransactionVersion(t *testing.T) {
	t.Parallel()
	for name, opts := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log logs
			cfg := config(t, kafkatest.Fake(t, opts...).ListenAddrs(), exactly, logTo(&log))
			s := open(t, cfg)
			for range 2 {
				recoverTo(t, s, cfg, -1)
			}
			version, err := s.TransactionVersion(t.Context())
			if err != nil || !strings.HasSuffix(name, fmt.Sprint(version)) {
				t.Errorf("version is %d, %v", version, err)
			}
			weak := version < 2
			var found []string
			for _, f := range cfg.Needs().Check(t.Context()) {
				if f.Level == kafkaadmin.LevelWarn && strings.Contains(f.Text, "none are lost") {
					found = append(found, f.Hint)
				}
			}
			warned := strings.Count(log.text(), "none are lost")
			if weak && (warned != 1 || len(found) != 1) || !weak && warned+len(found) > 0 {
				t.Errorf("version %d: warned %d times, check found %q", version, warned, found)
			}
		})
	}
}

func TestCheckCompactionLag(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), exactly)
	kafkatest.CreateCheckpointTopic(t, cfg.Brokers, cfg.CheckpointTopic,
		map[string]*string{"min.compaction.lag.ms": new("0")})
	for _, f := range cfg.Needs().Check(t.Context()) {
		if f.Level == kafkaadmin.LevelWarn && strings.Contains(f.Text, "min.compaction.lag.ms is 0s") &&
			strings.Contains(f.Hint, "min.compaction.lag.ms=604800000") {
			return
		}
	}
	t.Error("check does not warn")
}

// TestOwnershipMakesTheCheckpointTopic: a process has to own a new stream before
// it begins a session.
func TestOwnershipMakesTheCheckpointTopic(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t))
	owner := cfg.Ownership().Owner()
	ctx := kafkatest.Context(t)
	ownership := must.Get(owner.Acquire(ctx))(t)
	must.Do(t, ownership.Confirm(ctx))
	ownership.Release()
	must.Do(t, owner.Close(t.Context()))
}
