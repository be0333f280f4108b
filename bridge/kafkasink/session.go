package kafkasink

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
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
	// open is the current batch, nil before its first record. receipt is the receipt of
	// that batch so far.
	open    *delivery
	receipt bridge.Receipt
}

// kept is the state of a Sink that outlives a session.
type kept struct {
	losses atomic.Int64 // as Sink.Losses
	// patient is that of the last session's txnProducer: the next session begins with
	// the same, since brokers rarely change.
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
	s, err := meet(ctx, cfg, k)
	if err == nil && k.patient == s.txn.strict() {
		k.patient = !s.txn.strict() // kept even if the next meet times out
		s.close()
		s, err = meet(ctx, cfg, k)
	}
	return s, err
}

// meet creates clients and loads the cluster's metadata.
func meet(ctx context.Context, cfg *Config, k *kept) (*session, error) {
	s := &session{cfg: cfg, kept: k, txn: txnProducer{cfg: cfg, patient: k.patient, newest: -1}}
	if err := s.connect(); err != nil {
		return nil, cfg.fault(err, "")
	}
	if err := s.prepare(ctx); err != nil {
		s.close()
		return nil, s.explain(err)
	}
	return s, nil
}

func (s *session) connect() (err error) {
	opts := s.producerOpts()
	if s.txn.client, err = s.cfg.Open(append(opts, s.txn.opts()...)...); err != nil {
		return err
	}
	if s.client = s.txn.client; s.cfg.exactly() {
		return nil
	}
	if s.client, err = s.txn.client.Open(opts...); err != nil {
		s.txn.client.Close()
	}
	return err
}

// producerOpts are the options of a session's client. The record limits of kgo
// stay unset: its delivery timeout counts from the event time, and a record
// given up on leaves doubt.
func (s *session) producerOpts() []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(linger),
		kgo.ProducerBatchCompression(codecs[s.cfg.Compression]),
		kgo.ProducerBatchMaxBytesFn(s.topics.batchLimit),
		kgo.MaxBufferedRecords(1 << 30), // Produce must never block: only the wait in Publish ends with ctx
		kgo.ProduceRequestTimeout(produceTimeout),
		kgo.UnknownTopicRetries(unknownTopicTries),
		kgo.RecordPartitioner(partitioner{s.cfg.CheckpointTopic, &s.topics}),
		kgo.ProducerOnDataLossDetected(s.noteLoss),
	}
}

// codecs are the values of KAFKA_COMPRESSION.
var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (s *session) noteLoss(topic string, partition int32) {
	s.kept.losses.Add(1)
	if s.cfg.Log != nil {
		s.cfg.Log.Error("data loss: a broker lost acknowledged records", "topic", topic, "partition", partition)
	}
}

// prepare loads the topics and the brokers' transaction.version.
func (s *session) prepare(ctx context.Context) error {
	found, err := s.cfg.Cluster.Ready(ctx, s.txn.client, s.cfg, s.kept.published)
	if err != nil {
		return err
	}
	s.topics = newTopics(s.txn.client, s.client, found)
	version, err := s.txn.client.TransactionVersion(ctx)
	if err != nil {
		return err
	}
	s.txn.version.Store(int32(version))
	if s.cfg.exactly() {
		return nil
	}
	if _, _, err := s.client.ProducerID(ctx); err != nil {
		return fmt.Errorf("get a producer id: %w", err)
	}
	return nil
}

// target is the destination of records that client produces.
func (s *session) target(client *kafkaclient.Client, what string) target {
	return target{cfg: s.cfg, client: client, what: what, topics: &s.topics}
}

// explain returns the fault of an error of the clients, nil for nil.
func (s *session) explain(err error) error {
	if err == nil {
		return nil
	}
	return s.cfg.explain(err, s.txn.client)
}

// close closes the clients. Every pending record fails at once, and no page is
// in use when it returns.
func (s *session) close() {
	if s.copier != nil {
		s.copier.cancel()
		defer s.copier.running.Wait() // a copy that is being written ends when the clients are closed
	}
	s.txn.client.Close()
	s.client.Close()
	if s.open != nil {
		s.open.seal()
		<-s.open.done
	}
}
