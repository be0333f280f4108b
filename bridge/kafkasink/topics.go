package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// TopicPlan says what the stream needs of the cluster, and what is there.
type TopicPlan struct {
	// Topics are all that a stream needs, existing or not.
	Topics []PlannedTopic `json:"topics"`
	// ACLs are the commands that grant what the stream needs, ready to paste.
	// The principal is KAFKA_SASL_USERNAME, or to be filled in.
	ACLs []string `json:"acls"`
	// JobACLs grant what replay, backfill and repairs need besides.
	JobACLs []string `json:"job_acls,omitempty"`
}

// PlannedTopic is one topic of a TopicPlan.
type PlannedTopic struct {
	// Name is the topic's; Exists says whether it is there. Role is "events",
	// "dead letters", "checkpoints" or "jobs".
	Name   string `json:"name"`
	Role   string `json:"role"`
	Exists bool   `json:"exists"`
	// OnDemand is true for the topic of the jobs: the first job creates it.
	OnDemand bool `json:"on_demand,omitempty"`
	// Partitions, Replication and Configs are those of an existing topic, or
	// those that the topic will be created with. Replication -1 is the
	// brokers' default. Configs lists only what matters to us.
	Partitions  int32             `json:"partitions"`
	Replication int16             `json:"replication"`
	Configs     map[string]string `json:"configs,omitempty"`
	// Differences says where an existing topic is not as we would create it.
	// Create changes nothing about them.
	Differences []string `json:"differences,omitempty"`
}

// Missing counts the topics that the stream needs and that do not exist.
func (p *TopicPlan) Missing() int {
	n := 0
	for i := range p.Topics {
		if !p.Topics[i].Exists && !p.Topics[i].OnDemand {
			n++
		}
	}
	return n
}

// complete reports whether Create has nothing to create.
func (p *TopicPlan) complete() bool {
	return !slices.ContainsFunc(p.Topics, func(t PlannedTopic) bool { return !t.Exists })
}

// shownConfigs are the settings of an existing topic that matter to us.
var shownConfigs = []string{"cleanup.policy", "max.message.bytes", "message.timestamp.type", "min.insync.replicas", "retention.ms"}

// Plan compares the cluster with what the stream needs and changes nothing.
// Errors are Faults. Brokers that do not answer are not waited for.
func (s *Sink) Plan(ctx context.Context) (TopicPlan, error) {
	return kafkaclient.With(ctx, &s.cfg.Config, s.cfg.Topic, s.plan)
}

// Create creates the topics that do not exist, the one of the jobs too, and
// returns the plan as it was carried out. Topics that exist stay as they are; repeating is safe.
func (s *Sink) Create(ctx context.Context) (TopicPlan, error) {
	return kafkaclient.With(ctx, &s.cfg.Config, s.cfg.Topic, func(ctx context.Context, client *kafkaclient.Client) (TopicPlan, error) {
		plan, err := s.plan(ctx, client)
		if err != nil || plan.complete() {
			return plan, err
		}
		if err := s.create(ctx, client, plan.Topics); err != nil {
			return plan, err
		}
		return s.plan(ctx, client)
	})
}

func (s *Sink) plan(ctx context.Context, client *kafkaclient.Client) (TopicPlan, error) {
	states, err := client.Describe(ctx, append(s.cfg.allTopics(), s.cfg.jobTopics()...)...)
	if err != nil {
		return TopicPlan{}, err
	}
	plan := TopicPlan{ACLs: s.ACLs(), JobACLs: s.JobACLs()}
	replicas := s.replicas(ctx, client)
	for i := range states {
		t := s.planned(&states[i], replicas)
		switch t.Name {
		case s.cfg.CheckpointTopic:
			t.Role = "checkpoints"
		case s.cfg.Topic:
			t.Role = "events"
		case s.cfg.jobsTopic():
			t.Role, t.OnDemand = "jobs", true
		default:
			t.Role = "dead letters"
		}
		plan.Topics = append(plan.Topics, t)
	}
	return plan, nil
}

func (s *Sink) planned(state *kafkaclient.Topic, replicas int) PlannedTopic {
	want := s.wanted(state.Name, replicas)
	if !state.Exists {
		return want
	}
	have := PlannedTopic{
		Name: state.Name, Exists: true, Configs: make(map[string]string),
		Partitions: int32(len(state.Partitions)), Replication: int16(state.Replication()),
	}
	for _, name := range slices.AppendSeq(slices.Clone(shownConfigs), maps.Keys(want.Configs)) {
		if v, ok := state.Configs[name]; ok {
			have.Configs[name] = v
		}
	}
	differ := func(what, has, wants string) {
		have.Differences = append(have.Differences, fmt.Sprintf("%s is %s, we would set %s", what, has, wants))
	}
	enough := s.cfg.compacted(state.Name) && have.Partitions > want.Partitions
	if have.Partitions != want.Partitions && !enough {
		differ("partitions", strconv.Itoa(int(have.Partitions)), strconv.Itoa(int(want.Partitions)))
	}
	if want.Replication > 0 && have.Replication != want.Replication {
		differ("replication", strconv.Itoa(int(have.Replication)), strconv.Itoa(int(want.Replication)))
	}
	for _, name := range slices.Sorted(maps.Keys(want.Configs)) {
		if v, ok := have.Configs[name]; ok && v != want.Configs[name] {
			differ(name, v, want.Configs[name])
		}
	}
	return have
}

// wanted is a topic as we create it. replicas is how many it will have, 0 if
// that is not known.
func (s *Sink) wanted(name string, replicas int) PlannedTopic {
	if s.cfg.compacted(name) {
		return s.wantedCheckpoints(name, replicas)
	}
	retention, _ := parseRetention(s.cfg.Retention) // Validate has seen it
	millis := int64(-1)
	if retention != kafkaclient.ForEver {
		millis = retention.Milliseconds()
	}
	t := PlannedTopic{
		Name: name, Partitions: s.cfg.Partitions, Replication: s.cfg.Replication,
		Configs: map[string]string{"cleanup.policy": "delete", "retention.ms": strconv.FormatInt(millis, 10)},
	}
	if replicas >= 3 {
		t.Configs["min.insync.replicas"] = "2" // one broker may be away, and no record is on one disk only
	}
	return t
}

// replicas returns how many replicas a new topic will have, or 0 if we may not
// know the brokers' default.
func (s *Sink) replicas(ctx context.Context, client *kafkaclient.Client) int {
	if s.cfg.Replication > 0 {
		return int(s.cfg.Replication)
	}
	admin := kadm.NewClient(client.Client)
	brokers, err := admin.ListBrokers(ctx)
	if err != nil || len(brokers) == 0 {
		return 0
	}
	described, err := admin.DescribeBrokerConfigs(ctx, brokers[0].NodeID)
	if err != nil {
		return 0
	}
	for _, broker := range described {
		for _, c := range broker.Configs {
			if c.Key == "default.replication.factor" {
				n, _ := strconv.Atoi(c.MaybeValue()) // 0 stands for unknown
				return min(n, len(brokers))
			}
		}
	}
	return 0
}

// createMissing creates the topics that are not there, but none that a
// checkpoint says was there; the checkpoints' last, and only for a stream that
// is new.
func (s *Sink) createMissing(ctx context.Context, client *kafkaclient.Client) error {
	states, err := client.Describe(ctx, s.cfg.allTopics()...)
	if err != nil {
		return err
	}
	gone, err := s.vanished(ctx, client, states)
	if err != nil {
		return err
	}
	var missing []PlannedTopic
	replicas := -1
	for i := range states[:len(states)-1] {
		if _, known := gone[states[i].Name]; states[i].Exists || known {
			continue
		}
		if replicas < 0 {
			replicas = s.replicas(ctx, client)
		}
		missing = append(missing, s.wanted(states[i].Name, replicas))
	}
	if len(missing) > 0 {
		if err := s.create(ctx, client, missing); err != nil {
			return err
		}
	}
	if states[len(states)-1].Exists {
		return nil
	}
	return s.ensureCheckpointTopic(ctx, client)
}

// create creates those of the topics that do not exist and waits until the
// brokers know them.
func (s *Sink) create(ctx context.Context, client *kafkaclient.Client, topics []PlannedTopic) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(produceTimeout.Milliseconds())
	var names []string
	for i := range topics {
		if topics[i].Exists {
			continue
		}
		names = append(names, topics[i].Name)
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = topics[i].Name, topics[i].Partitions, topics[i].Replication
		for _, name := range slices.Sorted(maps.Keys(topics[i].Configs)) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = name, new(topics[i].Configs[name])
			t.Configs = append(t.Configs, c)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("create topics %v: %w", names, err)
	}
	for i := range resp.Topics {
		if err := s.createError(&resp.Topics[i]); err != nil {
			return err
		}
	}
	return s.awaitTopics(ctx, client, names)
}

func (s *Sink) createError(t *kmsg.CreateTopicsResponseTopic) error {
	err := kerr.ErrorForCode(t.ErrorCode)
	if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	if t.ErrorMessage != nil {
		err = fmt.Errorf("%w (%s)", err, *t.ErrorMessage)
	}
	f := s.fault(fmt.Errorf("create topic %s: %w", t.Topic, err), t.Topic)
	if f.Reason == bridge.ReasonAuth {
		f.Hint = s.createACL(t.Topic)
	}
	return f
}

// awaitTopics waits until every partition has a leader.
func (s *Sink) awaitTopics(ctx context.Context, client *kafkaclient.Client, names []string) error {
	for {
		states, err := client.Describe(ctx, names...)
		ready := err == nil
		for i := range states {
			ready = ready && states[i].Exists && len(states[i].Troubles()) == 0
		}
		if ready {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for topics %v: %w", names, ctx.Err())
		}
		if kafkaclient.IsAnswer(err) && kafkaclient.IsPermanent(err) {
			return err
		}
		kafkaclient.Pause(ctx, 100*time.Millisecond)
	}
}
