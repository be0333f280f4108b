package kafkaclient_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkaclient"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Run(m)) }

// world is a topic of a test's own.
type world struct {
	*testing.T
	client  *kgo.Client
	admin   *kadm.Client
	topic   string
	fetches atomic.Int64 // sent by client
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (w *world) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, _ kgo.BrokerE2E) {
	if key == kmsg.Fetch.Int16() {
		w.fetches.Add(1)
	}
}

func newWorld(t *testing.T, addrs []string, partitions int32) *world {
	t.Helper()
	w := &world{T: t, topic: fmt.Sprintf("t%d", time.Now().UnixNano())}
	w.client = w.open(addrs, kgo.WithHooks(w))
	w.admin = kadm.NewClient(w.client)
	kafkatest.CreateTopic(t, addrs, w.topic, partitions, nil)
	return w
}

func (w *world) open(addrs []string, opts ...kgo.Opt) *kgo.Client {
	w.Helper()
	c := must.Get(kgo.NewClient(append(opts, kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.RequestTimeoutOverhead(3*time.Second), kgo.RetryTimeout(3*time.Second),
		kgo.ProducerLinger(0))...))(w)
	w.Cleanup(c.Close)
	return c
}

// log returns a reader of the topic.
func (w *world) log() *kafkaclient.Log {
	return (&kafkaclient.Client{Client: w.client}).Log(w.topic, [16]byte{})
}

// put produces records of the values from on and before to, a batch each.
func (w *world) put(c *kgo.Client, partition int32, from, to int) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), kafkatest.Patience)
	defer cancel()
	for i := from; i < to; i++ {
		r := &kgo.Record{Topic: w.topic, Partition: partition, Value: fmt.Append(nil, i),
			Timestamp: time.UnixMilli(int64(1000 * i))}
		must.Do(w, c.ProduceSync(ctx, r).FirstErr())
	}
}

// transact puts one record in a transaction.
func (w *world) transact(c *kgo.Client, partition int32, value int, end kgo.TransactionEndTry) {
	w.Helper()
	must.Do(w, c.BeginTransaction())
	w.put(c, partition, value, value+1)
	must.Do(w, c.EndTransaction(w.Context(), end))
}

// forget deletes the records before an offset.
func (w *world) forget(partition int32, before int64) {
	w.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset(w.topic, partition, before, -1)
	all := must.Get(w.admin.DeleteRecords(w.Context(), offsets))(w)
	must.Do(w, all.Error())
}

// TestNoNames: to ask about no topic asks about none, not about all.
func TestNoNames(t *testing.T) {
	t.Parallel()
	addrs := kafkatest.Brokers(t)
	w := newWorld(t, addrs, 1)
	cfg := kafkaclient.DefaultConfig()
	cfg.Brokers = addrs
	client := must.Get(cfg.Open())(t)
	t.Cleanup(client.Close)
	for _, names := range [][]string{nil, {w.topic}} {
		topics, err := client.Identify(t.Context(), names...)
		if err != nil || len(topics) != len(names) {
			t.Errorf("identify %v: got %v, %v", names, topics, err)
		}
		topics, err = client.Describe(t.Context(), names...)
		if err != nil || len(topics) != len(names) {
			t.Errorf("describe %v: got %v, %v", names, topics, err)
		}
		bounds, err := client.Bounds(t.Context(), names...)
		if err != nil || len(bounds) != len(names) {
			t.Errorf("bounds of %v: got %v, %v", names, bounds, err)
		}
	}
}
