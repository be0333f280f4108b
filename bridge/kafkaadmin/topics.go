package kafkaadmin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// TopicPlan compares what the stream needs with the cluster.
type TopicPlan struct {
	// Topics are all topics of the stream, existing or not.
	Topics []PlannedTopic `json:"topics"`
	// ACLs are the commands that grant what the stream needs, ready to paste.
	// The principal is KAFKA_SASL_USERNAME or a placeholder.
	ACLs []string `json:"acls"`
	// JobACLs are the additional grants of replay, backfill and repairs.
	JobACLs []string `json:"job_acls,omitempty"`
}

// PlannedTopic is one topic of a TopicPlan.
type PlannedTopic struct {
	// Name is the topic's name; Exists tells whether it exists. Role is
	// "events", "dead letters", "checkpoints" or "jobs".
	Name   string `json:"name"`
	Role   string `json:"role"`
	Exists bool   `json:"exists"`
	// OnDemand is true for the job topic: the first job creates it.
	OnDemand bool `json:"on_demand,omitempty"`
	// Partitions, Replication and Configs are those of an existing topic, or
	// those it will be created with. Replication -1 is the brokers' default.
	// Configs lists only relevant settings.
	Partitions  int32             `json:"partitions"`
	Replication int16             `json:"replication"`
	Configs     map[string]string `json:"configs,omitempty"`
	// Differences lists where an existing topic differs from the plan. Create
	// does not change them.
	Differences []string `json:"differences,omitempty"`
}

// Missing counts the required topics that do not exist.
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

// createTimeout bounds topic creation by the brokers.
const createTimeout = 5 * time.Second

// shownConfigs are the relevant settings of an existing topic.
var shownConfigs = []string{"cleanup.policy", "max.message.bytes", "message.timestamp.type", "min.insync.replicas", "retention.ms"}

// Plan compares the cluster with the stream's needs and changes nothing. Errors
// are Faults. Unresponsive brokers are not retried.
func (s *Stream) Plan(ctx context.Context) (TopicPlan, error) {
	return kafkaclient.With(ctx, &s.Config, s.Topics.Events, s.plan)
}

// Create creates the missing topics, the job topic included, and returns the
// resulting plan. It does not change existing topics, and is idempotent.
func (s *Stream) Create(ctx context.Context) (TopicPlan, error) {
	return kafkaclient.With(ctx, &s.Config, s.Topics.Events, func(ctx context.Context, client *kafkaclient.Client) (TopicPlan, error) {
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

func (s *Stream) plan(ctx context.Context, client *kafkaclient.Client) (TopicPlan, error) {
	topics, err := s.Topics.Describe(client.Describe(ctx, s.Topics.All()...))
	if err != nil {
		return TopicPlan{}, err
	}
	plan := TopicPlan{ACLs: s.ACLs(), JobACLs: s.JobACLs()}
	replicas := s.replicas(ctx, client)
	add := func(role string, state *kafkaclient.Topic) {
		if state != nil {
			t := s.planned(state, replicas)
			t.Role, t.OnDemand = role, state == topics.Jobs
			plan.Topics = append(plan.Topics, t)
		}
	}
	add("events", topics.Events)
	add("dead letters", topics.DeadLetters)
	add("checkpoints", topics.Checkpoints)
	add("jobs", topics.Jobs)
	return plan, nil
}

func (s *Stream) planned(state *kafkaclient.Topic, replicas int) PlannedTopic {
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
		have.Differences = append(have.Differences, fmt.Sprintf("%s is %s, expected %s", what, has, wants))
	}
	enough := s.compacted(state.Name) && have.Partitions > want.Partitions
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

// compacted reports whether a topic holds checkpoints.
func (s *Stream) compacted(name string) bool {
	return name == s.Topics.Checkpoints || name == s.Topics.Jobs
}

// wanted is the definition of a topic. replicas is its expected replication
// factor, 0 if unknown.
func (s *Stream) wanted(name string, replicas int) PlannedTopic {
	t := PlannedTopic{Name: name, Replication: s.Replication}
	if s.compacted(name) {
		t.Partitions, t.Configs = kafkaclient.CheckpointPartitions, checkpointConfigs()
	} else {
		retention, _ := parseRetention(s.Retention) // Validate has seen it
		millis := int64(-1)
		if retention != kafkaclient.ForEver {
			millis = retention.Milliseconds()
		}
		t.Partitions = s.Partitions
		t.Configs = map[string]string{"cleanup.policy": "delete", "retention.ms": strconv.FormatInt(millis, 10)}
	}
	if replicas >= 3 {
		t.Configs["min.insync.replicas"] = "2" // one broker may be away, and no record is on one disk only
	}
	return t
}

// replicas returns the replication factor of new topics, or 0 if the brokers'
// default is not readable.
func (s *Stream) replicas(ctx context.Context, client *kafkaclient.Client) int {
	if s.Replication > 0 {
		return int(s.Replication)
	}
	admin := kadm.NewClient(client.Client)
	cluster, err := admin.BrokerMetadata(ctx) // ListBrokers asks for all topics too
	brokers := cluster.Brokers
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

// createMissing creates the missing topics, except those that a checkpoint
// proves existed; the checkpoint topic last, and only for a new stream.
func (s *Stream) createMissing(ctx context.Context, client *kafkaclient.Client) error {
	topics, err := s.Topics.Describe(client.Describe(ctx, s.Topics.Needed()...))
	if err != nil {
		return err
	}
	gone, err := s.vanished(ctx, client, &topics)
	if err != nil {
		return err
	}
	var missing []string
	for _, t := range topics.Published() {
		if _, known := gone[t.Name]; !t.Exists && !known {
			missing = append(missing, t.Name)
		}
	}
	if err := s.Make(ctx, client, missing...); err != nil || topics.Checkpoints.Exists {
		return err
	}
	return s.MakeCheckpoints(ctx, client)
}

// Make creates topics of the stream.
func (s *Stream) Make(ctx context.Context, client *kafkaclient.Client, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	var topics []PlannedTopic
	replicas := s.replicas(ctx, client)
	for _, name := range names {
		topics = append(topics, s.wanted(name, replicas))
	}
	return s.create(ctx, client, topics)
}

// create creates those topics that do not exist and waits until the brokers
// know them.
func (s *Stream) create(ctx context.Context, client *kafkaclient.Client, topics []PlannedTopic) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(createTimeout.Milliseconds())
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

func (s *Stream) createError(t *kmsg.CreateTopicsResponseTopic) error {
	err := kerr.ErrorForCode(t.ErrorCode)
	if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	if t.ErrorMessage != nil {
		err = fmt.Errorf("%w (%s)", err, *t.ErrorMessage)
	}
	f := s.Fault(fmt.Errorf("create topic %s: %w", t.Topic, err), t.Topic)
	if f.Reason == bridge.ReasonAuth {
		f.Hint = s.GrantCreate(t.Topic)
	}
	return f
}

// awaitTopics waits until every partition has a leader.
func (s *Stream) awaitTopics(ctx context.Context, client *kafkaclient.Client, names []string) error {
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
		bridge.Sleep(ctx, 100*time.Millisecond)
	}
}

// compactionLag keeps every checkpoint for a week, so that a rewind remains
// possible after losing Redis, which holds the history.
const compactionLag = 7 * 24 * time.Hour

// checkpointConfigs are the settings of a checkpoint topic. Small, short-lived
// segments keep it compacted: a start reads what is not compacted.
func checkpointConfigs() map[string]string {
	return map[string]string{
		"cleanup.policy":            "compact",
		"min.compaction.lag.ms":     strconv.FormatInt(compactionLag.Milliseconds(), 10),
		"segment.bytes":             strconv.Itoa(16 << 20),
		"segment.ms":                strconv.FormatInt((10 * time.Minute).Milliseconds(), 10),
		"min.cleanable.dirty.ratio": "0.1",
	}
}

// MakeCheckpoints creates the checkpoint topic of a new stream.
func (s *Stream) MakeCheckpoints(ctx context.Context, client *kafkaclient.Client) error {
	if err := s.checkpointsLost(ctx); err != nil {
		return err
	}
	return s.Make(ctx, client, s.Topics.Checkpoints)
}

// checkpointsLost returns an error if the event topic has events of a stream
// without a checkpoint topic: its checkpoints were lost, and an empty topic would
// hide that.
func (s *Stream) checkpointsLost(ctx context.Context) error {
	holds, err := s.Holds(ctx)
	if err != nil && !kafkaclient.IsMissing(err) { // the topic of the events may be missing too
		return err
	}
	if holds {
		return s.Advise(&bridge.Fault{
			Class: bridge.Permanent, Reason: bridge.ReasonTopic, Code: "checkpoint_topic_lost",
			Err: fmt.Errorf("topic %s does not exist, but topic %s already holds events of stream %s",
				s.Topics.Checkpoints, s.Topics.Events, s.Name),
		}, bridge.HintCheckpointTopicLost)
	}
	return nil
}

// CreateLike creates a topic with the event topic's partitions, replicas and
// non-default settings, and reports whether it did: an existing topic is not
// changed. Errors are Faults.
func (s *Stream) CreateLike(ctx context.Context, name string) (bool, error) {
	return kafkaclient.With(ctx, &s.Config, s.Topics.Events, func(ctx context.Context, client *kafkaclient.Client) (bool, error) {
		states, err := client.Describe(ctx, s.Topics.Events, name)
		if err != nil || states[1].Exists {
			return false, err
		}
		if err := s.CanPublish(&states[0]); err != nil {
			return false, err
		}
		like := PlannedTopic{Name: name, Partitions: int32(len(states[0].Partitions)), Replication: int16(states[0].Replication())}
		if like.Configs, err = ownConfigs(ctx, client, s.Topics.Events); err != nil {
			return false, err
		}
		return true, s.create(ctx, client, []PlannedTopic{like})
	})
}

// ownConfigs returns a topic's own settings.
func ownConfigs(ctx context.Context, client *kafkaclient.Client, topic string) (map[string]string, error) {
	all, err := kadm.NewClient(client.Client).DescribeTopicConfigs(ctx, topic)
	var described kadm.ResourceConfig
	if err == nil {
		described, err = all.On(topic, nil)
	}
	if err = errors.Join(err, described.Err); err != nil {
		return nil, fmt.Errorf("read settings of topic %s: %w", topic, err)
	}
	own := make(map[string]string)
	for _, c := range described.Configs {
		// Which replicas are throttled is about the partitions of that topic.
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig && c.Value != nil && !strings.HasSuffix(c.Key, "throttled.replicas") {
			own[c.Key] = *c.Value
		}
	}
	return own, nil
}
