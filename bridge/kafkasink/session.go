package kafkasink

import (
	"context"
	"sync/atomic"
	"time"

	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

// session publishes, with the Kafka clients of one Recover and the topics they
// found, until its first error. It is owned by the Sink's caller.
type session struct {
	transactions
	kept   *kept
	client *kafkaclient.Client // produces the events; in exactly-once mode it is the writer
	copier *copier             // nil in exactly-once mode
	// topics are set before the first record, read when they were described.
	topics kafkaclient.Described
	read   time.Time
	// reaches are the known ends of the topics of events and dead letters.
	reaches reaches
	// open is the current batch, nil before its first record; receipt tells of it.
	open    *delivery
	receipt tally
}

func (x *session) noteLoss(topic string, partition int32) {
	x.kept.losses.Add(1)
	if x.cfg.Log != nil {
		x.cfg.Log.Error("data loss: a broker lost acknowledged records", "topic", topic, "partition", partition)
	}
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

func newSession(cfg *Config, k *kept) *session {
	return &session{transactions: transactions{cfg: cfg, patient: k.patient, newest: -1}, kept: k}
}

// begin starts a session with clients that know the cluster.
func begin(ctx context.Context, cfg *Config, k *kept) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	x := newSession(cfg, k)
	err := x.meet(ctx)
	if err == nil && x.patient == x.strict() {
		k.patient = !x.strict() // known, even if the time runs out below
		x.close()
		x = newSession(cfg, k)
		err = x.meet(ctx)
	}
	return x, err
}

// meet creates clients and loads the cluster's metadata.
func (x *session) meet(ctx context.Context) error {
	if err := x.connect(); err != nil {
		return x.cfg.fault(err, "")
	}
	if err := x.prepare(ctx); err != nil {
		x.close()
		return x.cfg.explain(err, x.writer)
	}
	return nil
}

func (x *session) connect() (err error) {
	opts := x.producerOpts()
	if x.writer, err = x.cfg.Open(append(opts, x.transactionOpts()...)...); err != nil {
		return err
	}
	if x.client = x.writer; x.cfg.exactly() {
		return nil
	}
	if x.client, err = x.writer.Open(opts...); err != nil {
		x.writer.Close()
	}
	return err
}

func (x *session) adopt(topics *kafkaclient.Described) {
	x.read, x.topics = time.Now(), *topics
	x.reaches = nil
	for _, t := range topics.Published() {
		x.reaches = append(x.reaches, &reach{topic: t, used: make([]atomic.Bool, len(t.Partitions))})
	}
}

// batchLimit is the maximum batch size of a topic. A client asks once per
// topic, at its first record.
func (x *session) batchLimit(topic string) int32 {
	if t := x.state(topic); t != nil {
		return int32(t.Settings.MaxMessage)
	}
	return kafkaclient.MinMessage
}

// state returns what is known of one of our topics, or nil.
func (x *session) state(topic string) *kafkaclient.Topic {
	for _, t := range x.topics.Needed() {
		if t.Name == topic {
			return t
		}
	}
	return nil
}

// close closes the clients. Every pending record fails at once, and no page is
// in use when it returns.
func (x *session) close() {
	if x.copier != nil {
		x.copier.stop()
	}
	x.writer.Close()
	x.client.Close()
	if x.copier != nil {
		x.copier.wait()
	}
	if x.open != nil {
		x.open.seal()
		<-x.open.done
	}
}

// lost is closed when the session must end although nothing in it failed.
func (x *session) lost() <-chan struct{} {
	if x.copier == nil {
		return nil
	}
	return x.copier.over
}
