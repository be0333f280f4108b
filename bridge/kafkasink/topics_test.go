package kafkasink_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/kafkasink"
)

func TestTopics(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t), func(c *kafkasink.Config) { c.CreateTopics, c.Retention = false, "720h" })
	s := open(t, cfg)
	plan, err := s.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	configs := map[string]string{"cleanup.policy": "delete", "retention.ms": "2592000000"}
	compacted := map[string]string{
		"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "min.compaction.lag.ms": "604800000",
		"segment.bytes": "16777216", "segment.ms": "600000",
	}
	want := []kafkasink.PlannedTopic{
		{Name: cfg.Topic, Role: "events", Partitions: 3, Replication: -1, Configs: configs},
		{Name: "dlq." + cfg.Topic, Role: "dead letters", Partitions: 3, Replication: -1, Configs: configs},
		{Name: cfg.CheckpointTopic, Role: "checkpoints", Partitions: 16, Replication: -1, Configs: compacted},
		{Name: cfg.CheckpointTopic + ".jobs", Role: "jobs", OnDemand: true, Partitions: 16, Replication: -1, Configs: compacted},
	}
	if diff := cmp.Diff(want, plan.Topics); diff != "" {
		t.Errorf("plan differs (-want +got):\n%s", diff)
	}
	if plan.Missing() != 3 || len(plan.ACLs) != 8 || len(plan.JobACLs) != 6 || !strings.Contains(plan.ACLs[0], "'User:<principal>' --operation Write --operation Describe --topic "+cfg.Topic) {
		t.Errorf("plan: %d missing, commands %q", plan.Missing(), plan.ACLs)
	}
	if again, err := s.Plan(t.Context()); err != nil || again.Missing() != 3 {
		t.Errorf("a plan changed something: %+v, %v", again, err)
	}
	for range 2 { // repeating is safe
		made, err := s.Create(t.Context())
		if err != nil || made.Missing() != 0 || len(made.Topics[0].Differences) != 0 {
			t.Errorf("create: %+v, %v", made, err)
		}
		if got := made.Topics[0]; got.Partitions != 3 || got.Configs["retention.ms"] != "2592000000" {
			t.Errorf("created %+v", got)
		}
		if got := made.Topics[2]; got.Partitions != 16 || got.Configs["cleanup.policy"] != "compact" || got.Configs["min.compaction.lag.ms"] != "604800000" || len(got.Differences) != 0 {
			t.Errorf("created %+v", got)
		}
	}
	publish(t, recovered(t, cfg), page(event("e", "u")))

	cfg.Partitions, cfg.Retention = 6, "-1"
	plan, err = open(t, cfg).Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	differences := []string{"partitions is 3, we would set 6", "retention.ms is 2592000000, we would set -1"}
	if diff := cmp.Diff(differences, plan.Topics[0].Differences); diff != "" {
		t.Errorf("differences differ (-want +got):\n%s", diff)
	}
}

func TestCreateReplicated(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.NumBrokers(3))
	s := open(t, config(t, cluster.ListenAddrs(), func(c *kafkasink.Config) { c.Replication = 3 }))
	plan, err := s.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Topics[0]; got.Replication != 3 || got.Configs["min.insync.replicas"] != "2" {
		t.Errorf("created %+v, want 3 replicas, 2 in sync", got)
	}

	s = open(t, config(t, cluster.ListenAddrs(), func(c *kafkasink.Config) { c.Replication = 5 }))
	_, err = s.Create(t.Context())
	if f := kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonConfig); !strings.Contains(f.Hint, "KAFKA_REPLICATION") {
		t.Errorf("hint %q does not name the setting", f.Hint)
	}
}

func TestPlanWithoutBroker(t *testing.T) {
	t.Parallel()
	srv := kafkatest.NewServer(t)
	srv.Stop()
	s := open(t, config(t, srv.Addr))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := s.Plan(ctx)
	kafkatest.AsFault(t, err, bridge.Transient, "")
	if !kafkatest.Mentions(srv.Addr[0], "refused")(err) {
		t.Errorf("error %v does not name the broker", err)
	}
	srv.Start()
}

func TestCheck(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	month := map[string]*string{"retention.ms": new("2592000000")}
	for name, c := range map[string]struct {
		change  func(*kafkasink.Config)
		configs map[string]*string // of the topic; nil makes none
		level   kafkasink.Level
		text    string
		hint    string
	}{
		"fine":           {func(*kafkasink.Config) {}, map[string]*string{"retention.ms": new("-1")}, kafkasink.LevelOK, "for ever", ""},
		"retention":      {func(*kafkasink.Config) {}, month, kafkasink.LevelWarn, "older than 15 days get the time of publishing", "retention.ms=-1"},
		"retention stop": {func(c *kafkasink.Config) { c.OnExpired = "stop" }, month, kafkasink.LevelWarn, "stop the stream", "retention.ms=-1"},
		"publish time":   {func(c *kafkasink.Config) { c.Timestamp = "publish" }, month, kafkasink.LevelInfo, "time of publishing", ""},
		"missing":        {func(*kafkasink.Config) {}, nil, kafkasink.LevelFail, "does not exist", "topics create --execute"},
		"to be created":  {func(c *kafkasink.Config) { c.CreateTopics = true }, nil, kafkasink.LevelInfo, "run will create it", ""},
		"compacted": {func(*kafkasink.Config) {}, map[string]*string{"cleanup.policy": new("compact")},
			kafkasink.LevelFail, "is compacted", "cleanup.policy=delete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, addrs, func(c *kafkasink.Config) { c.CreateTopics = false }, c.change)
			if c.configs != nil {
				createTopic(t, cfg, cfg.Topic, c.configs)
				createTopic(t, cfg, "dlq."+cfg.Topic, nil)
				createCheckpointTopic(t, cfg, nil)
			}
			found := open(t, cfg).Check(t.Context())
			for _, f := range found {
				if f.Level == c.level && strings.Contains(f.Text, cfg.Topic) && strings.Contains(f.Text, c.text) && strings.Contains(f.Hint, c.hint) {
					return
				}
			}
			t.Errorf("found %+v, want %s: %s (%s)", found, c.level, c.text, c.hint)
		})
	}
}

func TestCheckBounded(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	addr := silent.Addr().String()
	s := open(t, config(t, []string{addr}))
	began := time.Now()
	found := s.Check(t.Context())
	if took := time.Since(began); took > 16*time.Second {
		t.Errorf("check took %s", took)
	}
	if len(found) != 1 || found[0].Level != kafkasink.LevelFail || !strings.Contains(found[0].Text, addr) {
		t.Errorf("found %+v, want one failure that names %s", found, addr)
	}
}

func TestHoldsShapes(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	holds := func(t *testing.T, s *kafkasink.Sink, want bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Patience)
		defer cancel()
		if got, err := s.Holds(ctx); err != nil || got != want {
			t.Errorf("holds: %v, %v; want %v", got, err, want)
		}
	}
	t.Run("without headers any record counts", func(t *testing.T) {
		t.Parallel()
		cfg := config(t, addrs, func(c *kafkasink.Config) { c.Headers = "none" })
		s := recovered(t, cfg)
		holds(t, s, false)
		cfg.Stream = "other"
		publish(t, recovered(t, cfg), page(event("e", "u")))
		holds(t, s, true)
	})
	t.Run("dead letters count", func(t *testing.T) {
		t.Parallel()
		s := recovered(t, config(t, addrs, func(c *kafkasink.Config) { c.Headers = "none" }))
		bad := event("e", "u")
		bad.Defect = bridge.DefectTime
		publish(t, s, page(bad))
		holds(t, s, true)
	})
	t.Run("partitions that end in control records", func(t *testing.T) {
		t.Parallel()
		cfg := config(t, addrs)
		s := recovered(t, cfg)
		abortedTransaction(t, cfg)
		began := time.Now()
		holds(t, s, false)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("holds took %s: it did not see the end of the partition", took)
		}
	})
	t.Run("records deleted", func(t *testing.T) {
		t.Parallel()
		cfg := config(t, addrs)
		s := recovered(t, cfg)
		publish(t, s, page(event("e", "u"), event("f", "v")))
		truncate(t, cfg)
		holds(t, s, false)
	})
	t.Run("no topic", func(t *testing.T) {
		t.Parallel()
		_, err := open(t, config(t, addrs)).Holds(t.Context())
		kafkatest.AsFault(t, err, bridge.Permanent, bridge.ReasonTopic)
	})
}

// abortedTransaction leaves records of nobody and their control records.
func abortedTransaction(t *testing.T, cfg kafkasink.Config) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.TransactionalID(cfg.Topic), kgo.DefaultProduceTopic(cfg.Topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := client.ProduceSync(t.Context(), kgo.KeyStringRecord("a", "x"), kgo.KeyStringRecord("b", "y")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := client.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
}

func truncate(t *testing.T, cfg kafkasink.Config) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ends, err := admin.ListEndOffsets(t.Context(), cfg.Topic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil {
		t.Fatal(err)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*kafkasink.Config)
		want   []string
	}{
		"defaults": {func(*kafkasink.Config) {}, nil},
		"all at once": {func(c *kafkasink.Config) {
			c.Brokers, c.Topic, c.Retention, c.Compression = []string{"nohost"}, "a b", "30d", "zip"
			c.Key, c.Partitions, c.Replication, c.MaxMessage = "userId", 0, 0, 5
			c.Headers, c.OnBadEvent, c.OnExpired, c.Timestamp = "x", "x", "x", "x"
			c.Mode, c.CheckpointTopic, c.TransactionTimeout, c.Group, c.SessionTimeout = "x", "a b", time.Second, "", time.Millisecond
		}, []string{"KAFKA_DELIVERY", "KAFKA_CHECKPOINT_TOPIC", "KAFKA_TRANSACTION_TIMEOUT", "BRIDGE_GROUP", "BRIDGE_SESSION_TIMEOUT",
			"KAFKA_BROKERS", "KAFKA_TOPIC", "KAFKA_RETENTION", "KAFKA_COMPRESSION", "KAFKA_KEY", "KAFKA_PARTITIONS",
			"KAFKA_REPLICATION", "KAFKA_MAX_MESSAGE", "BRIDGE_HEADERS", "BRIDGE_ON_BAD_EVENT", "BRIDGE_ON_EXPIRED", "KAFKA_TIMESTAMP"}},
		"plain without TLS": {func(c *kafkasink.Config) {
			c.SASLMechanism, c.SASLUsername, c.SASLPassword = "PLAIN", "u", "p"
		}, []string{"KAFKA_SASL_INSECURE"}},
		"oauth without TLS": {func(c *kafkasink.Config) { c.SASLMechanism, c.SASLPassword = "OAUTHBEARER", "p" }, []string{"KAFKA_SASL_INSECURE"}},
		"forced": {func(c *kafkasink.Config) {
			c.SASLMechanism, c.SASLUsername, c.SASLPassword, c.SASLInsecure = "PLAIN", "u", "p", true
		}, nil},
		"no user":                            {func(c *kafkasink.Config) { c.SASLMechanism, c.SASLPassword = "SCRAM-SHA-256", "p" }, []string{"KAFKA_SASL_USERNAME"}},
		"no mechanism":                       {func(c *kafkasink.Config) { c.SASLUsername = "u" }, []string{"KAFKA_SASL_MECHANISM"}},
		"TLS off":                            {func(c *kafkasink.Config) { c.TLSCA = "x" }, []string{"KAFKA_TLS_ENABLED"}},
		"not PEM":                            {func(c *kafkasink.Config) { c.TLSEnabled, c.TLSCA, c.TLSCert = true, "/etc/ca.pem", "x" }, []string{"KAFKA_TLS_CA_FILE", "KAFKA_TLS_KEY"}},
		"checkpoints among the events":       {func(c *kafkasink.Config) { c.CheckpointTopic = c.Topic }, []string{"KAFKA_CHECKPOINT_TOPIC must differ"}},
		"checkpoints among the dead letters": {func(c *kafkasink.Config) { c.CheckpointTopic = "dlq." + c.Topic }, []string{"KAFKA_CHECKPOINT_TOPIC must differ"}},
		"a transaction for ever":             {func(c *kafkasink.Config) { c.TransactionTimeout = time.Hour }, []string{"KAFKA_TRANSACTION_TIMEOUT"}},
		"same topic twice":                   {func(c *kafkasink.Config) { c.DLQTopic = c.Topic }, []string{"KAFKA_DLQ_TOPIC must differ"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := kafkasink.New(config(t, []string{"localhost:9092"}, c.change))
			if c.want == nil && err != nil {
				t.Errorf("refused: %v", err)
			}
			for _, w := range c.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("error %v does not name %s", err, w)
				}
			}
		})
	}
}

func TestDefaultTopic(t *testing.T) {
	t.Parallel()
	s := open(t, config(t, []string{"localhost:9092"}, func(c *kafkasink.Config) { c.Topic, c.Stream = "", "orders" }))
	if diff := cmp.Diff([]string{"export.orders", "dlq.export.orders"}, s.TopicNames()); diff != "" {
		t.Errorf("topics differ (-want +got):\n%s", diff)
	}
}

func TestNoSession(t *testing.T) {
	t.Parallel()
	s := open(t, config(t, []string{"localhost:9092"}))
	_, err := s.Publish(t.Context(), bridge.Batch{})
	kafkatest.AsFault(t, err, bridge.Transient, "")
}

// TestCheckOnNewCluster: the coordinator of transactions is there a moment after
// it was first asked for.
func TestCheckOnNewCluster(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.CoordinatorNotAvailable, Count: 2})
	for _, found := range open(t, config(t, cluster.ListenAddrs())).Check(t.Context()) {
		if found.Level == kafkasink.LevelFail {
			t.Errorf("check found %+v", found)
		}
	}
}
