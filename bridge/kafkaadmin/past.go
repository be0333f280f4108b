package kafkaadmin

import (
	"cmp"
	"context"
	"errors"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// Past has the functions that show whether a stream has published.
type Past struct {
	// Newest returns the newest checkpoint of the stream, or bridge.ErrNoCheckpoint. Holds
	// reports whether the topics hold records of the stream.
	Newest func(context.Context, *kafkaclient.Client) (bridge.Checkpoint, error)
	Holds  func(context.Context) (bool, error)
}

// vanished returns the missing topics to which records were published according to a
// checkpoint. Recreating such a topic would continue in an empty topic, from the middle of
// the export.
func (p *Past) vanished(
	ctx context.Context, client *kafkaclient.Client, topics *kafkaclient.Described,
) (map[string]bridge.Checkpoint, error) {
	var c bridge.Checkpoint
	gone := make(map[string]bridge.Checkpoint)
	for _, t := range topics.Published() {
		if t.Exists {
			continue
		}
		if c.Zero() {
			var err error
			if c, err = p.Newest(ctx, client); errors.Is(err, bridge.ErrNoCheckpoint) {
				return nil, nil
			} else if err != nil {
				return nil, err
			}
		}
		if c.Implies(t.Name, t == topics.DeadLetters) {
			gone[t.Name] = c
		}
	}
	return gone, nil
}

// vanishedError returns the fault of a vanished topic.
func (s *Stream) vanishedError(topic string, c bridge.Checkpoint) *bridge.Fault {
	return s.Advise(bridge.Blockf("topic_vanished", bridge.ReasonTopic, "",
		"topic %s no longer exists, but records were published to it (checkpoint %s, %d events)",
		topic, c.Version, c.Events), bridge.HintTopicVanished)
}

// checkpointsLost returns an error if the event topic has events of a stream
// without a checkpoint topic: its checkpoints were lost, and an empty topic would
// hide that.
func (s *Stream) checkpointsLost(ctx context.Context) error {
	holds, err := s.Past.Holds(ctx)
	if err != nil && !kafkaclient.IsMissing(err) { // the event topic may be missing too
		return err
	}
	if holds {
		return s.Advise(bridge.Blockf("checkpoint_topic_lost", bridge.ReasonTopic, "",
			"topic %s does not exist, but topic %s already holds events of stream %s",
			s.Topics.Checkpoints, s.Topics.Events, s.Name), bridge.HintCheckpointTopicLost)
	}
	return nil
}

// Vanished returns the Faults of the missing topics to which records were published
// according to a checkpoint. Errors are Faults.
func (s *Stream) Vanished(ctx context.Context) ([]*bridge.Fault, error) {
	return kafkaclient.With(ctx, &s.Config, s.Topics.Events,
		func(ctx context.Context, client *kafkaclient.Client) (all []*bridge.Fault, err error) {
			topics, err := s.Topics.Describe(client.Describe(ctx, s.Topics.Published()...))
			if err != nil {
				return nil, err
			}
			gone, err := s.Past.vanished(ctx, client, &topics)
			for _, name := range s.Topics.Published() {
				if c, ok := gone[name]; ok {
					all = append(all, s.vanishedError(name, c))
				}
			}
			return all, err
		})
}

// TopicIDs returns the ids of the topics of events by name, empty if the brokers have no
// ids. Errors are Faults.
func (s *Stream) TopicIDs(ctx context.Context) (map[string]string, error) {
	return kafkaclient.With(ctx, &s.Config, s.Topics.Events,
		func(ctx context.Context, client *kafkaclient.Client) (map[string]string, error) {
			ids := make(map[string]string)
			states, err := client.Describe(ctx, s.Topics.OfEvents()...)
			for i := range states {
				ids[states[i].Name] = states[i].State(false).ID
				err = cmp.Or(err, s.CanPublish(&states[i]))
			}
			return ids, err
		})
}
