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

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
)

// defaultRetention is Kafka's default. It is assumed for a topic whose settings
// cannot be read: overestimating retention would lose records, underestimating
// it only restamps them.
const defaultRetention = 7 * 24 * time.Hour

// Settings are the settings of a topic that affect records.
type Settings struct {
	// Known is false if the topic's configuration is not readable.
	Known bool
	// MaxMessage is the maximum record batch size in bytes.
	MaxMessage int
	// AppendTime is set if the broker sets record timestamps (LogAppendTime).
	AppendTime bool
	Compacted  bool // keeps the newest record of each key only
	Deletes    bool // deletes records after Retention, or by size
	// Retention is the retention time, or ForEver.
	Retention time.Duration
	// Sized: retention by size deletes old records.
	Sized bool
	// Before and After bound the distance of a record's timestamp from the
	// broker's time.
	Before, After time.Duration
}

// KeepsAll reports whether the topic never deletes records.
func (s *Settings) KeepsAll() bool {
	return s.Known && s.Retention == ForEver && !s.Sized && !s.Compacted
}

// ForEver is unlimited retention.
const ForEver time.Duration = -1

// Unbounded is a limit that no time reaches.
const Unbounded = time.Duration(math.MaxInt64)

// Topic is the cluster's description of a topic.
type Topic struct {
	Name       string
	ID         [16]byte // changes when the topic is recreated
	Exists     bool     // if false, the fields below are zero
	Partitions []Partition
	// Operations is the bit set of authorized operations, 0 if unknown.
	Operations int32
	// Settings are taken from Configs, or assumed; only Describe sets them.
	Settings Settings
	Configs  map[string]string
}

// Partition is the state of a partition, without the brokers' ids: a session keeps it
// for as long as it lasts.
type Partition struct {
	ID, Leader       int32 // Leader is negative if there is none
	Replicas, InSync int
}

func partitionsOf(answers []kmsg.MetadataResponseTopicPartition) []Partition {
	all := make([]Partition, len(answers))
	for i := range answers {
		p := &answers[i]
		all[i] = Partition{ID: p.Partition, Leader: p.Leader, Replicas: len(p.Replicas), InSync: len(p.ISR)}
	}
	return all
}

// Replication returns the topic's replication factor.
func (t *Topic) Replication() int {
	if len(t.Partitions) == 0 {
		return 0
	}
	return t.Partitions[0].Replicas
}

// may reports whether the operation is authorized, or unknown.
func (t *Topic) may(op kmsg.ACLOperation) bool {
	return t.Operations == 0 || t.Operations&(1<<op) != 0
}

// missingTries bounds the lookups of a missing topic.
const missingTries = 4

// Find is Describe with retries for missing topics: a broker may not know yet
// about a topic just created by another one.
func (c *Client) Find(ctx context.Context, names ...string) ([]Topic, error) {
	for try := 0; ; try++ {
		topics, err := c.Describe(ctx, names...)
		if err != nil || try == missingTries || !slices.ContainsFunc(topics, func(t Topic) bool { return !t.Exists }) {
			return topics, err
		}
		bridge.Sleep(ctx, metadataMinAge)
	}
}

// Exists reports whether the topic exists. Errors are Faults.
func (c *Config) Exists(ctx context.Context, topic string) (bool, error) {
	return With(ctx, c, topic, func(ctx context.Context, client *Client) (bool, error) {
		topics, err := client.Identify(ctx, topic)
		return err == nil && topics[0].Exists, err
	})
}

// TopicNames returns the names of all topics that the client may see, without
// internal ones. Errors are Faults.
func (c *Config) TopicNames(ctx context.Context) ([]string, error) {
	return With(ctx, c, "", func(ctx context.Context, client *Client) ([]string, error) {
		all, err := kadm.NewClient(client.Client).ListTopics(ctx)
		return all.Names(), err
	})
}

// Describe returns the description and settings of topics, in the order of
// names. Without names it returns none. A topic exists if the brokers that are
// asked know it.
func (c *Client) Describe(ctx context.Context, names ...string) ([]Topic, error) {
	topics, err := c.Identify(ctx, names...)
	if err != nil {
		return nil, err
	}
	return topics, c.readSettings(ctx, c, topics)
}

// DescribeAgain is Describe for a client that reads the bounds of the first topic too. It asks a
// leader for the settings if that responds: any other broker, and a seed in every second case,
// would take another connection.
func (c *Client) DescribeAgain(ctx context.Context, names ...string) ([]Topic, error) {
	topics, err := c.Identify(ctx, names...)
	if err != nil {
		return nil, err
	}
	if all := topics[0].Partitions; len(all) > 0 && c.readSettings(ctx, c.Broker(int(all[0].Leader)), topics) == nil {
		return topics, nil
	}
	return topics, c.readSettings(ctx, c, topics)
}

// Identify is Describe without settings, in one request.
func (c *Client) Identify(ctx context.Context, names ...string) ([]Topic, error) {
	if len(names) == 0 {
		return nil, nil // a request without names asks for every topic of the cluster
	}
	req := metadataRequest(names)
	req.IncludeTopicAuthorizedOperations = true
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	var states []Topic
	var denied []string
	for _, name := range names {
		i := slices.IndexFunc(resp.Topics, func(t kmsg.MetadataResponseTopic) bool {
			return t.Topic != nil && *t.Topic == name
		})
		if i < 0 {
			return nil, fmt.Errorf("describe topic %s: missing from the response", name)
		}
		t := resp.Topics[i]
		state := Topic{Name: name, ID: t.TopicID, Partitions: partitionsOf(t.Partitions)}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil:
			state.Exists = true
		case IsMissing(err):
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			denied = append(denied, name)
		default:
			return nil, c.cfg.Fault(fmt.Errorf("describe topic %s: %w", name, err), name)
		}
		if t.AuthorizedOperations > 0 {
			state.Operations = t.AuthorizedOperations
		}
		states = append(states, state)
	}
	if len(denied) > 0 { // an administrator is asked once
		fault := c.cfg.Fault(fmt.Errorf("describe %s: %w", topicsText(denied), kerr.TopicAuthorizationFailed), denied[0])
		if len(denied) > 1 { // those of a stream, which reads them back
			fault.Hint = c.cfg.Grant(toWrite + " " + toRead + onTopics(denied))
		}
		return nil, fault
	}
	return states, nil
}

func metadataRequest(names []string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(name)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// readSettings reads the configurations of the topics that exist. Settings that are not
// readable are assumed.
func (c *Client) readSettings(ctx context.Context, from kmsg.Requestor, states []Topic) error {
	assumed := Settings{MaxMessage: int(c.cfg.MaxMessage), Retention: defaultRetention, Before: Unbounded, After: Unbounded}
	req := kmsg.NewPtrDescribeConfigsRequest()
	byName := make(map[string]*Topic)
	for i := range states {
		states[i].Settings = assumed
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
	resp, err := req.RequestWith(ctx, from)
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
		case IsMissing(err):
			t.Exists = false // for this broker, as in Identify: it is new or just gone
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

// settingsFrom parses a topic's configuration. Absent settings keep the value of t.
func settingsFrom(t Settings, configs map[string]string) Settings {
	t.Known = true
	t.Compacted = strings.Contains(configs["cleanup.policy"], "compact")
	t.Deletes = strings.Contains(configs["cleanup.policy"], "delete")
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
		{"message.timestamp.difference.max.ms", func(d time.Duration) {
			t.Before, t.After = min(t.Before, d), min(t.After, d)
		}},
		{"message.timestamp.before.max.ms", func(d time.Duration) { t.Before = min(t.Before, d) }},
		{"message.timestamp.after.max.ms", func(d time.Duration) { t.After = min(t.After, d) }},
	} {
		if d, ok := configMillis(configs, limit.name); ok && d >= 0 {
			limit.set(d)
		}
	}
	return t
}

// Millis returns a topic setting in milliseconds, and whether it is present.
// Negative values are ForEver.
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

// State returns the engine's view of the topic, without offsets.
func (t *Topic) State(letters bool) bridge.TopicState {
	s := bridge.TopicState{Name: t.Name, DeadLetters: letters, Partitions: len(t.Partitions),
		KeepsAll: t.Settings.KeepsAll()}
	if t.ID != ([16]byte{}) {
		s.ID = base64.RawURLEncoding.EncodeToString(t.ID[:]) // as Kafka's tools print it
	}
	return s
}

// Troubles describes partitions that cannot take records.
func (t *Topic) Troubles() []string {
	if !t.Exists {
		return []string{"topic " + t.Name + " does not exist"}
	}
	var leaderless, short []int32
	for i := range t.Partitions {
		p := &t.Partitions[i]
		switch {
		case p.Leader < 0:
			leaderless = append(leaderless, p.ID)
		case p.InSync < p.Replicas:
			short = append(short, p.ID)
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
