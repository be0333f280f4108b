package kafkaadmin

import (
	"context"

	"exportbridge/bridge/kafkaclient"
)

// Stream is what a stream requires of the cluster. Its methods may be called at any time,
// and concurrently.
type Stream struct {
	// Config configures the connection, Layout the topics that are created.
	kafkaclient.Config
	Layout
	// Name is the stream's name, Topics are its topics.
	Name   string
	Topics kafkaclient.Topics
	// Rights are what the stream uses besides its topics. Past shows whether the stream has
	// published.
	Rights Rights
	Past   Past
	// Exactly is set if events and checkpoints share transactions.
	Exactly bool
	// PublishTime is set if the records' timestamp is the publish time. StopExpired is set
	// if the stream stops at an event that the topic would delete at once because of its
	// time.
	PublishTime, StopExpired bool
}

// Ready returns the topics of the stream once they can take its records. It creates missing
// topics if that is allowed. A missing topic that may not be created is a Permanent fault.
// So is a missing topic to which records were published according to a checkpoint.
func (s *Stream) Ready(ctx context.Context, client *kafkaclient.Client) (kafkaclient.Described, error) {
	if s.CreateTopics {
		// Topics are created first, because Find looks twice for a missing topic. Creating
		// an existing topic is no error.
		if err := s.createMissing(ctx, client); err != nil {
			return kafkaclient.Described{}, err
		}
	}
	topics, err := s.Topics.Describe(client.Find(ctx, s.Topics.Needed()...))
	if err != nil {
		return topics, err
	}
	gone, err := s.Past.vanished(ctx, client, &topics)
	if err != nil {
		return topics, err
	}
	if err := s.CanWrite(topics.Needed()...); err != nil {
		return topics, err
	}
	for _, t := range topics.Published() {
		if c, ok := gone[t.Name]; ok {
			return topics, s.vanishedError(t.Name, c)
		}
		if err := s.unlessNew(t, s.CanPublish(t)); err != nil {
			return topics, err
		}
	}
	return topics, s.unlessNew(topics.Checkpoints, s.CanCheckpoint(topics.Checkpoints))
}

// unlessNew returns the fault of a topic. A topic that is missing after Ready has created
// it is a Transient fault: it can be used once the broker knows it.
func (s *Stream) unlessNew(t *kafkaclient.Topic, err error) error {
	if err == nil || t.Exists || !s.CreateTopics {
		return err
	}
	return t.Unknown()
}
