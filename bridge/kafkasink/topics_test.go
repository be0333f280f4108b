package kafkasink_test

import (
	"context"
	"errors"
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
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/kafkastream"
)

func TestHoldsShapes(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	holds := func(t *testing.T, s *kafkasink.Sink, want bool) {
		t.Helper()
		ctx := kafkatest.Context(t)
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
		if took := time.Since(began); took > 20*time.Second {
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

// abortedTransaction leaves aborted records and their control records.
func abortedTransaction(t *testing.T, cfg kafkastream.Config) {
	t.Helper()
	client := connect(t, cfg, kgo.TransactionalID(cfg.Topic), kgo.DefaultProduceTopic(cfg.Topic))
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		must.Do(t, client.BeginTransaction())
		records := []*kgo.Record{kgo.KeyStringRecord("a", "x"), kgo.KeyStringRecord("b", "y")}
		must.Do(t, client.ProduceSync(t.Context(), records...).FirstErr())
		must.Do(t, client.EndTransaction(t.Context(), end))
	}
}

func truncate(t *testing.T, cfg kafkastream.Config) {
	t.Helper()
	admin := kadm.NewClient(connect(t, cfg))
	ends := must.Get(admin.ListEndOffsets(t.Context(), cfg.Topic))(t)
	must.Get(admin.DeleteRecords(t.Context(), ends.Offsets()))(t)
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	type settings = kafkastream.Config
	for name, c := range map[string]struct {
		change func(*settings)
		want   string // separated by commas
	}{
		"defaults": {func(*settings) {}, ""},
		"all at once": {func(c *settings) {
			c.Brokers, c.Topic, c.Retention, c.Compression = []string{"nohost"}, "a b", "30d", "zip"
			c.Key, c.Partitions, c.Replication, c.MaxMessage = "userId", 0, 0, 5
			c.Headers, c.OnBadEvent, c.OnExpired, c.Timestamp, c.OnMismatch = "x", "x", "x", "x", "x"
			c.Mode, c.CheckpointTopic, c.TransactionTimeout = "x", "a b", time.Second
			c.Group, c.SessionTimeout = "", time.Millisecond
		}, "KAFKA_DELIVERY,KAFKA_CHECKPOINT_TOPIC,KAFKA_TRANSACTION_TIMEOUT,BRIDGE_GROUP,BRIDGE_SESSION_TIMEOUT," +
			"KAFKA_BROKERS,KAFKA_TOPIC,KAFKA_RETENTION,KAFKA_COMPRESSION,KAFKA_KEY," +
			"KAFKA_PARTITIONS,KAFKA_REPLICATION,KAFKA_MAX_MESSAGE_BYTES,BRIDGE_HEADERS,BRIDGE_ON_BAD_EVENT," +
			"BRIDGE_ON_SCHEMA_MISMATCH,BRIDGE_ON_EXPIRED,KAFKA_TIMESTAMP"},
		"key with escape":            {func(c *settings) { c.Key = "/payload/a~1b/m~0n" }, ""},
		"key with empty name":        {func(c *settings) { c.Key = "/" }, ""},
		"key is none":                {func(c *settings) { c.Key = "none" }, ""},
		"key with unknown escape":    {func(c *settings) { c.Key = "/a~2" }, "KAFKA_KEY"},
		"key with unfinished escape": {func(c *settings) { c.Key = "/a~" }, "KAFKA_KEY"},
		"key with double tilde":      {func(c *settings) { c.Key = "/~~0" }, "KAFKA_KEY"},
		"key is relative":            {func(c *settings) { c.Key = "a/b" }, "KAFKA_KEY"},
		"plain without TLS": {func(c *settings) {
			c.SASLMechanism, c.SASLUsername, c.SASLPassword = "PLAIN", "u", "p"
		}, "KAFKA_SASL_INSECURE"},
		"oauth without TLS": {func(c *settings) {
			c.SASLMechanism, c.SASLPassword = "OAUTHBEARER", "p"
		}, "KAFKA_SASL_INSECURE"},
		"forced": {func(c *settings) {
			c.SASLMechanism, c.SASLUsername, c.SASLPassword, c.SASLInsecure = "PLAIN", "u", "p", true
		}, ""},
		"no user": {func(c *settings) {
			c.SASLMechanism, c.SASLPassword = "SCRAM-SHA-256", "p"
		}, "KAFKA_SASL_USERNAME"},
		"no mechanism": {func(c *settings) { c.SASLUsername = "u" }, "KAFKA_SASL_MECHANISM"},
		"TLS off":      {func(c *settings) { c.TLSCA = "x" }, "KAFKA_TLS_ENABLED"},
		"not PEM": {func(c *settings) {
			c.TLSEnabled, c.TLSCA, c.TLSCert = true, "/etc/ca.pem", "x"
		}, "KAFKA_TLS_CA_FILE,KAFKA_TLS_KEY"},
		"checkpoints in events": {func(c *settings) { c.CheckpointTopic = c.Topic }, "KAFKA_CHECKPOINT_TOPIC must differ"},
		"checkpoints in DLQ": {func(c *settings) { c.CheckpointTopic = "dlq." + c.Topic },
			"_CHECKPOINT_TOPIC must differ"},
		"a transaction for ever":    {func(c *settings) { c.TransactionTimeout = time.Hour }, "KAFKA_TRANSACTION_TIMEOUT"},
		"routes":                    {func(c *settings) { c.RouteText = "order.*=orders,/region=eu-*:eu,x=drop" }, ""},
		"no route":                  {func(c *settings) { c.RouteText = "order.*" }, "KAFKA_ROUTES"},
		"route by a broken pointer": {func(c *settings) { c.RouteText = "/a~2=x:orders" }, "KAFKA_ROUTES"},
		"route to no topic":         {func(c *settings) { c.RouteText = "order=a b" }, "KAFKA_ROUTES"},
		"route to dead letters":     {func(c *settings) { c.RouteText = "x=" + c.DeadTopic() }, "KAFKA_ROUTES names"},
		"route to checkpoints":      {func(c *settings) { c.RouteText = "x=" + c.CheckpointTopic }, "KAFKA_ROUTES names"},
		"route to jobs":             {func(c *settings) { c.RouteText = "x=" + c.CheckpointTopic + ".jobs" }, "KAFKA_ROUTES names"},
		"same topic twice":          {func(c *settings) { c.DLQTopic = c.Topic }, "KAFKA_DLQ_TOPIC must differ"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, []string{"localhost:9092"}, c.change)
			_, err := cfg.Sink()
			if c.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			for w := range strings.SplitSeq(c.want, ",") {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("error %v does not name %s", err, w)
				}
			}
		})
	}
}

func TestNewWithoutCluster(t *testing.T) {
	t.Parallel()
	must.Fail(kafkasink.New(config(t, []string{"localhost:9092"}).Config))(t, nil, "kafkastream")
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

// TestNewTopicSpreads: brokers learn of a new topic one after the other, under load after
// seconds, and a new stream waits for them.
func TestNewTopicSpreads(t *testing.T) {
	t.Parallel()
	c := kafkatest.Fake(t)
	const tries = 8
	var unknown atomic.Int32
	c.ControlKey(kmsg.DescribeConfigs.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		// The broker that created the topics was asked about some; this is another one.
		if len(req.(*kmsg.DescribeConfigsRequest).Resources) < 3 || unknown.Add(1) > tries {
			return nil, nil, false
		}
		return kafkatest.WithoutConfigs(req, kerr.UnknownTopicOrPartition), nil, true
	})
	recovered(t, config(t, c.ListenAddrs()))
	if n := unknown.Load(); n <= tries {
		t.Errorf("%d requests for all topics, want more than %d", n, tries)
	}
}

// TestRecordsDeletedMeanwhile: a running session notices that somebody deleted records, if no
// retention explains it. The next session finds what the checkpoint lacks.
func TestRecordsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for retention, noticed := range map[string]bool{"-1": true, "8760h": false} {
		for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce} {
			cfg, s := ready(t, func(c *kafkastream.Config) { c.Retention, c.Mode = retention, mode })
			must.Get(s.Topics(t.Context()))(t)
			before := publish(t, s, page(event("a", "u"), event("b", "v")))
			if _, err := idle(t, cfg, s); err != nil {
				t.Errorf("%s, %s: %v before records are deleted", retention, mode, err)
			}
			truncate(t, cfg)
			_, err := idle(t, cfg, s)
			if !noticed {
				if err != nil {
					t.Errorf("%s, %s: %v", retention, mode, err)
				}
				continue
			}
			kafkatest.AsFault(t, err, bridge.Transient, "")
			if err := tryRecover(t, s); err != nil && !errors.Is(err, bridge.ErrNoCheckpoint) {
				t.Fatal(err)
			}
			found := must.Get(s.Topics(t.Context()))(t)
			fault := bridge.TopicsLost(bridge.Checkpoint{Topics: before.Topics, Events: 2}, found)
			if fault == nil || !strings.Contains(fault.Error(), "although its retention is unlimited") {
				t.Errorf("%s, %s: the loss is %v", retention, mode, fault)
			}
		}
	}
}

func idle(t *testing.T, cfg kafkastream.Config, s *kafkasink.Sink) (bridge.Receipt, error) {
	t.Helper()
	s.AgeSettings()
	c := checkpoint(cfg, 1)
	return s.Publish(t.Context(), bridge.Batch{Checkpoint: c, From: c})
}

// addPartitions adds two partitions to the topic of events, and returns their number then.
func addPartitions(t *testing.T, cfg kafkastream.Config) int {
	t.Helper()
	grown := int(cfg.Partitions) + 2
	admin := kadm.NewClient(connect(t, cfg))
	must.Get(admin.UpdatePartitions(t.Context(), grown, cfg.Topic))(t)
	for { // a broker knows them a moment after it has taken the request
		topics := must.Get(admin.ListTopics(t.Context(), cfg.Topic))(t)
		if len(topics[cfg.Topic].Partitions) == grown {
			return grown
		}
		<-time.After(20 * time.Millisecond)
	}
}

// TestAddedPartitionsAreUsed: a running stream writes to added partitions soon after it has
// seen them.
func TestAddedPartitionsAreUsed(t *testing.T) {
	t.Parallel()
	for _, mode := range []bridge.Mode{bridge.ExactlyOnce, bridge.AtLeastOnce} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			cfg, s := ready(t, func(c *kafkastream.Config) { c.Mode = mode })
			mustCommit(t, s, batch(cfg, 1))
			grown := addPartitions(t, cfg)
			s.AgeSettings()
			admin, ctx := kadm.NewClient(connect(t, cfg)), kafkatest.Context(t)
			for seq := 2; ; seq++ {
				mustCommit(t, s, batch(cfg, seq))
				ends := must.Get(admin.ListEndOffsets(ctx, cfg.Topic))(t)
				if end, _ := ends.Lookup(cfg.Topic, int32(grown-1)); end.Offset > 0 {
					return
				}
			}
		})
	}
}

func TestIdleStreamSeesItsTopics(t *testing.T) {
	t.Parallel()
	cfg, s := ready(t)
	grown := addPartitions(t, cfg)
	receipt, err := idle(t, cfg, s)
	if err != nil || receipt.Topics[0].Partitions != grown {
		t.Errorf("%v, topics %+v; want %d partitions", err, receipt.Topics, grown)
	}
	deleteTopic(t, cfg, cfg.Topic)
	kafkatest.CreateTopic(t, cfg.Brokers, cfg.Topic, int32(grown), nil)
	_, err = idle(t, cfg, s)
	if f := kafkatest.AsFault(t, err, bridge.Transient, ""); f.Code != "topic_changed" {
		t.Errorf("%v with code %s; want that the topic is another one", err, f.Code)
	}
}

// TestFirstStartWithoutStore: a new stream whose store is down waits for the store. Kafka is
// not reported as down, and the error says why the stream waits.
func TestFirstStartWithoutStore(t *testing.T) {
	t.Parallel()
	away := &bridge.Fault{Hint: "check Redis", Err: errors.New("redis: connection refused")}
	var blamed atomic.Int64
	cfg := config(t, kafkatest.Brokers(t))
	cfg.Mode = bridge.ExactlyOnce
	cfg.Known = func(context.Context) (bridge.Checkpoint, error) { return bridge.Checkpoint{}, away }
	cfg.Report = func(err error) {
		if err != nil {
			blamed.Add(1)
		}
	}
	sink, err := cfg.Sink()
	if err != nil {
		t.Fatal(err)
	}
	ctx := kafkatest.Context(t)
	defer sink.Close()
	_, err = sink.Recover(ctx, nil)
	fault, ok := errors.AsType[*bridge.Fault](err)
	if !ok || fault.Hint != away.Hint || !strings.Contains(fault.Error(), "first start of a stream needs Redis") ||
		!errors.Is(fault, away.Err) {
		t.Errorf("got %v", err)
	}
	if n := blamed.Load(); n > 0 {
		t.Errorf("Kafka was blamed %d times", n)
	}
}

// TestMissingTopicWithoutStore: a stream that may not create topics does not wait for the
// store: a missing topic is its error.
func TestMissingTopicWithoutStore(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t))
	cfg.Mode, cfg.CreateTopics = bridge.ExactlyOnce, false
	cfg.Known = func(context.Context) (bridge.Checkpoint, error) {
		return bridge.Checkpoint{}, errors.New("connection refused")
	}
	kafkatest.AsFault(t, tryRecover(t, open(t, cfg)), bridge.Permanent, bridge.ReasonTopic)
}

// TestWindowCreatesNoTopic: a window whose checkpoint topic was lost must not begin in an
// empty one, even if the stream may create topics.
func TestWindowCreatesNoTopic(t *testing.T) {
	t.Parallel()
	cfg := config(t, kafkatest.Brokers(t))
	window := cfg.OfWindow(kafkasink.Window{Name: "events.abc.w1.0-9", Topic: cfg.Topic, Origin: "backfill"})
	kafkatest.AsFault(t, tryRecover(t, open(t, window)), bridge.Permanent, bridge.ReasonTopic)
	wired := cfg.Wired()
	own := wired.OfWindow(kafkasink.Window{Name: "events.abc.w1.0-9", Topic: cfg.Topic, Origin: "backfill"})
	sink := must.Get(kafkasink.New(own))(t)
	defer sink.Close()
	kafkatest.AsFault(t, tryRecover(t, sink), bridge.Permanent, bridge.ReasonTopic)
	if exists, err := cfg.Exists(t.Context(), kafkasink.JobsTopic(cfg.CheckpointTopic)); exists || err != nil {
		t.Errorf("the job topic exists: %t, %v", exists, err)
	}
}
