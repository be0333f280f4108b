package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
)

// defaultRetention is Kafka's own. It is assumed where the topic's cannot be
// read: a time too careful is restamped and counted, one too bold is deleted.
const defaultRetention = 7 * 24 * time.Hour

// settings is what a topic allows, as far as records depend on it.
type settings struct {
	// known is false where we may not read the topic's configuration.
	known      bool
	maxMessage int
	// appendTime: the broker stamps records itself.
	appendTime bool
	compacted  bool
	// retention is forEver or how long records are kept.
	retention time.Duration
	// sized: old records are deleted when there are too many bytes.
	sized bool
	// before and after bound how far a record's time may be from the broker's.
	before, after time.Duration
}

// keepsAll reports whether the topic deletes no records by itself.
func (t *settings) keepsAll() bool {
	return t.known && t.retention == forEver && !t.sized && !t.compacted
}

// unbounded stands for limits that no time reaches.
const unbounded = time.Duration(math.MaxInt64)

// topicState is a topic as the cluster describes it.
type topicState struct {
	name       string
	id         [16]byte // a topic that is made anew has another
	exists     bool
	partitions []kmsg.MetadataResponseTopicPartition
	// operations is the bit set of what we may do, 0 if the brokers do not say.
	operations int32
	settings   settings
	configs    map[string]string
}

// replication returns the topic's replication factor.
func (t *topicState) replication() int {
	if len(t.partitions) == 0 {
		return 0
	}
	return len(t.partitions[0].Replicas)
}

// may reports whether we are allowed the operation, or cannot know.
func (t *topicState) may(op kmsg.ACLOperation) bool {
	return t.operations == 0 || t.operations&(1<<op) != 0
}

// describe asks the cluster about the topics.
func (s *Sink) describe(ctx context.Context, client *kgo.Client, names ...string) ([]topicState, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	var states []topicState
	for _, name := range names {
		i := slices.IndexFunc(resp.Topics, func(t kmsg.MetadataResponseTopic) bool { return t.Topic != nil && *t.Topic == name })
		if i < 0 {
			return nil, fmt.Errorf("describe topic %s: the brokers' answer lacks it", name)
		}
		t := resp.Topics[i]
		state := topicState{name: name, id: t.TopicID, partitions: t.Partitions}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil:
			state.exists = true
		case errors.Is(err, kerr.UnknownTopicOrPartition):
		default:
			return nil, s.fault(fmt.Errorf("describe topic %s: %w", name, err), name)
		}
		if t.AuthorizedOperations > 0 {
			state.operations = t.AuthorizedOperations
		}
		states = append(states, state)
	}
	return states, s.readSettings(ctx, client, states)
}

// readSettings fills in the configurations of the topics that exist. One that
// we may not read keeps the assumed settings.
func (s *Sink) readSettings(ctx context.Context, client *kgo.Client, states []topicState) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	byName := make(map[string]*topicState)
	for i := range states {
		states[i].settings = s.assumed()
		if !states[i].exists {
			continue
		}
		byName[states[i].name] = &states[i]
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, states[i].name
		req.Resources = append(req.Resources, r)
	}
	if len(byName) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("read the topics' settings: %w", err)
	}
	for i := range resp.Resources {
		r := &resp.Resources[i]
		t := byName[r.ResourceName]
		if t == nil {
			continue
		}
		switch err := kerr.ErrorForCode(r.ErrorCode); {
		case err == nil:
			t.adopt(r.Configs)
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		default:
			return fmt.Errorf("read settings of topic %s: %w", t.name, err)
		}
	}
	return nil
}

func (t *topicState) adopt(configs []kmsg.DescribeConfigsResponseResourceConfig) {
	t.configs = make(map[string]string, len(configs))
	for i := range configs {
		if v := configs[i].Value; v != nil {
			t.configs[configs[i].Name] = *v
		}
	}
	t.settings = settingsFrom(t.settings, t.configs)
}

// assumed returns the settings of a topic whose configuration is hidden.
func (s *Sink) assumed() settings {
	return settings{maxMessage: int(s.cfg.MaxMessage), retention: defaultRetention, before: unbounded, after: unbounded}
}

// settingsFrom reads a topic's configuration. What it does not name keeps the
// value of base.
func settingsFrom(base settings, configs map[string]string) settings {
	t := base
	t.known = true
	t.compacted = strings.Contains(configs["cleanup.policy"], "compact")
	t.appendTime = configs["message.timestamp.type"] == "LogAppendTime"
	if n, err := strconv.Atoi(configs["max.message.bytes"]); err == nil && n > 0 {
		t.maxMessage = min(n, maxBatch)
	}
	if d, ok := configMillis(configs, "retention.ms"); ok {
		t.retention = d
	}
	if bytes, err := strconv.ParseInt(configs["retention.bytes"], 10, 64); err == nil {
		t.sized = bytes >= 0
	}
	// Brokers before 3.6 have one limit for both sides.
	for _, limit := range []struct {
		name string
		set  func(time.Duration)
	}{
		{"message.timestamp.difference.max.ms", func(d time.Duration) { t.before, t.after = min(t.before, d), min(t.after, d) }},
		{"message.timestamp.before.max.ms", func(d time.Duration) { t.before = min(t.before, d) }},
		{"message.timestamp.after.max.ms", func(d time.Duration) { t.after = min(t.after, d) }},
	} {
		if d, ok := configMillis(configs, limit.name); ok && d >= 0 {
			limit.set(d)
		}
	}
	return t
}

// configMillis reads a setting in milliseconds. Negative ones mean for ever.
func configMillis(configs map[string]string, name string) (time.Duration, bool) {
	n, err := strconv.ParseInt(configs[name], 10, 64)
	switch {
	case err != nil:
		return 0, false
	case n < 0:
		return forEver, true
	case n > math.MaxInt64/int64(time.Millisecond):
		return unbounded, true
	default:
		return time.Duration(n) * time.Millisecond, true
	}
}

// unusable is the fault of a topic that somebody has to put right.
func unusable(reason bridge.Reason, code, hint, format string, args ...any) error {
	return &bridge.Fault{Class: bridge.Permanent, Reason: reason, Code: code, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// usable says why the stream cannot publish to the topic, or returns nil.
func (s *Sink) usable(t *topicState) error {
	switch {
	case !t.exists:
		return unusable(bridge.ReasonTopic, "unknown_topic_or_partition", createHint, "topic %s does not exist", t.name)
	case !t.may(kmsg.ACLOperationWrite):
		return unusable(bridge.ReasonAuth, "topic_authorization_failed", s.writeACL(t.name), "topic %s: we may not write to it", t.name)
	case t.settings.compacted:
		return unusable(bridge.ReasonTopic, "compacted",
			s.alter(t.name, "cleanup.policy=delete"),
			"topic %s is compacted: it would keep one record per key", t.name)
	case t.settings.maxMessage < minMessage:
		return unusable(bridge.ReasonTopic, "max_message_bytes", "raise max.message.bytes; Kafka's default is 1048588",
			"topic %s takes only %d bytes a message, %d are needed", t.name, t.settings.maxMessage, minMessage)
	}
	return nil
}
