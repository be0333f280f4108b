package kafkaclient

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
)

// defaultRetention is Kafka's own. It is assumed where the topic's cannot be
// read: a time too careful is restamped and counted, one too bold is deleted.
const defaultRetention = 7 * 24 * time.Hour

// Settings is what a topic allows, as far as records depend on it.
type Settings struct {
	// Known is false where we may not read the topic's configuration.
	Known bool
	// MaxMessage is the largest record batch, in bytes.
	MaxMessage int
	// AppendTime: the broker stamps records itself.
	AppendTime bool
	Compacted  bool // keeps the newest record of each key only
	// Retention is ForEver or how long records are kept.
	Retention time.Duration
	// Sized: old records are deleted when there are too many bytes.
	Sized bool
	// Before and After bound how far a record's time may be from the broker's.
	Before, After time.Duration
}

// KeepsAll reports whether the topic deletes no records by itself.
func (t *Settings) KeepsAll() bool {
	return t.Known && t.Retention == ForEver && !t.Sized && !t.Compacted
}

// ForEver is the retention of a topic that keeps its records.
const ForEver time.Duration = -1

// Unbounded stands for limits that no time reaches.
const Unbounded = time.Duration(math.MaxInt64)

// Topic is a topic as the cluster describes it.
type Topic struct {
	Name       string
	ID         [16]byte // a topic that is made anew has another
	Exists     bool     // else all below is zero
	Partitions []kmsg.MetadataResponseTopicPartition
	// Operations is the bit set of what we may do, 0 if the brokers do not say.
	Operations int32
	// Settings are read from Configs, or assumed; Describe knows them.
	Settings Settings
	Configs  map[string]string
}

// Replication returns the topic's replication factor.
func (t *Topic) Replication() int {
	if len(t.Partitions) == 0 {
		return 0
	}
	return len(t.Partitions[0].Replicas)
}

// May reports whether we are allowed the operation, or cannot know.
func (t *Topic) May(op kmsg.ACLOperation) bool {
	return t.Operations == 0 || t.Operations&(1<<op) != 0
}

// missingTries is how often a missing topic is looked for again.
const missingTries = 4

// Find is Describe, but a topic is missing only when it stays so for a moment: a
// broker may not know yet what another has just created.
func (c *Client) Find(ctx context.Context, names ...string) ([]Topic, error) {
	for try := 0; ; try++ {
		topics, err := c.Describe(ctx, names...)
		if err != nil || try == missingTries || !slices.ContainsFunc(topics, func(t Topic) bool { return !t.Exists }) {
			return topics, err
		}
		bridge.Sleep(ctx, metadataMinAge)
	}
}

// Exists reports whether there is a topic of this name. Errors are Faults.
func (c *Config) Exists(ctx context.Context, topic string) (bool, error) {
	return With(ctx, c, topic, func(ctx context.Context, client *Client) (bool, error) {
		topics, err := client.Identify(ctx, topic)
		return err == nil && topics[0].Exists, err
	})
}

// Describe asks the cluster about topics and their settings. It returns them in
// the order of their names.
func (c *Client) Describe(ctx context.Context, names ...string) ([]Topic, error) {
	topics, err := c.Identify(ctx, names...)
	if err != nil {
		return nil, err
	}
	return topics, c.readSettings(ctx, topics)
}

// Identify is Describe without the settings: one request.
func (c *Client) Identify(ctx context.Context, names ...string) ([]Topic, error) {
	if len(names) == 0 {
		return nil, nil // a request without names asks for every topic of the cluster
	}
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	var states []Topic
	for _, name := range names {
		i := slices.IndexFunc(resp.Topics, func(t kmsg.MetadataResponseTopic) bool { return t.Topic != nil && *t.Topic == name })
		if i < 0 {
			return nil, fmt.Errorf("describe topic %s: missing from the response", name)
		}
		t := resp.Topics[i]
		state := Topic{Name: name, ID: t.TopicID, Partitions: t.Partitions}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil:
			state.Exists = true
		case errors.Is(err, kerr.UnknownTopicOrPartition):
		default:
			return nil, c.cfg.Fault(fmt.Errorf("describe topic %s: %w", name, err), name)
		}
		if t.AuthorizedOperations > 0 {
			state.Operations = t.AuthorizedOperations
		}
		states = append(states, state)
	}
	return states, nil
}

// readSettings fills in the configurations of the topics that exist. One that
// we may not read keeps the assumed settings.
func (c *Client) readSettings(ctx context.Context, states []Topic) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	byName := make(map[string]*Topic)
	for i := range states {
		states[i].Settings = c.assumed()
		if !states[i].Exists {
			continue
		}
		byName[states[i].Name] = &states[i]
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, states[i].Name
		req.Resources = append(req.Resources, r)
	}
	if len(byName) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, c)
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
			return fmt.Errorf("read settings of topic %s: %w", t.Name, err)
		}
	}
	return nil
}

func (t *Topic) adopt(configs []kmsg.DescribeConfigsResponseResourceConfig) {
	t.Configs = make(map[string]string, len(configs))
	for i := range configs {
		if v := configs[i].Value; v != nil {
			t.Configs[configs[i].Name] = *v
		}
	}
	t.Settings = settingsFrom(t.Settings, t.Configs)
}

// assumed returns the settings of a topic whose configuration is hidden.
func (c *Client) assumed() Settings {
	return Settings{MaxMessage: int(c.cfg.MaxMessage), Retention: defaultRetention, Before: Unbounded, After: Unbounded}
}

// settingsFrom reads a topic's configuration. What it does not name keeps the
// value of base.
func settingsFrom(base Settings, configs map[string]string) Settings {
	t := base
	t.Known = true
	t.Compacted = strings.Contains(configs["cleanup.policy"], "compact")
	t.AppendTime = configs["message.timestamp.type"] == "LogAppendTime"
	if n, err := strconv.Atoi(configs["max.message.bytes"]); err == nil && n > 0 {
		t.MaxMessage = min(n, maxBatch)
	}
	if d, ok := configMillis(configs, "retention.ms"); ok {
		t.Retention = d
	}
	if bytes, err := strconv.ParseInt(configs["retention.bytes"], 10, 64); err == nil {
		t.Sized = bytes >= 0
	}
	// Brokers before 3.6 have one limit for both sides.
	for _, limit := range []struct {
		name string
		set  func(time.Duration)
	}{
		{"message.timestamp.difference.max.ms", func(d time.Duration) { t.Before, t.After = min(t.Before, d), min(t.After, d) }},
		{"message.timestamp.before.max.ms", func(d time.Duration) { t.Before = min(t.Before, d) }},
		{"message.timestamp.after.max.ms", func(d time.Duration) { t.After = min(t.After, d) }},
	} {
		if d, ok := configMillis(configs, limit.name); ok && d >= 0 {
			limit.set(d)
		}
	}
	return t
}

// Millis reads a setting of the topic in milliseconds, and whether it has it.
// Negative ones mean for ever.
func (t *Topic) Millis(name string) (time.Duration, bool) { return configMillis(t.Configs, name) }

func configMillis(configs map[string]string, name string) (time.Duration, bool) {
	n, err := strconv.ParseInt(configs[name], 10, 64)
	switch {
	case err != nil:
		return 0, false
	case n < 0:
		return ForEver, true
	case n > math.MaxInt64/int64(time.Millisecond):
		return Unbounded, true
	default:
		return time.Duration(n) * time.Millisecond, true
	}
}

// State is the topic as the engine knows it, without offsets.
func (t *Topic) State(letters bool) bridge.TopicState {
	s := bridge.TopicState{Name: t.Name, DeadLetters: letters, Partitions: len(t.Partitions), KeepsAll: t.Settings.KeepsAll()}
	if t.ID != ([16]byte{}) {
		s.ID = base64.RawURLEncoding.EncodeToString(t.ID[:]) // as Kafka's tools print it
	}
	return s
}

// Troubles names what keeps partitions from taking records.
func (t *Topic) Troubles() []string {
	if !t.Exists {
		return []string{"topic " + t.Name + " does not exist"}
	}
	var leaderless, short []int32
	for i := range t.Partitions {
		p := &t.Partitions[i]
		switch {
		case p.Leader < 0:
			leaderless = append(leaderless, p.Partition)
		case len(p.ISR) < len(p.Replicas):
			short = append(short, p.Partition)
		}
	}
	var out []string
	list := func(what string, partitions []int32) {
		if len(partitions) > 0 {
			slices.Sort(partitions)
			out = append(out, fmt.Sprintf("topic %s has %s %v", t.Name, what, partitions))
		}
	}
	list("no leader for partitions", leaderless)
	list("replicas out of sync in partitions", short)
	return out
}
