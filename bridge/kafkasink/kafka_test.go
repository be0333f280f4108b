package kafkasink_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
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

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m, behindProxy.stop)) }

// config returns the default configuration with topics of the test's own.
func config(t *testing.T, brokers []string, changes ...func(*kafkastream.Config)) kafkastream.Config {
	t.Helper()
	cfg := kafkastream.DefaultConfig()
	cfg.Stream, cfg.Resource, cfg.Brokers = "events", "events", brokers
	cfg.Topic = fmt.Sprintf("t%d.%.60s", time.Now().UnixNano(),
		strings.NewReplacer("/", ".", " ", "-", ",", "").Replace(t.Name()))
	cfg.CheckpointTopic = "checkpoints." + cfg.Topic
	cfg.Mode, cfg.CreateTopics, cfg.Partitions = bridge.AtLeastOnce, true, 3
	// kfake opens a transaction for a new session when the last request of the
	// old one comes late; Apache Kafka refuses it. It must end before a test
	// loses its patience.
	cfg.TransactionTimeout = kafkatest.Patience / 6
	for _, change := range changes {
		change(&cfg)
	}
	return cfg
}

func open(t *testing.T, cfg kafkastream.Config) *kafkasink.Sink {
	t.Helper()
	s := must.Get(cfg.Sink())(t)
	t.Cleanup(s.Close)
	return s
}

// recovered returns a Sink that is ready to publish, of a stream without a checkpoint.
func recovered(t *testing.T, cfg kafkastream.Config) *kafkasink.Sink {
	t.Helper()
	s := open(t, cfg)
	restart(t, s)
	return s
}

// ready returns a configuration of a cluster that all tests share, and its Sink.
func ready(t *testing.T, changes ...func(*kafkastream.Config)) (kafkastream.Config, *kafkasink.Sink) {
	t.Helper()
	cfg := config(t, kafkatest.Brokers(t), changes...)
	return cfg, recovered(t, cfg)
}

// restart recovers a stream without a checkpoint.
func restart(t *testing.T, s *kafkasink.Sink) {
	t.Helper()
	must.Be(t, tryRecover(t, s), bridge.ErrNoCheckpoint)
}

func tryRecover(t *testing.T, s *kafkasink.Sink) error {
	t.Helper()
	ctx := kafkatest.Context(t)
	_, err := s.Recover(ctx, nil)
	return err
}

// connect returns a client of the test's own.
func connect(t *testing.T, cfg kafkastream.Config, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client := must.Get(kgo.NewClient(append(opts, kgo.SeedBrokers(cfg.Brokers...))...))(t)
	t.Cleanup(client.Close)
	return client
}

// produce produces records outside a transaction, each to its Partition.
func produce(t *testing.T, cfg kafkastream.Config, records ...*kgo.Record) {
	t.Helper()
	client := connect(t, cfg, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must.Do(t, client.ProduceSync(t.Context(), records...).FirstErr())
}

func logTo(w io.Writer) func(*kafkastream.Config) {
	return func(c *kafkastream.Config) { c.Log = slog.New(slog.NewTextHandler(w, nil)) }
}

func reportTo(seen *kafkatest.Reports) func(*kafkastream.Config) {
	return func(c *kafkastream.Config) { c.Report = seen.Add }
}

func withHeaders(headers string) func(*kafkastream.Config) {
	return func(c *kafkastream.Config) { c.Headers = headers }
}

// started runs f in the background.
func started(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

// publishing publishes in the background, without a limit.
func publishing(t *testing.T, s *kafkasink.Sink, pages ...*bridge.Page) <-chan error {
	t.Helper()
	return started(func() error {
		_, err := bridgetest.Load{Pages: pages}.Publish(t.Context(), s)
		return err
	})
}

func tryPublish(t *testing.T, s *kafkasink.Sink, pages ...*bridge.Page) (bridge.Receipt, error) {
	t.Helper()
	ctx := kafkatest.Context(t)
	return bridgetest.Load{Pages: pages}.Publish(ctx, s)
}

func publish(t *testing.T, s *kafkasink.Sink, pages ...*bridge.Page) bridge.Receipt {
	t.Helper()
	return must.Get(tryPublish(t, s, pages...))(t)
}

// page returns a page with the events.
func page(events ...bridge.Event) *bridge.Page {
	for i := range events {
		events[i].Index = i
	}
	return &bridge.Page{At: bridge.Position{Cursor: "c+1/="}, Next: "c2", Events: events, Items: len(events)}
}

// event returns an event of now.
func event(id, user string) bridge.Event {
	now := time.Now().UnixMilli()
	return bridge.Event{
		ID: []byte(id), Key: []byte(user), Subject: []byte(user), Type: []byte("orderPlaced"), Time: now,
		Raw: fmt.Appendf(nil, `{"eventId":%q,"userId":%q,"timestamp":%d}`, id, user, now),
	}
}

// consume returns everything committed in a topic, by partition and offset;
// nothing if it does not exist.
func consume(t *testing.T, cfg kafkastream.Config, topic string) []*kgo.Record {
	t.Helper()
	client := connect(t, cfg, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	ctx := kafkatest.Context(t)
	starts, err := kadm.NewClient(client).ListStartOffsets(ctx, topic)
	if err != nil {
		t.Fatalf("list offsets of %s: %v", topic, err)
	}
	listed := settled(ctx, t, client, topic)
	ends := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) {
		if start, _ := starts.Lookup(topic, o.Partition); o.Offset > start.Offset {
			ends[o.Partition] = o.Offset
		}
	})
	var got []*kgo.Record
	for len(ends) > 0 {
		f := client.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			t.Fatalf("consume %s: %v after %d records, up to %v", topic, err, len(got), ends)
		}
		for _, r := range f.Records() {
			if !r.Attrs.IsControl() {
				got = append(got, r)
			}
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		}
	}
	return got
}

// settled returns where the committed records of a topic end. The end of a
// transaction is answered before its markers are on all partitions, so it waits
// a moment for them, but not for a transaction that a test has left open.
func settled(ctx context.Context, t *testing.T, client *kgo.Client, topic string) kadm.ListedOffsets {
	t.Helper()
	admin := kadm.NewClient(client)
	for began := time.Now(); ; {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err != nil {
			t.Fatalf("list offsets of %s: %v", topic, err)
		}
		stable, err := admin.ListCommittedOffsets(ctx, topic)
		if err != nil {
			t.Fatalf("list offsets of %s: %v", topic, err)
		}
		open := false
		ends.Each(func(end kadm.ListedOffset) {
			at, _ := stable.Lookup(topic, end.Partition)
			open = open || at.Offset < end.Offset
		})
		if !open || time.Since(began) > 2*time.Second {
			return stable
		}
		<-time.After(10 * time.Millisecond)
	}
}

// refuse makes a cluster refuse records of a topic, or of all, count times; -1 is always.
func refuse(topic string, err *kerr.Error, count int) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: err, Count: count}
}

// refuseEnd makes it refuse the ends of transactions of an id.
func refuseEnd(id string, err *kerr.Error, count int) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: id, Err: err, Count: count}
}

func headersOf(r *kgo.Record) map[string]string {
	m := make(map[string]string)
	for _, h := range r.Headers {
		m[h.Key] = string(h.Value)
	}
	return m
}

// poison overwrites what a page's memory holds, as its next use would.
func poison(p *bridge.Page) {
	for i := range p.Events {
		ev := &p.Events[i]
		for _, b := range [][]byte{ev.Raw, ev.ID, ev.Key, ev.Type, ev.Subject} {
			copy(b, bytes.Repeat([]byte{'#'}, len(b)))
		}
	}
}
