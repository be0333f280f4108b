package kafkaclient_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"exportbridge/bridge/bridgetest/servers"
)

// kafkaBrokers names the cluster to test on; empty is an embedded one.
const kafkaBrokers = "TEST_KAFKA_BROKERS"

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests starts one Apache Kafka for all tests under TEST_REAL.
func runTests(m *testing.M) int {
	stop := func() error { return nil }
	if os.Getenv("TEST_REAL") == "1" && os.Getenv(kafkaBrokers) == "" {
		kafka, err := servers.LaunchKafka(context.Background(), servers.KafkaOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Setenv(kafkaBrokers, strings.Join(kafka.Addrs(), ","))
		stop = kafka.Close
	}
	code := m.Run()
	if err := errors.Join(stop(), goleak.Find()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// patience bounds whatever a test waits for.
const patience = 30 * time.Second

// brokers returns the cluster to test on.
func brokers(t *testing.T) []string {
	t.Helper()
	if named := os.Getenv(kafkaBrokers); named != "" {
		return strings.Split(named, ",")
	}
	return servers.EmbeddedKafka(t).ListenAddrs()
}

// world is a topic of a test's own.
type world struct {
	*testing.T
	client *kgo.Client
	admin  *kadm.Client
	topic  string
}

func newWorld(t *testing.T, addrs []string, partitions int32) *world {
	t.Helper()
	w := &world{T: t, topic: fmt.Sprintf("t%d", time.Now().UnixNano())}
	w.client = w.open(addrs)
	w.admin = kadm.NewClient(w.client)
	w.create(partitions)
	return w
}

func (w *world) create(partitions int32) {
	w.Helper()
	if _, err := w.admin.CreateTopic(w.Context(), partitions, 1, nil, w.topic); err != nil {
		w.Fatal(err)
	}
}

func (w *world) open(addrs []string, opts ...kgo.Opt) *kgo.Client {
	w.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.RequestTimeoutOverhead(3*time.Second), kgo.RetryTimeout(3*time.Second), kgo.ProducerLinger(0))...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.Close)
	return c
}

// put produces records of the values from on and before to, a batch each.
func (w *world) put(c *kgo.Client, partition int32, from, to int) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for i := from; i < to; i++ {
		r := &kgo.Record{Topic: w.topic, Partition: partition, Value: fmt.Append(nil, i), Timestamp: time.UnixMilli(int64(1000 * i))}
		if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
			w.Fatal(err)
		}
	}
}

// transact puts one record in a transaction.
func (w *world) transact(c *kgo.Client, partition int32, value int, end kgo.TransactionEndTry) {
	w.Helper()
	if err := c.BeginTransaction(); err != nil {
		w.Fatal(err)
	}
	w.put(c, partition, value, value+1)
	if err := c.EndTransaction(w.Context(), end); err != nil {
		w.Fatal(err)
	}
}

// forget deletes the records before an offset.
func (w *world) forget(partition int32, before int64) {
	w.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset(w.topic, partition, before, -1)
	all, err := w.admin.DeleteRecords(w.Context(), offsets)
	if err == nil {
		err = all.Error()
	}
	if err != nil {
		w.Fatal(err)
	}
}
