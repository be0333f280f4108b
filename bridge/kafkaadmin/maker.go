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

// createTimeout bounds topic creation by the brokers.
const createTimeout = 5 * time.Second

// maker creates topics according to the layout.
type maker struct {
	client *kafkaclient.Client
	cfg    *kafkaclient.Config
	layout *Layout
	topics *kafkaclient.Topics
}

func (s *Stream) maker(client *kafkaclient.Client) *maker {
	return &maker{client, &s.Config, &s.Layout, &s.Topics}
}

// compacted reports whether a topic holds checkpoints.
func (m *maker) compacted(name string) bool {
	return name == m.topics.Checkpoints || name == m.topics.Jobs
}

// wanted returns the definition of a topic. replicas is the expected replication factor, 0
// if unknown.
func (m *maker) wanted(name string, replicas int) PlannedTopic {
	t := PlannedTopic{Name: name, Replication: m.layout.Replication}
	switch {
	case m.compacted(name):
		t.Partitions, t.Configs = kafkaclient.CheckpointPartitions, checkpointConfigs()
	case name == m.topics.Keys:
		t.Partitions, t.Configs = 1, keyConfigs()
	case name == m.topics.Attest: // a chain of few records, none of which may be deleted
		t.Partitions, t.Configs = 1, map[string]string{"cleanup.policy": "delete", "retention.ms": "-1"}
	default:
		retention, _ := parseRetention(m.layout.Retention) // Validate has checked it
		millis := int64(-1)
		if retention != kafkaclient.ForEver {
			millis = retention.Milliseconds()
		}
		t.Partitions = m.layout.Partitions
		t.Configs = map[string]string{"cleanup.policy": "delete", "retention.ms": strconv.FormatInt(millis, 10)}
	}
	if replicas >= 3 {
		t.Configs["min.insync.replicas"] = "2" // one broker may be down, and each record is on two disks
	}
	return t
}

// compactionLag keeps every checkpoint for a week, so that a rewind remains possible after
// the loss of Redis, which holds the history.
const compactionLag = 7 * 24 * time.Hour

// checkpointConfigs returns the settings of a checkpoint topic. Small, short-lived segments
// keep it compacted, because each start of a session reads the part that is not compacted.
func checkpointConfigs() map[string]string {
	return map[string]string{
		"cleanup.policy":            "compact",
		"min.compaction.lag.ms":     strconv.FormatInt(compactionLag.Milliseconds(), 10),
		"segment.bytes":             strconv.Itoa(16 << 20),
		"segment.ms":                strconv.FormatInt((10 * time.Minute).Milliseconds(), 10),
		"min.cleanable.dirty.ratio": "0.1",
	}
}

// keyConfigs returns the settings of a topic of keys. With them, a deleted key soon leaves
// the disks.
func keyConfigs() map[string]string {
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return map[string]string{
		"cleanup.policy":            "compact",
		"max.compaction.lag.ms":     millis(kafkaclient.KeyCompaction),
		"segment.ms":                millis(kafkaclient.KeySegment),
		"min.cleanable.dirty.ratio": "0.01",
	}
}

// replicas returns the replication factor of new topics, or 0 if the brokers' default
// cannot be read.
func (m *maker) replicas(ctx context.Context) int {
	if m.layout.Replication > 0 {
		return int(m.layout.Replication)
	}
	admin := kadm.NewClient(m.client.Client)
	cluster, err := admin.BrokerMetadata(ctx) // ListBrokers would request all topics too
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
				n, _ := strconv.Atoi(c.MaybeValue()) // 0 means unknown
				return min(n, len(brokers))
			}
		}
	}
	return 0
}

// planned compares a topic with its definition.
func (m *maker) planned(state *kafkaclient.Topic, replicas int) PlannedTopic {
	want := m.wanted(state.Name, replicas)
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
	enough := m.compacted(state.Name) && have.Partitions > want.Partitions
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

// make creates topics of the stream.
func (m *maker) make(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	var topics []PlannedTopic
	replicas := m.replicas(ctx)
	for _, name := range names {
		topics = append(topics, m.wanted(name, replicas))
	}
	return m.create(ctx, topics)
}

// create creates those topics that do not exist and waits until the brokers
// know them.
func (m *maker) create(ctx context.Context, topics []PlannedTopic) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(createTimeout.Milliseconds())
	var names []string
	for i := range topics {
		if !topics[i].Lacks() {
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
	resp, err := req.RequestWith(ctx, m.client)
	if err != nil {
		return fmt.Errorf("create topics %v: %w", names, err)
	}
	for i := range resp.Topics {
		if err := m.createError(&resp.Topics[i]); err != nil {
			return err
		}
	}
	return awaitTopics(ctx, m.client, names)
}

// createError returns the fault of a topic that was not created.
func (m *maker) createError(t *kmsg.CreateTopicsResponseTopic) error {
	err := kerr.ErrorForCode(t.ErrorCode)
	if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	if t.ErrorMessage != nil {
		err = fmt.Errorf("%w (%s)", err, *t.ErrorMessage)
	}
	f := m.cfg.Fault(fmt.Errorf("create topic %s: %w", t.Topic, err), t.Topic)
	if f.Reason == bridge.ReasonAuth {
		f.Hint = m.cfg.GrantCreate(t.Topic)
	}
	return f
}

// awaitTopics waits until every partition has a leader.
func awaitTopics(ctx context.Context, client *kafkaclient.Client, names []string) error {
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
		// These settings of throttled replicas name the partitions of one topic.
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig && c.Value != nil &&
			!strings.HasSuffix(c.Key, "throttled.replicas") {
			own[c.Key] = *c.Value
		}
	}
	return own, nil
}
