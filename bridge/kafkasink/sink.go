package kafkasink

import (
	"fmt"

	"exportbridge/bridge/kafkarecord"
)

// Sink publishes one stream to Kafka: it begins and ends the sessions that publish.
// Recover, Send, Publish, Holds, Topics and Close are for one goroutine at a time;
// Losses and Refused may be called at any time.
type Sink struct {
	*kafkarecord.Published // what Holds, Index and PartialIndex read

	cfg     Config
	session *session // nil before the first Recover and after any error
	kept    kept
}

// New returns a Sink. It does not connect.
func New(cfg Config) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Cluster == nil {
		return nil, fmt.Errorf("stream %s has no Cluster: package kafkastream has one", cfg.Stream)
	}
	s := &Sink{Published: kafkarecord.NewPublished(cfg.Records()), cfg: cfg}
	s.kept.published, s.kept.copyEvery = s.Published, copyInterval
	s.kept.records, s.kept.pages.sampled = newBuilder(cfg), cfg.Sampled
	return s, nil
}

// Losses returns how often this process found that a broker had lost acknowledged
// records, as after an unclean leader election.
func (s *Sink) Losses() int64 { return s.kept.losses.Load() }

// Refused returns how many checkpoints in Kafka were ignored because they were produced
// outside a transaction, so by another program.
func (s *Sink) Refused() int64 { return s.kept.checkpoints.refused.Load() }

// Close ends the session and waits for its goroutine. A Recover makes the Sink
// usable again.
func (s *Sink) Close() { s.endSession() }

func (s *Sink) endSession() {
	if s.session != nil {
		s.session.close()
		s.session = nil
	}
}
