package kafkasink_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

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
		cfg := config(t, addrs, withHeaders("none"))
		s := recovered(t, cfg)
		holds(t, s, false)
		cfg.Stream = "other"
		publish(t, recovered(t, cfg), page(event("e", "u")))
		holds(t, s, true)
	})
	t.Run("dead letters count", func(t *testing.T) {
		t.Parallel()
		s := recovered(t, config(t, addrs, withHeaders("none")))
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
func abortedTransaction(t *testing.T, cfg kafkastream.Config) {
	t.Helper()
	client := connect(t, cfg, kgo.TransactionalID(cfg.Topic), kgo.DefaultProduceTopic(cfg.Topic))
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

func truncate(t *testing.T, cfg kafkastream.Config) {
	t.Helper()
	client := connect(t, cfg)
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
		change func(*kafkastream.Config)
		want   []string
	}{
		"defaults": {func(*kafkastream.Config) {}, nil},
		"all at once": {func(c *kafkastream.Config) {
			c.Brokers, c.Topic, c.Retention, c.Compression = []string{"nohost"}, "a b", "30d", "zip"
			c.Key, c.Partitions, c.Replication, c.MaxMessage = "userId", 0, 0, 5
			c.Headers, c.OnBadEvent, c.OnExpired, c.Timestamp = "x", "x", "x", "x"
			c.Mode, c.CheckpointTopic, c.TransactionTimeout, c.Group, c.SessionTimeout = "x", "a b", time.Second, "", time.Millisecond
		}, []string{"KAFKA_DELIVERY", "KAFKA_CHECKPOINT_TOPIC", "KAFKA_TRANSACTION_TIMEOUT", "BRIDGE_GROUP", "BRIDGE_SESSION_TIMEOUT",
			"KAFKA_BROKERS", "KAFKA_TOPIC", "KAFKA_RETENTION", "KAFKA_COMPRESSION", "KAFKA_KEY", "KAFKA_PARTITIONS",
			"KAFKA_REPLICATION", "KAFKA_MAX_MESSAGE_BYTES", "BRIDGE_HEADERS", "BRIDGE_ON_BAD_EVENT", "BRIDGE_ON_EXPIRED", "KAFKA_TIMESTAMP"}},
		"key with escape":            {func(c *kafkastream.Config) { c.Key = "/payload/a~1b/m~0n" }, nil},
		"key with empty name":        {func(c *kafkastream.Config) { c.Key = "/" }, nil},
		"key is none":                {func(c *kafkastream.Config) { c.Key = "none" }, nil},
		"key with unknown escape":    {func(c *kafkastream.Config) { c.Key = "/a~2" }, []string{"KAFKA_KEY"}},
		"key with unfinished escape": {func(c *kafkastream.Config) { c.Key = "/a~" }, []string{"KAFKA_KEY"}},
		"key with double tilde":      {func(c *kafkastream.Config) { c.Key = "/~~0" }, []string{"KAFKA_KEY"}},
		"key is relative":            {func(c *kafkastream.Config) { c.Key = "a/b" }, []string{"KAFKA_KEY"}},
		"plain without TLS": {func(c *kafkastream.Config) {
			c.SASLMechanism, c.SASLUsername, c.SASLPassword = "PLAIN", "u", "p"
		}, []string{"KAFKA_SASL_INSECURE"}},
		"oauth without TLS": {func(c *kafkastream.Config) { c.SASLMechanism, c.SASLPassword = "OAUTHBEARER", "p" }, []string{"KAFKA_SASL_INSECURE"}},
		"forced": {func(c *kafkastream.Config) {
			c.SASLMechanism, c.SASLUsername, c.SASLPassword, c.SASLInsecure = "PLAIN", "u", "p", true
		}, nil},
		"no user":                            {func(c *kafkastream.Config) { c.SASLMechanism, c.SASLPassword = "SCRAM-SHA-256", "p" }, []string{"KAFKA_SASL_USERNAME"}},
		"no mechanism":                       {func(c *kafkastream.Config) { c.SASLUsername = "u" }, []string{"KAFKA_SASL_MECHANISM"}},
		"TLS off":                            {func(c *kafkastream.Config) { c.TLSCA = "x" }, []string{"KAFKA_TLS_ENABLED"}},
		"not PEM":                            {func(c *kafkastream.Config) { c.TLSEnabled, c.TLSCA, c.TLSCert = true, "/etc/ca.pem", "x" }, []string{"KAFKA_TLS_CA_FILE", "KAFKA_TLS_KEY"}},
		"checkpoints among the events":       {func(c *kafkastream.Config) { c.CheckpointTopic = c.Topic }, []string{"KAFKA_CHECKPOINT_TOPIC must differ"}},
		"checkpoints among the dead letters": {func(c *kafkastream.Config) { c.CheckpointTopic = "dlq." + c.Topic }, []string{"KAFKA_CHECKPOINT_TOPIC must differ"}},
		"a transaction for ever":             {func(c *kafkastream.Config) { c.TransactionTimeout = time.Hour }, []string{"KAFKA_TRANSACTION_TIMEOUT"}},
		"same topic twice":                   {func(c *kafkastream.Config) { c.DLQTopic = c.Topic }, []string{"KAFKA_DLQ_TOPIC must differ"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, []string{"localhost:9092"}, c.change)
			_, err := cfg.Sink()
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

func TestNewWithoutCluster(t *testing.T) {
	t.Parallel()
	if _, err := kafkasink.New(config(t, []string{"localhost:9092"}).Config); err == nil || !strings.Contains(err.Error(), "kafkastream") {
		t.Errorf("error %v does not say where a Cluster is", err)
	}
}

func TestDefaultTopic(t *testing.T) {
	t.Parallel()
	cfg := config(t, []string{"localhost:9092"}, func(c *kafkastream.Config) { c.Topic, c.Stream = "", "orders" })
	if diff := cmp.Diff([]string{"export.orders", "dlq.export.orders"}, cfg.Needs().Topics.Published()); diff != "" {
		t.Errorf("topics differ (-want +got):\n%s", diff)
	}
}

func TestNoSession(t *testing.T) {
	t.Parallel()
	s := open(t, config(t, []string{"localhost:9092"}))
	_, err := s.Publish(t.Context(), bridge.Batch{})
	kafkatest.AsFault(t, err, bridge.Transient, "")
}

// TestNewTopicSpreads: brokers learn of a new topic one after the other, and a
// new stream waits for them.
func TestNewTopicSpreads(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	var unknown atomic.Int32
	c.ControlKey(kmsg.DescribeConfigs.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		// Whoever created them was asked about some; this is another broker.
		if len(req.(*kmsg.DescribeConfigsRequest).Resources) < 3 || unknown.Add(1) > 2 {
			return nil, nil, false
		}
		return withoutConfigs(req, kerr.UnknownTopicOrPartition), nil, true
	})
	recovered(t, config(t, c.ListenAddrs()))
	if n := unknown.Load(); n <= 2 {
		t.Errorf("%d requests for all topics, want more than 2", n)
	}
}
