package kafkasink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// The jobs that repair a stream. Two processes with the same job of the same
// stream fence each other.
const (
	// JobDLQ retries dead letters. A mark begins with the PARTITION/OFFSET of a letter.
	JobDLQ = "dlq"
	// JobVerify publishes missing events.
	JobVerify = "repair"
	// JobAttest publishes the records of the stream's attestation, with a Config of
	// OfAttest. The mark of a topic of events has its last record.
	JobAttest = "attest"
)

// AttestTopic returns the name of the topic with the attestation of a topic's streams.
func AttestTopic(topic string) string { return topic + ".attest" }

// KeysTopic returns the name of the topic with the keys of the values in a topic.
func KeysTopic(topic string) string { return topic + ".keys" }

// OfAttest returns the configuration of the Repair for JobAttest.
func (c *Config) OfAttest() Config {
	own := *c
	own.Topic, own.RouteText, own.Redacted = AttestTopic(c.Topic), "", ""
	own.Attested, own.Encrypted, own.Sampled = false, false, nil
	own.Headers, own.TypePrefix, own.Timestamp = headersCloudEvents, "exportbridge", timestampPublish
	return own
}

// repairTries bounds the attempts of a publication in doubt.
const repairTries = 3

// Repair publishes events of a stream out of order, beside the running stream
// and without affecting its session: events and the mark that names them are
// one transaction. The records are those of the stream, but with eb-origin
// repair. It always publishes in exactly-once mode.
//
// A mark is the record JOB/STREAM/NAME in the compacted topic <checkpoint
// topic>.jobs and is kept until it is forgotten; the transactional id is
// <checkpoint topic>.jobs.<stream>.<job>. A Repair is for one goroutine.
type Repair struct {
	sink   *Sink
	marks  map[string][]byte     // those before the session's barrier, and those added since
	topics kafkaclient.Described // of the session that began the repair
	// dry has the topic of a rehearsal, which has no session; nil otherwise.
	dry *kafkaclient.Described
}

// OpenRepair starts a session of the job. It fences an earlier session, aborts its open
// transaction, and reads the marks up to a barrier: marks not seen then do
// not exist. It creates the job topic if it is missing. Unreachable brokers are
// retried a few times; permanent errors are Permanent faults.
func OpenRepair(ctx context.Context, cfg Config, job string) (*Repair, error) {
	r, err := newRepair(cfg, job)
	if err != nil {
		return nil, err
	}
	if _, err := kafkaclient.With(ctx, &r.sink.cfg.Config, r.sink.cfg.Topic, r.ensureTopic); err != nil {
		return nil, err
	}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	r.topics = r.sink.session.topics.Described
	return r, nil
}

// Rehearse returns a Repair that changes nothing: Publish only checks that the topic
// accepts the events. Its marks are those that can be read now.
func Rehearse(ctx context.Context, cfg Config, job string) (*Repair, error) {
	r, err := newRepair(cfg, job)
	if err != nil {
		return nil, err
	}
	if r.marks, err = kafkaclient.With(ctx, &r.sink.cfg.Config, r.sink.cfg.Topic, r.visibleMarks); err != nil {
		return nil, err
	}
	names := r.sink.cfg.Topics()
	topics, err := kafkaclient.With(ctx, &r.sink.cfg.Config, r.sink.cfg.Topic,
		func(ctx context.Context, client *kafkaclient.Client) (kafkaclient.Described, error) {
			return names.Describe(client.Describe(ctx, names.OfEvents()...))
		})
	if err != nil {
		return nil, err
	}
	for _, t := range topics.OfEvents() {
		if err := r.sink.cfg.CanPublish(t); err != nil {
			return nil, err
		}
	}
	r.dry = &topics
	return r, nil
}

// Marks returns the readable marks of a job by name; those of a transaction
// being committed may be missing. It starts no session. A missing job topic has
// none.
func Marks(ctx context.Context, cfg Config, job string) (map[string][]byte, error) {
	r, err := newRepair(cfg, job)
	if err != nil {
		return nil, err
	}
	return kafkaclient.With(ctx, &r.sink.cfg.Config, r.sink.cfg.Topic, r.visibleMarks)
}

func newRepair(cfg Config, job string) (*Repair, error) {
	cfg.job, cfg.Mode = job, bridge.ExactlyOnce
	cfg.Part = &Part{Stream: cfg.Stream, Origin: "repair"}
	if job == JobAttest {
		cfg.Part.Origin = job
	}
	cfg.CheckpointTopic = JobsTopic(cfg.CheckpointTopic)
	// An event that cannot be published stays a dead letter, and is reported.
	cfg.OnBadEvent, cfg.Known = stopStream, nil
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Repair{sink: s}, nil
}

// Marks returns the marks at the start of the session and those added since, by
// name. The caller must not modify it.
func (r *Repair) Marks() map[string][]byte { return r.marks }

// Close ends the session.
func (r *Repair) Close() { r.sink.Close() }

// Publish publishes the page's events and the mark in one transaction. The
// caller keeps the page, and must not modify it until Publish returns. An error
// that is a bridge.ErrRejected reports an event that the topic cannot take;
// nothing is published, and the Repair remains usable. After an unknown outcome a
// new session looks for the mark, so that its value must be unique to this
// publication. After another error the events are not visible, or the error says
// that the outcome is unknown. A bridge.ErrFenced reports that another process has
// run the same job since the repair began. Nothing is published into a topic that
// was created again since then.
func (r *Repair) Publish(ctx context.Context, page *bridge.Page, mark string, value []byte) (bridge.Receipt, error) {
	if r.dry != nil {
		receipt, err := r.sink.kept.records.build(ownRecords(), page, r.dry)
		if err != nil {
			err = fmt.Errorf("%w: %w", bridge.ErrRejected, err)
		}
		return receipt, err
	}
	var before bridge.Receipt
	for try := 0; ; try++ {
		if r.sink.session == nil {
			if err := r.goOn(ctx, mark, value); err != nil {
				return bridge.Receipt{}, err
			}
		}
		if there, ok := r.marks[mark]; ok && bytes.Equal(there, value) {
			return before, nil
		}
		receipt, err := r.publish(ctx, page, mark, value)
		if err == nil {
			r.marks[mark] = value
			return receipt, nil
		}
		if errors.Is(err, bridge.ErrRejected) {
			return bridge.Receipt{}, err
		}
		r.sink.endSession()
		if isFinal(ctx, err, try) {
			return bridge.Receipt{}, fmt.Errorf("%w (outcome unknown: repeat the command, which detects published events)", err)
		}
		r.sink.cfg.Tell(err)
		before = receipt
		bridge.Sleep(ctx, kafkaclient.Backoff(try))
	}
}

// goOn starts another session. Marks other than the one in doubt, and the topic, must be
// those of the first session: the caller has decided by them what to publish.
func (r *Repair) goOn(ctx context.Context, mark string, value []byte) error {
	known := r.marks
	if err := r.begin(ctx); err != nil {
		return err
	}
	found := maps.Clone(r.marks)
	if bytes.Equal(found[mark], value) {
		delete(found, mark)
		if was, ok := known[mark]; ok {
			found[mark] = was
		}
	}
	var err error
	recreated := r.topics.Recreated(&r.sink.session.topics.Described)
	switch {
	case recreated != nil:
		err = fmt.Errorf("topic %s was recreated meanwhile: repeat the command", recreated.Name)
	case !maps.EqualFunc(known, found, bytes.Equal):
		err = fmt.Errorf("%w: another process has run the same job meanwhile; "+
			"repeat the command, which detects published events", bridge.ErrFenced)
	default:
		return nil
	}
	r.sink.endSession()
	r.marks = known
	return err
}

// forgottenAtOnce is how many marks one transaction deletes.
const forgottenAtOnce = 1000

// Forget deletes marks: their events can be published again.
func (r *Repair) Forget(ctx context.Context, names []string) error {
	for some := range slices.Chunk(names, forgottenAtOnce) {
		if r.sink.session == nil {
			if err := r.begin(ctx); err != nil {
				return err
			}
		}
		sink, s := r.sink, r.sink.session
		var own []kgo.Record
		for _, name := range some {
			own = append(own, sink.cfg.ownRecord(sink.cfg.scopedKey(name), nil))
		}
		if _, err := s.commitOwn(ctx, "the removal of marks", own...); err != nil {
			err = s.explain(err)
			sink.endSession()
			return err
		}
		for _, name := range some {
			delete(r.marks, name)
		}
	}
	return nil
}

// publish makes one attempt. Before the end of the transaction is requested nothing is
// visible. Once the transaction has ended, events and mark are durable. In between, the
// next session's barrier decides.
func (r *Repair) publish(ctx context.Context, page *bridge.Page, mark string, value []byte) (bridge.Receipt, error) {
	sink, s := r.sink, r.sink.session
	rec := sink.cfg.ownRecord(sink.cfg.scopedKey(mark), value)
	if size, limit := recordSize(&rec), s.topics.Checkpoints.Settings.MaxMessage; size > limit {
		return bridge.Receipt{}, fmt.Errorf("%w: mark of %d bytes, topic %s allows %d", bridge.ErrRejected, size,
			s.topics.Checkpoints.Name, limit)
	}
	s.receipt = bridge.Receipt{}
	s.topics.read = time.Time{} // refresh now: the client may have loaded a recreated topic
	if err := s.dispatch(ctx, ownRecords(), page); err != nil {
		return bridge.Receipt{}, err
	}
	receipt := s.receipt
	if err := s.complete(ctx, rec); err != nil {
		return receipt, err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	return receipt, s.txn.end(ending)
}

// isFinal reports whether another attempt is useless.
func isFinal(ctx context.Context, err error, try int) bool {
	return ctx.Err() != nil || kafkaclient.IsPermanent(err) || errors.Is(err, bridge.ErrFenced) || try == repairTries
}

// begin starts a session, in several attempts if need be.
func (r *Repair) begin(ctx context.Context) error {
	for try := 0; ; try++ {
		err := r.attempt(ctx)
		if err == nil {
			r.sink.cfg.Tell(nil)
			return nil
		}
		if isFinal(ctx, err, try) {
			return fmt.Errorf("begin a repair of stream %s: %w", r.sink.cfg.Stream, err)
		}
		r.sink.cfg.Tell(err)
		bridge.Sleep(ctx, kafkaclient.Backoff(try))
	}
}

func (r *Repair) attempt(ctx context.Context) error {
	sink := r.sink
	sink.endSession()
	s, err := begin(ctx, &sink.cfg, &sink.kept)
	if err != nil {
		return err
	}
	l, b, _, err := s.takeJob(ctx, new(scanResult))
	var marks map[string][]byte
	if err == nil {
		marks, err = r.scanMarks(ctx, l, kafkaclient.Span{To: b.offset})
	}
	if err != nil {
		s.close()
		return s.explain(err)
	}
	sink.session, r.marks = s, marks
	return nil
}

// visibleMarks reads the committed marks.
func (r *Repair) visibleMarks(ctx context.Context, client *kafkaclient.Client) (map[string][]byte, error) {
	l, all, err := r.sink.cfg.committedLog(ctx, client)
	if err != nil || l == nil {
		return make(map[string][]byte), err
	}
	return r.scanMarks(ctx, l, all)
}

// scanMarks reads the job's marks in a part of the log.
func (r *Repair) scanMarks(
	ctx context.Context, l *kafkaclient.PartitionLog, part kafkaclient.Span,
) (map[string][]byte, error) {
	marks := make(map[string][]byte)
	_, err := l.Scan(ctx, part, func(rec *kgo.Record) {
		name, ok := strings.CutPrefix(string(rec.Key), r.sink.cfg.scopedKey(""))
		switch {
		case !ok || rec.Attrs.IsControl() || string(rec.Key) == r.sink.cfg.barrierKey():
		case rec.Value == nil:
			delete(marks, name)
		default:
			marks[name] = rec.Value
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read the marks of earlier repairs: %w", err)
	}
	return marks, nil
}

// ensureTopic creates the job topic if it is missing, even if it was lost: that does not
// endanger the stream.
func (r *Repair) ensureTopic(ctx context.Context, client *kafkaclient.Client) (struct{}, error) {
	s := r.sink
	topics, err := client.Describe(ctx, s.cfg.CheckpointTopic)
	if err != nil || topics[0].Exists {
		return struct{}{}, err
	}
	return struct{}{}, s.cfg.Cluster.MakeJobTopic(ctx, client, &s.cfg)
}
