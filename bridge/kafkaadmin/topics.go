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

// createTimeout is how long the brokers may take to create topics.
const createTimeout = 5 * time.Second

// shownConfigs are the settings of an existing topic that matter to us.
var shownConfigs = []string{"cleanup.policy", "max.message.bytes", "message.timestamp.type", "min.insync.replicas", "retention.ms"}

// Plan compares the cluster with what the stream needs and changes nothing.
// Errors are Faults. Brokers that do not answer are not waited for.
func (s *Stream) Plan(ctx context.Context) (TopicPlan, error) {
	return kafkaclient.With(ctx, &s.Config, s.Topics.Events, s.plan)
}

// Create creates the topics that do not exist, the one of the jobs too, and
// returns the plan as it was carried out. Topics that exist stay as they are; repeating is safe.
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
	enough := s.Topics.compacted(state.Name) && have.Partitions > want.Partitions
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
func (s *Stream) wanted(name string, replicas int) PlannedTopic {
	if s.Topics.compacted(name) {
		return s.wantedCheckpoints(name, replicas)
	}
	retention, _ := parseRetention(s.Retention) // Validate has seen it
	millis := int64(-1)
	if retention != kafkaclient.ForEver {
		millis = retention.Milliseconds()
	}
	t := PlannedTopic{
		Name: name, Partitions: s.Partitions, Replication: s.Replication,
		Configs: map[string]string{"cleanup.policy": "delete", "retention.ms": strconv.FormatInt(millis, 10)},
	}
	if replicas >= 3 {
		t.Configs["min.insync.replicas"] = "2" // one broker may be away, and no record is on one disk only
	}
	return t
}

// replicas returns how many replicas a new topic will have, or 0 if we may not
// know the brokers' default.
func (s *Stream) replicas(ctx context.Context, client *kafkaclient.Client) int {
	if s.Replication > 0 {
		return int(s.Replication)
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

// create creates those of the topics that do not exist and waits until the
// brokers know them.
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

// compactionLag keeps every checkpoint for a week, so that losing Redis, which
// holds the history, does not take away the means to go back.
const compactionLag = 7 * 24 * time.Hour

// wantedCheckpoints is a topic of checkpoints as we create it. Small segments
// that end soon keep it compacted: what is not compacted is read at a start.
func (s *Stream) wantedCheckpoints(name string, replicas int) PlannedTopic {
	t := PlannedTopic{
		Name: name, Partitions: kafkaclient.CheckpointPartitions, Replication: s.Replication,
		Configs: map[string]string{
			"cleanup.policy":            "compact",
			"min.compaction.lag.ms":     strconv.FormatInt(compactionLag.Milliseconds(), 10),
			"segment.bytes":             strconv.Itoa(16 << 20),
			"segment.ms":                strconv.FormatInt((10 * time.Minute).Milliseconds(), 10),
			"min.cleanable.dirty.ratio": "0.1",
		},
	}
	if replicas >= 3 {
		t.Configs["min.insync.replicas"] = "2" // an acknowledged checkpoint is on two disks
	}
	return t
}

// MakeCheckpoints creates the checkpoint topic for a stream that is new. Where
// the topic of the events holds some already, the checkpoints were lost: a new
// and empty topic would hide that.
func (s *Stream) MakeCheckpoints(ctx context.Context, client *kafkaclient.Client) error {
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
	return s.Make(ctx, client, s.Topics.Checkpoints)
}

// CreateLike creates a topic as the topic of the events is: as many partitions
// and replicas, and what its settings say that is not the brokers' default. It
// reports whether it did: one that exists stays as it is. Errors are Faults.
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

// ownConfigs returns the settings that were made for a topic itself.
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
