package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// attemptTimeout bounds one attempt to begin a session, so that a dead broker
// is reported within ten seconds.
const attemptTimeout = 8 * time.Second

// missingTries is how often a missing topic is looked for again.
const missingTries = 4

// Sink publishes one stream to Kafka, at least once. Recover, Publish, Holds
// and Close are called by one goroutine at a time; Plan, Create, Check and
// Losses may be called at any time.
type Sink struct {
	cfg     Config
	session *session // nil before the first Recover and after any error
	records builder
	losses  atomic.Int64
}

// New returns a Sink. It does not connect.
func New(cfg Config) (*Sink, error) {
	if cfg.Topic == "" {
		cfg.Topic = "export." + cfg.Stream
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Sink{cfg: cfg, records: newBuilder(cfg)}, nil
}

// Topics returns the names of the topics that the Sink writes to: that of the
// events, then that of the dead letters unless bad events stop the stream.
func (s *Sink) Topics() []string { return s.cfg.topics() }

// Losses counts how often a broker no longer knew what it had acknowledged
// before, in this process. It means that records may be lost on the brokers,
// as after an unclean leader election.
func (s *Sink) Losses() int64 { return s.losses.Load() }

func (s *Sink) noteLoss(topic string, partition int32) {
	s.losses.Add(1)
	if s.cfg.Log != nil {
		s.cfg.Log.Error("a broker lost what it had acknowledged; earlier records may be gone", "topic", topic, "partition", partition)
	}
}

// Recover begins a new session: a new client, topics that are there and can
// take our records, a producer id. The Sink keeps no checkpoints, so success
// is bridge.ErrNoCheckpoint. Unreachable brokers are waited for; what waiting
// does not cure is a Permanent fault.
func (s *Sink) Recover(ctx context.Context, _ func(context.Context) error) (bridge.Checkpoint, error) {
	s.endSession()
	for try := 0; ; try++ {
		x, err := s.begin(ctx)
		if err == nil {
			s.session = x
			s.report(nil)
			return bridge.Checkpoint{}, bridge.ErrNoCheckpoint
		}
		if ctx.Err() != nil {
			return bridge.Checkpoint{}, fmt.Errorf("begin a session with Kafka: %w: %w", ctx.Err(), err)
		}
		s.report(err)
		if permanent(err) {
			return bridge.Checkpoint{}, err
		}
		pause(ctx, backoff(try))
	}
}

// begin makes one attempt at a session.
func (s *Sink) begin(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	x, err := s.open()
	if err != nil {
		return nil, s.fault(err, "")
	}
	if err := s.prepare(ctx, x); err != nil {
		x.close()
		return nil, s.explain(err, x.watch)
	}
	return x, nil
}

// prepare learns about the topics and has the brokers accept the producer.
func (s *Sink) prepare(ctx context.Context, x *session) error {
	if s.cfg.CreateTopics {
		// Before looking twice for what may be missing: a new topic is made
		// at once, and one that is there after all is no error.
		if err := s.createMissing(ctx, x.client); err != nil {
			return err
		}
	}
	topics, err := s.findTopics(ctx, x.client)
	if err != nil {
		return err
	}
	for i := range topics {
		if err := s.usable(&topics[i]); err != nil {
			return err
		}
	}
	x.adopt(topics)
	if _, _, err := x.client.ProducerID(ctx); err != nil {
		return fmt.Errorf("get a producer id: %w", err)
	}
	return nil
}

// findTopics describes the topics. A broker may not know yet what another has
// just created, so a topic is missing only when it stays so for a moment.
func (s *Sink) findTopics(ctx context.Context, client *kgo.Client) ([]topicState, error) {
	for try := 0; ; try++ {
		topics, err := s.describe(ctx, client, s.cfg.topics()...)
		if err != nil || try == missingTries || !slices.ContainsFunc(topics, func(t topicState) bool { return !t.exists }) {
			return topics, err
		}
		pause(ctx, metadataMinAge)
	}
}

// explain turns an error of a client into a fault. An error that only says
// that time is up is replaced by what the connections know.
func (s *Sink) explain(err error, w *watch) *bridge.Fault {
	if cause := w.cause(); cause != nil && !answered(err) {
		err = cause
	}
	return s.fault(err, s.cfg.Topic)
}

// answered reports whether a broker, and not the network, made the error.
func answered(err error) bool {
	if f, ok := errors.AsType[*bridge.Fault](err); ok {
		return f.Class == bridge.Permanent
	}
	return isAnswer(err)
}

func (s *Sink) report(err error) {
	if s.cfg.Report != nil {
		s.cfg.Report(err)
	}
}

// Close ends the session. The Sink may be used again after a Recover.
func (s *Sink) Close() { s.endSession() }

func (s *Sink) endSession() {
	if s.session != nil {
		s.session.close()
		s.session = nil
	}
}

// session is one Kafka client and what was learnt when it was made.
type session struct {
	client *kgo.Client
	watch  *watch
	// events and dead are the settings of the two topics, set before the first
	// record. dead is nil when bad events stop the stream.
	events, dead *topicState
	read         time.Time // when the settings were read
}

func (s *Sink) open() (*session, error) {
	x := &session{watch: newWatch()}
	client, err := s.newClient(x.watch, s.producerOpts(x)...)
	if err != nil {
		return nil, err
	}
	x.client = client
	return x, nil
}

func (x *session) adopt(topics []topicState) {
	x.read = time.Now()
	x.events = &topics[0]
	if len(topics) > 1 {
		x.dead = &topics[1]
	}
}

// batchLimit is the largest batch for a topic. The client asks once a topic,
// at its first record.
func (x *session) batchLimit(topic string) int32 {
	for _, t := range []*topicState{x.events, x.dead} {
		if t != nil && t.name == topic {
			return int32(t.settings.maxMessage)
		}
	}
	return minMessage
}

// close ends the client. Every record that is still waiting fails at once.
func (x *session) close() { x.client.Close() }

// backoff is the full-jitter wait before another attempt, at most five seconds.
func backoff(try int) time.Duration {
	return rand.N(min(5*time.Second, 250*time.Millisecond<<min(try, 10)) + 1)
}

// pause waits, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
