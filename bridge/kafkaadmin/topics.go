package kafkaadmin

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// TopicPlan compares the needs of the stream with the cluster.
type TopicPlan struct {
	// Topics are all topics of the stream, existing or missing.
	Topics []PlannedTopic `json:"topics"`
	// ACLs are the commands that grant what the stream needs, ready to paste.
	// The principal is KAFKA_SASL_USERNAME or a placeholder.
	ACLs []string `json:"acls"`
	// JobACLs are the additional grants of replay, backfill and repairs.
	JobACLs []string `json:"job_acls,omitempty"`
}

// PlannedTopic is one topic of a TopicPlan.
type PlannedTopic struct {
	// Name is the topic's name. Role is "events", "dead letters", "checkpoints", "jobs",
	// "attestation" or "keys".
	Name   string `json:"name"`
	Role   string `json:"role"`
	Exists bool   `json:"exists"`
	// OnDemand is true for the job topic, which the first job creates. It is also true for
	// the attestation topic, which the bridge creates if that is allowed.
	OnDemand bool `json:"on_demand,omitempty"`
	// Denied is true for a topic of OnDemand that may not be described. Whether it exists is
	// unknown, and Create leaves it out.
	Denied bool `json:"denied,omitempty"`
	// Partitions, Replication and Configs are those of an existing topic, or those of a
	// topic that will be created. Replication -1 is the brokers' default. Configs lists
	// only relevant settings.
	Partitions  int32             `json:"partitions"`
	Replication int16             `json:"replication"`
	Configs     map[string]string `json:"configs,omitempty"`
	// Differences lists the settings in which an existing topic differs from the plan.
	// Create does not change them.
	Differences []string `json:"differences,omitempty"`
}

// Lacks reports whether the topic is known not to exist.
func (t PlannedTopic) Lacks() bool { return !t.Exists && !t.Denied }

// shownConfigs are the relevant settings of an existing topic.
var shownConfigs = []string{
	"cleanup.policy", "max.message.bytes", "message.timestamp.type", "min.insync.replicas", "retention.ms",
}

// Plan compares the needs of the stream with the cluster, and changes nothing. Errors are
// Faults. Unresponsive brokers are not retried.
func (s *Stream) Plan(ctx context.Context) (TopicPlan, error) {
	return kafkaclient.With(ctx, &s.Config, s.Topics.Events, s.plan)
}

// Create creates the missing topics, including the job topic, and returns the resulting
// plan. It does not change existing topics, and is idempotent.
func (s *Stream) Create(ctx context.Context) (TopicPlan, error) {
	return kafkaclient.With(ctx, &s.Config, s.Topics.Events,
		func(ctx context.Context, client *kafkaclient.Client) (TopicPlan, error) {
			plan, err := s.plan(ctx, client)
			if err != nil || !slices.ContainsFunc(plan.Topics, PlannedTopic.Lacks) {
				return plan, err
			}
			if err := s.maker(client).create(ctx, plan.Topics); err != nil {
				return plan, err
			}
			return s.plan(ctx, client)
		})
}

func (s *Stream) plan(ctx context.Context, client *kafkaclient.Client) (TopicPlan, error) {
	topics, err := s.Topics.Describe(client.Describe(ctx, s.Topics.Own()...))
	if err != nil {
		return TopicPlan{}, err
	}
	plan := TopicPlan{ACLs: s.ACLs(), JobACLs: s.JobACLs()}
	m := s.maker(client)
	replicas := m.replicas(ctx)
	add := func(role string, state *kafkaclient.Topic) {
		if state != nil {
			t := m.planned(state, replicas)
			t.Role = role
			plan.Topics = append(plan.Topics, t)
		}
	}
	for _, t := range topics.OfEvents() {
		add("events", t)
	}
	add("dead letters", topics.DeadLetters)
	add("checkpoints", topics.Checkpoints)
	for _, beside := range []struct{ role, name string }{{"jobs", s.Topics.Jobs}, {"attestation", s.Topics.Attest}} {
		if beside.name == "" {
			continue
		}
		// Each on its own: the stream runs without the grants of jobs and the attestation.
		found, err := client.Describe(ctx, beside.name)
		t := PlannedTopic{Name: beside.name, Denied: errors.Is(err, kerr.TopicAuthorizationFailed)}
		switch {
		case err == nil:
			t = m.planned(&found[0], replicas)
		case !t.Denied:
			return TopicPlan{}, err
		}
		t.Role, t.OnDemand = beside.role, true
		plan.Topics = append(plan.Topics, t)
	}
	add("keys", topics.Keys)
	return plan, nil
}

// createMissing creates the missing topics, except those to which records were published
// according to a checkpoint. It creates the checkpoint topic last, and only for a new
// stream.
func (s *Stream) createMissing(ctx context.Context, client *kafkaclient.Client) error {
	topics, err := s.Topics.Describe(client.Describe(ctx, s.Topics.Needed()...))
	if err != nil {
		return err
	}
	gone, err := s.Past.vanished(ctx, client, &topics)
	if err != nil {
		return err
	}
	var missing []string
	for _, t := range topics.Published() {
		if _, known := gone[t.Name]; !t.Exists && !known {
			missing = append(missing, t.Name)
		}
	}
	if err := s.maker(client).make(ctx, missing...); err != nil || topics.Checkpoints.Exists {
		return err
	}
	return s.MakeCheckpoints(ctx, client)
}

// Make creates topics of the stream. Errors are Kafka's.
func (s *Stream) Make(ctx context.Context, client *kafkaclient.Client, names ...string) error {
	return s.maker(client).make(ctx, names...)
}

// EnsureAttest creates a missing attestation topic if the stream creates topics. Errors are
// Faults.
func (s *Stream) EnsureAttest(ctx context.Context) error {
	_, err := kafkaclient.With(ctx, &s.Config, s.Topics.Attest,
		func(ctx context.Context, client *kafkaclient.Client) (struct{}, error) {
			topics, err := client.Describe(ctx, s.Topics.Attest)
			switch {
			case err != nil || topics[0].Exists:
				return struct{}{}, err
			case !s.CreateTopics:
				return struct{}{}, bridge.Blockf("topic_missing", bridge.ReasonTopic,
					"exportbridge topics create --execute", "topic %s does not exist", s.Topics.Attest)
			}
			return struct{}{}, s.Make(ctx, client, s.Topics.Attest)
		})
	return err
}

// MakeKeys creates a missing topic of keys if the stream creates topics and has published
// nothing. If it has published, the topic was lost with the keys of all values, and an
// empty topic would hide that. Errors are Faults.
func (s *Stream) MakeKeys(ctx context.Context) error {
	_, err := kafkaclient.With(ctx, &s.Config, s.Topics.Keys,
		func(ctx context.Context, client *kafkaclient.Client) (none struct{}, err error) {
			lost := s.CanKeepKeys(&kafkaclient.Topic{Name: s.Topics.Keys})
			if !s.CreateTopics {
				return none, lost
			}
			topics, err := client.Describe(ctx, s.Topics.Published()...)
			if err != nil {
				return none, err
			}
			topics = slices.DeleteFunc(topics, func(t kafkaclient.Topic) bool { return !t.Exists })
			var names []string
			for i := range topics {
				names = append(names, topics[i].Name)
			}
			held, err := client.Bounds(ctx, names...)
			if err != nil {
				return none, err
			}
			for _, partitions := range held {
				for _, span := range partitions {
					if span.To > 0 {
						return none, lost
					}
				}
			}
			return none, s.Make(ctx, client, s.Topics.Keys)
		})
	return err
}

// MakeCheckpoints creates the checkpoint topic of a new stream.
func (s *Stream) MakeCheckpoints(ctx context.Context, client *kafkaclient.Client) error {
	if err := s.checkpointsLost(ctx); err != nil {
		return err
	}
	return s.maker(client).make(ctx, s.Topics.Checkpoints)
}

// CreateLike creates a topic with the partitions, replicas and non-default settings of the
// event topic. It reports whether it created the topic: an existing topic is not changed.
// Errors are Faults.
func (s *Stream) CreateLike(ctx context.Context, name string) (bool, error) {
	return kafkaclient.With(ctx, &s.Config, s.Topics.Events,
		func(ctx context.Context, client *kafkaclient.Client) (bool, error) {
			states, err := client.Describe(ctx, s.Topics.Events, name)
			if err != nil || states[1].Exists {
				return false, err
			}
			if err := s.CanPublish(&states[0]); err != nil {
				return false, err
			}
			like := PlannedTopic{
				Name: name, Partitions: int32(len(states[0].Partitions)), Replication: int16(states[0].Replication()),
			}
			if like.Configs, err = ownConfigs(ctx, client, s.Topics.Events); err != nil {
				return false, err
			}
			return true, s.maker(client).create(ctx, []PlannedTopic{like})
		})
}
