package kafkasink

import (
	"sync/atomic"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaadmin"
	"exportbridge/bridge/kafkaclient"
)

// Sink publishes one stream to Kafka. Recover, Send, Publish, Holds and Close are
// called by one goroutine at a time; Plan, Create, Check, TransactionVersion
// and Losses may be called at any time.
type Sink struct {
	cfg     Config
	session *session // nil before the first Recover and after any error
	records builder
	parcels parcels
	scanned stretch
	// searched is where Holds has found nothing, by topic; holdsTime bounds one look.
	searched  map[string]searched
	holdsTime time.Duration
	losses    atomic.Int64
	refused   atomic.Int64 // checkpoints that were not believed
	// refusedBelow is the offset below which they were counted.
	refusedBelow int64
	// mirrorEvery is how often at most a checkpoint is copied.
	mirrorEvery time.Duration
	// patient: the brokers' transactions are of the older kind, whose end must
	// not be asked for twice, so that the answer is waited for.
	patient bool
	weak    bool // that was said
}

// New returns a Sink. It does not connect.
func New(cfg Config) (*Sink, error) {
	if cfg.Topic == "" {
		cfg.Topic = "export." + cfg.Stream
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Sink{cfg: cfg, records: newBuilder(cfg), mirrorEvery: mirrorInterval, holdsTime: holdsTime, searched: make(map[string]searched), parcels: parcels{sampled: cfg.Sampled}}, nil
}

// Losses counts how often a broker no longer knew what it had acknowledged
// before, in this process. It means that records may be lost on the brokers,
// as after an unclean leader election.
func (s *Sink) Losses() int64 { return s.losses.Load() }

// Refused counts the checkpoints in Kafka that this process did not believe,
// because they were produced outside a transaction: somebody else wrote them.
func (s *Sink) Refused() int64 { return s.refused.Load() }

func (s *Sink) noteLoss(topic string, partition int32) {
	s.losses.Add(1)
	if s.cfg.Log != nil {
		s.cfg.Log.Error("a broker lost what it had acknowledged; earlier records may be gone", "topic", topic, "partition", partition)
	}
}

// Close ends the session and waits for its goroutine. The Sink may be used
// again after a Recover.
func (s *Sink) Close() { s.endSession() }

func (s *Sink) endSession() {
	if s.session != nil {
		s.session.close()
		s.session = nil
	}
}

// session is the Kafka clients of one Recover and what was learnt when they
// were made. It is owned by the Sink's caller.
type session struct {
	// client produces the events. writer produces checkpoints and has the
	// stream's transactional id. Exactly once, both are one client.
	client, writer *kafkaclient.Client
	// mirror copies checkpoints at least once, nil in the other mode.
	mirror *mirror
	// topics are set before the first record, read when they were described.
	topics kafkaadmin.Described
	read   time.Time
	// reaches are how far the topics of events and dead letters go.
	reaches []*reach
	// version is the brokers' transaction.version, 0 until it is known.
	version atomic.Int32
	// began is when the last transaction began, newest where its checkpoint or
	// barrier is: offsets only grow.
	began  time.Time
	newest int64
	// open is the batch at hand, nil before its first record; receipt is what
	// was sent of it.
	open    *delivery
	receipt tally
	held    []*bridge.Page // by a rule that is broken on purpose
}

// releaseHeld ends with the pages that were held back.
func (x *session) releaseHeld() {
	for _, page := range x.held {
		page.Release()
	}
	x.held = nil
}

func (s *Sink) open() (*session, error) {
	x := &session{newest: -1}
	opts := s.producerOpts(x)
	var err error
	if x.writer, err = s.cfg.Open(append(opts, s.transactionOpts(x)...)...); err != nil {
		return nil, err
	}
	if x.client = x.writer; s.cfg.exactly() {
		return x, nil
	}
	if x.client, err = x.writer.Open(opts...); err != nil {
		x.writer.Close()
		return nil, err
	}
	return x, nil
}

func (x *session) adopt(topics *kafkaadmin.Described) {
	x.read, x.topics = time.Now(), *topics
	x.reaches = nil
	for _, t := range topics.Published() {
		x.reaches = append(x.reaches, &reach{topic: t})
	}
}

// batchLimit is the largest batch for a topic. A client asks once a topic, at
// its first record.
func (x *session) batchLimit(topic string) int32 {
	if t := x.state(topic); t != nil {
		return int32(t.Settings.MaxMessage)
	}
	return kafkaclient.MinMessage
}

// state returns what is known of a topic of ours, or nil.
func (x *session) state(topic string) *kafkaclient.Topic {
	for _, t := range x.topics.Needed() {
		if t.Name == topic {
			return t
		}
	}
	return nil
}

// strict reports whether the brokers fence each transaction by itself
// (transaction.version 2): then a late end of one cannot end the next.
func (x *session) strict() bool { return x.version.Load() >= kafkaclient.StrictTransactions }

// close ends the clients. Every record that is still waiting fails at once, and
// nothing of any page is in use when it returns.
func (x *session) close() {
	if x.mirror != nil {
		x.mirror.stop()
	}
	x.writer.Close()
	x.client.Close()
	if x.mirror != nil {
		x.mirror.wait()
	}
	if x.open != nil {
		x.open.seal()
		<-x.open.done
	}
	x.releaseHeld()
}

// lost is closed when the session must end although nothing failed in it.
func (x *session) lost() <-chan struct{} {
	if x.mirror == nil {
		return nil
	}
	return x.mirror.over
}
