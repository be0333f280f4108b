package kafkasink

import "time"

// Sink publishes one stream to Kafka. Recover, Send, Publish, Holds, Topics and
// Close are for one goroutine at a time; Losses and Refused may be called at
// any time.
type Sink struct {
	*Published // what Holds, Index and PartialIndex read

	cfg         Config
	session     *session // nil before the first Recover and after any error
	records     builder
	pages       inflightPages
	checkpoints checkpointReader
	kept        kept
	// mirrorEvery is how often at most a checkpoint is copied.
	mirrorEvery time.Duration
	weak        bool // the warning was logged
}

// New returns a Sink. It does not connect.
func New(cfg Config) (*Sink, error) {
	if cfg.Topic == "" {
		cfg.Topic = "export." + cfg.Stream
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{Published: cfg.Published(), cfg: cfg, records: newBuilder(cfg), mirrorEvery: copyInterval, pages: inflightPages{sampled: cfg.Sampled}}
	s.checkpoints.cfg, s.kept.published = &s.cfg, s.Published
	return s, nil
}

// Losses counts how often a broker lost acknowledged records in this process,
// as after an unclean leader election.
func (s *Sink) Losses() int64 { return s.kept.losses.Load() }

// Refused counts the ignored checkpoints in Kafka: they were produced outside a
// transaction, so by another program.
func (s *Sink) Refused() int64 { return s.checkpoints.refused.Load() }

// Close ends the session and waits for its goroutine. A Recover makes the Sink
// usable again.
func (s *Sink) Close() { s.endSession() }

func (s *Sink) endSession() {
	if s.session != nil {
		s.session.close()
		s.session = nil
	}
}
