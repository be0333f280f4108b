package kafkasink

import (
	"context"
	"errors"
	"fmt"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// Newest returns the stream's newest checkpoint that can be read now, from the
// checkpoint topic or Config.Known, or bridge.ErrNoCheckpoint. It begins no
// session and disturbs none: one that is just being committed may be missing.
// Errors are Faults, or those of Known.
func (s *Sink) Newest(ctx context.Context) (bridge.Checkpoint, error) {
	return kafkaclient.With(ctx, &s.cfg.Config, s.cfg.Topic, s.newest)
}

func (s *Sink) newest(ctx context.Context, client *kafkaclient.Client) (bridge.Checkpoint, error) {
	var c bridge.Checkpoint
	err := s.trail(ctx, client, func(found bridge.Checkpoint) bool {
		c = found
		return false
	})
	if err != nil {
		return c, fmt.Errorf("read the checkpoints of %s: %w", s.cfg.Stream, err)
	}
	if s.cfg.Known != nil {
		switch known, err := s.cfg.Known(ctx); {
		case err == nil && (c.Zero() || known.Place.Compare(c.Place) > 0):
			c = known
		case err != nil && c.Zero() && s.cfg.CreateTopics && !errors.Is(err, bridge.ErrNoCheckpoint):
			// A topic must not be made while this is open.
			return c, fmt.Errorf("look for a checkpoint of %s: %w", s.cfg.Stream, err)
		}
	}
	if c.Zero() {
		return c, fmt.Errorf("stream %s: %w", s.cfg.Stream, bridge.ErrNoCheckpoint)
	}
	return c, nil
}

// vanished returns those of the topics that are not there although a checkpoint
// says that there were records in them. To make one of them anew would go on
// from the middle, in an empty topic.
func (s *Sink) vanished(ctx context.Context, client *kafkaclient.Client, states []kafkaclient.Topic) (map[string]bridge.Checkpoint, error) {
	var c bridge.Checkpoint
	gone := make(map[string]bridge.Checkpoint)
	for i, name := range s.cfg.topics() {
		t := stateNamed(states, name)
		if t == nil || t.Exists {
			continue
		}
		if c.Zero() {
			var err error
			if c, err = s.newest(ctx, client); errors.Is(err, bridge.ErrNoCheckpoint) {
				return nil, nil
			} else if err != nil {
				return nil, err
			}
		}
		if c.Implies(name, i > 0) {
			gone[name] = c
		}
	}
	return gone, nil
}

func stateNamed(states []kafkaclient.Topic, name string) *kafkaclient.Topic {
	for i := range states {
		if states[i].Name == name {
			return &states[i]
		}
	}
	return nil
}

// vanishedError is the fault of a topic that is gone.
func vanishedError(topic string, c bridge.Checkpoint) *bridge.Fault {
	return &bridge.Fault{
		Class: bridge.Permanent, Reason: bridge.ReasonTopic, Code: "topic_vanished",
		Err: fmt.Errorf("topic %s does not exist any more; checkpoint %s says that records were published to it (%d events so far)", topic, c.Place, c.Events),
		Hint: "bring it back if you can. Else exportbridge topics create --execute, and then either all is published again: " +
			"exportbridge cursor reset --to-earliest --execute, or the stream goes on at the same position: --to-current",
	}
}

// Vanished returns the Faults of the topics that are gone although a checkpoint
// says that records were published to them. Errors are Faults.
func (s *Sink) Vanished(ctx context.Context) ([]*bridge.Fault, error) {
	return kafkaclient.With(ctx, &s.cfg.Config, s.cfg.Topic, func(ctx context.Context, client *kafkaclient.Client) (all []*bridge.Fault, err error) {
		states, err := client.Describe(ctx, s.cfg.topics()...)
		if err != nil {
			return nil, err
		}
		gone, err := s.vanished(ctx, client, states)
		for _, name := range s.cfg.topics() {
			if c, ok := gone[name]; ok {
				all = append(all, vanishedError(name, c))
			}
		}
		return all, err
	})
}

// TopicID returns the id of the topic of the events, empty where the brokers
// give none. Errors are Faults.
func (s *Sink) TopicID(ctx context.Context) (string, error) {
	return kafkaclient.With(ctx, &s.cfg.Config, s.cfg.Topic, func(ctx context.Context, client *kafkaclient.Client) (string, error) {
		states, err := client.Describe(ctx, s.cfg.Topic)
		if err == nil {
			err = s.cfg.CanPublish(&states[0])
		}
		if err != nil {
			return "", err
		}
		return states[0].State(false).ID, nil
	})
}
