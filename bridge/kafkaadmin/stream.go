package kafkaadmin

import (
	"context"
	"slices"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// Topics names the topics of a stream by role. An empty name is an unused role.
type Topics struct {
	Events, DeadLetters, Checkpoints string
	// Jobs holds the plans of jobs and the checkpoints of their windows.
	Jobs string
}

// Published lists the topics of events and dead letters.
func (t Topics) Published() []string { return named(t.Events, t.DeadLetters) }

// Needed lists the topics that the stream requires.
func (t Topics) Needed() []string { return named(t.Events, t.DeadLetters, t.Checkpoints) }

// All also lists the topic that the first job creates.
func (t Topics) All() []string { return named(t.Events, t.DeadLetters, t.Checkpoints, t.Jobs) }

func named(all ...string) []string {
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

// compacted reports whether a topic holds checkpoints.
func (t Topics) compacted(name string) bool { return name == t.Checkpoints || name == t.Jobs }

// Described are a stream's described topics by role, nil where unused or not
// requested.
type Described struct {
	Events, DeadLetters, Checkpoints, Jobs *kafkaclient.Topic
}

// Describe assigns described topics to their roles.
func (t Topics) Describe(found []kafkaclient.Topic, err error) (Described, error) {
	var d Described
	for i := range found {
		switch f := &found[i]; f.Name {
		case t.Events:
			d.Events = f
		case t.DeadLetters:
			d.DeadLetters = f
		case t.Checkpoints:
			d.Checkpoints = f
		case t.Jobs:
			d.Jobs = f
		}
	}
	return d, err
}

// Published lists the topics of events and dead letters.
func (d *Described) Published() []*kafkaclient.Topic { return present(d.Events, d.DeadLetters) }

// Needed lists the topics that the stream requires.
func (d *Described) Needed() []*kafkaclient.Topic {
	return present(d.Events, d.DeadLetters, d.Checkpoints)
}

func present(all ...*kafkaclient.Topic) []*kafkaclient.Topic {
	return slices.DeleteFunc(all, func(t *kafkaclient.Topic) bool { return t == nil })
}

// Stream is what a stream requires of the cluster. Its methods may be called at
// any time, and concurrently.
type Stream struct {
	// Config configures the connection, Layout the topics that are created.
	kafkaclient.Config
	Layout
	// Name is the stream's name, Topics are its topics.
	Name   string
	Topics Topics
	// TransactionalID is the stream's, Grants are the commands that allow using
	// it and the stream's group; Group is the prefix of its jobs' groups.
	TransactionalID string
	Grants          []string
	Group           string
	// Exactly: events and checkpoints share transactions.
	Exactly bool
	// PublishTime: records carry the publish time. StopExpired: an event whose
	// time the topic would not retain stops the stream.
	PublishTime, StopExpired bool
	// Newest returns the newest checkpoint of the stream, or
	// bridge.ErrNoCheckpoint. Holds reports whether the topics hold records of it.
	Newest func(context.Context, *kafkaclient.Client) (bridge.Checkpoint, error)
	Holds  func(context.Context) (bool, error)
}

// Ready returns the topics of the stream once they can take its records. It
// creates missing ones if allowed. Otherwise missing topics, and those that a
// checkpoint proves existed, are a Permanent fault.
func (s *Stream) Ready(ctx context.Context, client *kafkaclient.Client) (Described, error) {
	if s.CreateTopics {
		// Before looking twice for what may be missing: a new topic is made
		// at once, and one that is there after all is no error.
		if err := s.createMissing(ctx, client); err != nil {
			return Described{}, err
		}
	}
	topics, err := s.Topics.Describe(client.Find(ctx, s.Topics.Needed()...))
	if err != nil {
		return topics, err
	}
	gone, err := s.vanished(ctx, client, &topics)
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
