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
	// Rights are what the stream uses beside its topics, Past is what shows that it
	// has published.
	Rights Rights
	Past   Past
	// Exactly: events and checkpoints share transactions.
	Exactly bool
	// PublishTime: records carry the publish time. StopExpired: an event whose
	// time the topic would not retain stops the stream.
	PublishTime, StopExpired bool
}

// Ready returns the topics of the stream once they can take its records. It
// creates missing ones if allowed. Otherwise missing topics, and those that a
// checkpoint proves existed, are a Permanent fault.
func (s *Stream) Ready(ctx context.Context, client *kafkaclient.Client) (kafkaclient.Described, error) {
	if s.CreateTopics {
		// Before looking twice for what may be missing: a new topic is made
		// at once, and one that is there after all is no error.
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
		if err := s.CanPublish(t); err != nil {
			return topics, err
		}
	}
	return topics, s.CanCheckpoint(topics.Checkpoints)
}
