package kafkaadmin

import (
	"context"

	"exportbridge/bridge/kafkaclient"
)

// Stream is what a stream requires of the cluster. Its methods may be called at
// any time, and concurrently.
type Stream struct {
	// Config configures the connection, Layout the topics that are created.
	kafkaclient.Config
	Layout
	// Name is the stream's name, Topics are its topics.
	Name   string
	Topics kafkaclient.Topics
	// Rights are what the stream uses beside its topics, Past shows whether it has
	// published.
	Rights Rights
	Past   Past
	// Exactly is set if events and checkpoints share transactions.
	Exactly bool
	// PublishTime is set if records have the publish time, StopExpired if an event whose
	// time the topic would not retain stops the stream.
	PublishTime, StopExpired bool
}

// Ready returns the topics of the stream once they can take its records. It
// creates missing topics if allowed. Otherwise a missing topic, and in any case one that a
// checkpoint proves existed, is a Permanent fault.
func (s *Stream) Ready(ctx context.Context, client *kafkaclient.Client) (kafkaclient.Described, error) {
	if s.CreateTopics {
		// Create first: Find looks twice for a missing topic, and creating a topic that
		// exists after all is no error.
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

// unlessNew returns the fault of a topic. Ready has created one that is missing nevertheless: it
// can be used when the broker that was asked knows it.
func (s *Stream) unlessNew(t *kafkaclient.Topic, err error) error {
	if err == nil || t.Exists || !s.CreateTopics {
		return err
	}
	return t.Unknown()
}
