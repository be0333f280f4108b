package kafkasink

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

const (
	produceTimeout = 5 * time.Second
	// linger is how long records wait for those of the next pages, to leave in
	// fewer and larger requests. The end of a batch sends them at once.
	linger = 10 * time.Millisecond
	// unknownTopicTries, a quarter of a second each, is how long a topic may be
	// unknown to the brokers before its records fail.
	unknownTopicTries = 20
)

// session publishes, with the Kafka clients of one Recover and the topics they
// found, until its first error. It is owned by the Sink's caller.
type session struct {
	cfg    *Config
	kept   *kept
	txn    txnProducer
	client *kafkaclient.Client // produces the events; in exactly-once mode it is that of txn
	copier *copier             // nil in exactly-once mode
	topics topics              // set before the first record
	// open is the current batch, nil before its first record; receipt tells of it.
	open    *delivery
	receipt tally
}

// kept is the state of a Sink that outlives a session.
type kept struct {
	losses atomic.Int64 // what brokers lost
	// patient is how the last session ended its transactions: the next one
	// starts the same way, since brokers rarely change.
	patient     bool
	published   *kafkarecord.Published
	records     builder
	pages       inflightPages
	checkpoints checkpointReader
	copyEvery   time.Duration // minimum interval of the copies of checkpoints
	weak        bool          // warnWeak has logged
}

// begin starts a session with clients that know the cluster.
func begin(ctx context.Context, cfg *Config, k *kept) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	x, err := meet(ctx, cfg, k)
	if err == nil && k.patient == x.txn.strict() {
		k.patient = !x.txn.strict() // known, even if the time runs out below
		x.close()
		x, err = meet(ctx, cfg, k)
	}
	return x, err
}

// meet creates clients and loads the cluster's metadata.
func meet(ctx context.Context, cfg *Config, k *kept) (*session, error) {
	x := &session{cfg: cfg, kept: k, txn: txnProducer{cfg: cfg, patient: k.patient, newest: -1}}
	if err := x.connect(); err != nil {
		return nil, cfg.fault(err, "")
	}
	if err := x.prepare(ctx); err != nil {
		x.close()
		return nil, x.explain(err)
	}
	return x, nil
}

func (x *session) connect() (err error) {
	opts := x.producerOpts()
	if x.txn.client, err = x.cfg.Open(append(opts, x.txn.opts()...)...); err != nil {
		return err
	}
	if x.client = x.txn.client; x.cfg.exactly() {
		return nil
	}
	if x.client, err = x.txn.client.Open(opts...); err != nil {
		x.txn.client.Close()
	}
	return err
}

// producerOpts are the options of a session's client. The record limits of kgo
// stay unset: its delivery timeout counts from the event time, and a record
// given up on leaves doubt.
func (x *session) producerOpts() []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(linger),
		kgo.ProducerBatchCompression(codec(x.cfg.Compression)),
		kgo.ProducerBatchMaxBytesFn(x.topics.batchLimit),
		kgo.MaxBufferedRecords(1 << 30), // Produce must never block: only Publish's own wait ends with ctx
		kgo.ProduceRequestTimeout(produceTimeout),
		kgo.UnknownTopicRetries(unknownTopicTries),
		kgo.RecordPartitioner(partitioner{x.cfg.CheckpointTopic, &x.topics}),
		kgo.ProducerOnDataLossDetected(x.noteLoss),
	}
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	default:
		return kgo.NoCompression()
	}
}

func (x *session) noteLoss(topic string, partition int32) {
	x.kept.losses.Add(1)
	if x.cfg.Log != nil {
		x.cfg.Log.Error("data loss: a broker lost acknowledged records", "topic", topic, "partition", partition)
	}
}

// prepare loads the topics and the brokers' transaction.version.
func (x *session) prepare(ctx context.Context) error {
	found, err := x.cfg.Cluster.Ready(ctx, x.txn.client, x.cfg, x.kept.published)
	if err != nil {
		return err
	}
	x.topics = newTopics(x.txn.client, found)
	version, err := x.txn.client.TransactionVersion(ctx)
	if err != nil {
		return err
	}
	x.txn.version.Store(int32(version))
	if x.cfg.exactly() {
		return nil
	}
	if _, _, err := x.client.ProducerID(ctx); err != nil {
		return fmt.Errorf("get a producer id: %w", err)
	}
	return nil
}

// target is the destination of records that client produces.
func (x *session) target(client *kafkaclient.Client, what string) target {
	return target{cfg: x.cfg, client: client, what: what, topics: &x.topics}
}

// explain returns the fault of an error of the clients, nil of none.
func (x *session) explain(err error) error {
	if err == nil {
		return nil
	}
	return x.cfg.explain(err, x.txn.client)
}

// close closes the clients. Every pending record fails at once, and no page is
// in use when it returns.
func (x *session) close() {
	if x.copier != nil {
		x.copier.stop()
	}
	x.txn.client.Close()
	x.client.Close()
	if x.copier != nil {
		x.copier.wait()
	}
	if x.open != nil {
		x.open.seal()
		<-x.open.done
	}
}
