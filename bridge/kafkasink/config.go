package kafkasink

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkagroup"
)

// Config says where and how events are published. One made by hand begins with
// DefaultConfig.
type Config struct {
	// Stream names the stream in the header eb-stream.
	Stream string
	// Resource is what the stream exports: events, sessions or users. It
	// decides ce_source and ce_type.
	Resource string
	// Mode is the delivery guarantee.
	Mode bridge.Mode
	// Part, if not nil, says that the Sink publishes a part of what another
	// stream exports, beside that one.
	Part *Part
	// Sampled, if not nil, is shown one record of each page that Kafka has
	// acknowledged, which is not committed yet. It must be quick, may be called
	// concurrently, and keeps nothing of the record: its memory is used again.
	Sampled func(*kgo.Record)
	// Known, if not nil, returns the stream's checkpoint that is kept outside of
	// Kafka, or bridge.ErrNoCheckpoint. It is asked where a topic is missing.
	Known func(context.Context) (bridge.Checkpoint, error)
	// job names what a Repair does beside the stream, empty for the stream
	// itself.
	job string

	// Config says how to connect, Membership with whom the stream is shared.
	kafkaclient.Config
	kafkagroup.Membership

	Topic       string `env:"KAFKA_TOPIC" stream:"yes" desc:"topic of the events; export.<stream> if empty" example:"export.events"`
	DLQTopic    string `env:"KAFKA_DLQ_TOPIC" stream:"yes" desc:"topic of the dead letters; dlq.<topic> if empty" example:"dlq.export.events"`
	Retention   string `env:"KAFKA_RETENTION" stream:"yes" desc:"how long topics that we create keep records, by event time; -1 is for ever" example:"8760h"`
	Timestamp   string `env:"KAFKA_TIMESTAMP" stream:"yes" values:"event,publish" desc:"time of a record: the event's, or that of publishing"`
	Key         string `env:"KAFKA_KEY" stream:"yes" desc:"JSON pointer of the record key inside an item, or none" example:"/sessionId"`
	Compression string `env:"KAFKA_COMPRESSION" stream:"yes" values:"none,gzip,snappy,lz4,zstd" desc:"compression of record batches"`

	CheckpointTopic    string        `env:"KAFKA_CHECKPOINT_TOPIC" desc:"compacted topic of the checkpoints; transactional ids are named after it"`
	TransactionTimeout time.Duration `env:"KAFKA_TRANSACTION_TIMEOUT" desc:"how long the brokers leave a transaction open whose process is gone; readers of its partitions wait so long"`

	CreateTopics bool  `env:"KAFKA_CREATE_TOPICS" desc:"create missing topics at start"`
	Partitions   int32 `env:"KAFKA_PARTITIONS" stream:"yes" desc:"partitions of topics that we create"`
	Replication  int16 `env:"KAFKA_REPLICATION" stream:"yes" desc:"replicas of topics that we create; -1 is the brokers' default"`

	Headers    string `env:"BRIDGE_HEADERS" stream:"yes" values:"cloudevents,minimal,none" desc:"headers of event records"`
	OnBadEvent string `env:"BRIDGE_ON_BAD_EVENT" stream:"yes" values:"dlq,dlq-all,stop" desc:"what to do with an event that cannot be published: dead letter, or stop the stream; a stream of which all items are unreadable stops too, but with dlq-all"`
	OnExpired  string `env:"BRIDGE_ON_EXPIRED" stream:"yes" values:"publish-time,stop" desc:"what to do with an event whose time the topic would not keep"`
}

// DefaultConfig returns the defaults of all settings. Stream, Resource, Topic and
// Mode have none.
func DefaultConfig() Config {
	return Config{
		Config: kafkaclient.DefaultConfig(), Retention: "-1", Timestamp: "event", Key: "/userId", Compression: "snappy",
		CheckpointTopic: "exportbridge.checkpoints", TransactionTimeout: 30 * time.Second, Membership: kafkagroup.DefaultMembership(),
		Partitions: 6, Replication: -1,
		Headers: headersCloudEvents, OnBadEvent: "dlq", OnExpired: "publish-time",
	}
}

// Part is what is different about a Sink that publishes a part of a stream's
// export, as a window of a job does: its events are the stream's, and records of
// the stream that are there already are none of its own.
type Part struct {
	// Stream is the value of the header eb-stream, Origin that of eb-origin, of
	// all events.
	Stream, Origin string
}

// The values of the settings that are words.
const (
	timestampPublish   = "publish"
	headersCloudEvents = "cloudevents"
	headersMinimal     = "minimal"
	headersNone        = "none"
	stopStream         = "stop"
	divertAll          = "dlq-all"
)

var (
	deliveries   = []string{string(bridge.ExactlyOnce), string(bridge.AtLeastOnce)}
	timestamps   = []string{"event", timestampPublish}
	compressions = []string{"none", "gzip", "snappy", "lz4", "zstd"}
	headerModes  = []string{headersCloudEvents, headersMinimal, headersNone}
	onBadEvents  = []string{"dlq", divertAll, stopStream}
	onExpireds   = []string{"publish-time", stopStream}
)

// Validate reports everything that is wrong with the configuration, each
// problem with its variable and an example.
func (c *Config) Validate() error {
	p := new(bridge.Problems)
	p.Check(c.Stream != "", "", "stream has no name")
	p.Check(c.Resource != "", "", "stream %s has no resource", c.Stream)
	kafkaclient.CheckTopic(p, "KAFKA_TOPIC", c.Topic, "export.events")
	kafkaclient.CheckTopic(p, "KAFKA_DLQ_TOPIC", c.DeadTopic(), "dlq.export.events")
	kafkaclient.CheckTopic(p, "KAFKA_CHECKPOINT_TOPIC", c.CheckpointTopic, "exportbridge.checkpoints")
	p.Check(!slices.Contains([]string{c.Topic, c.DeadTopic()}, c.CheckpointTopic),
		"KAFKA_CHECKPOINT_TOPIC", "must differ from the topics of events and dead letters (%s), for example exportbridge.checkpoints", c.CheckpointTopic)
	p.Check(c.Topic != c.DeadTopic(), "KAFKA_DLQ_TOPIC", "must differ from KAFKA_TOPIC (%s), for example dlq.%s", c.Topic, c.Topic)
	_, err := parseRetention(c.Retention)
	p.Check(err == nil, "KAFKA_RETENTION", "%q is neither -1 nor a duration of at least 1m, for example 8760h", c.Retention)
	p.Check(c.Key == "none" || strings.HasPrefix(c.Key, "/"), "KAFKA_KEY", "%q is neither a JSON pointer nor none, for example /userId", c.Key)
	p.Check(c.Partitions >= 1, "KAFKA_PARTITIONS", "must be at least 1, for example 6")
	p.Check(c.Replication == -1 || c.Replication >= 1, "KAFKA_REPLICATION", "must be -1 or at least 1, for example 3")
	p.Add(c.Config.Validate())
	c.validateDelivery(p)
	kafkaclient.CheckOneOf(p, "KAFKA_TIMESTAMP", c.Timestamp, timestamps)
	kafkaclient.CheckOneOf(p, "KAFKA_COMPRESSION", c.Compression, compressions)
	kafkaclient.CheckOneOf(p, "BRIDGE_HEADERS", c.Headers, headerModes)
	kafkaclient.CheckOneOf(p, "BRIDGE_ON_BAD_EVENT", c.OnBadEvent, onBadEvents)
	kafkaclient.CheckOneOf(p, "BRIDGE_ON_EXPIRED", c.OnExpired, onExpireds)
	return p.Err()
}

// The bounds of the settings that are durations. A transaction must outlast a
// commit on a limping cluster, and brokers allow 15 minutes by default.
const (
	minTransaction = 5 * time.Second
	maxTransaction = 15 * time.Minute
)

func (c *Config) validateDelivery(p *bridge.Problems) {
	kafkaclient.CheckOneOf(p, "KAFKA_DELIVERY", string(c.Mode), deliveries)
	p.Check(c.TransactionTimeout >= minTransaction && c.TransactionTimeout <= maxTransaction,
		"KAFKA_TRANSACTION_TIMEOUT", "must be %s to %s, for example 30s", minTransaction, maxTransaction)
	p.Add(c.Membership.Validate())
}

// Ownership is the group of the processes that can run the stream.
func (c *Config) Ownership() *kafkagroup.Group {
	g := &kafkagroup.Group{Config: c.Config, Membership: c.Membership, Stream: ownedAs(c.Stream), CheckpointTopic: c.CheckpointTopic}
	if c.Part != nil { // each job has a group of its own
		g.GrantPrefix = c.Group + "." + c.Part.Stream + "."
	}
	if c.CreateTopics {
		s := &Sink{cfg: *c, holdsTime: holdsTime, searched: make(map[string]searched)}
		g.Missing = s.ensureCheckpointTopic
	}
	return g
}

// DeadTopic returns the topic of the dead letters: DLQTopic, or the usual name.
func (c *Config) DeadTopic() string {
	if c.DLQTopic != "" {
		return c.DLQTopic
	}
	return "dlq." + c.Topic
}

// diverts reports whether bad events become dead letters.
func (c *Config) diverts() bool { return c.OnBadEvent != stopStream }

// DivertsAll reports whether bad events become dead letters even where all are
// bad; see bridge.Config.DivertAll.
func (c *Config) DivertsAll() bool { return c.OnBadEvent == divertAll }

// exactly reports whether events and checkpoints share transactions.
func (c *Config) exactly() bool { return c.Mode == bridge.ExactlyOnce }

// topics returns the topics that hold the stream's events, the dead letters'
// last.
func (c *Config) topics() []string {
	if !c.diverts() {
		return []string{c.Topic}
	}
	return []string{c.Topic, c.DeadTopic()}
}

// allTopics returns all topics that the stream writes to, the checkpoints' last.
func (c *Config) allTopics() []string {
	if c.Topic == c.CheckpointTopic { // nothing but the plans of jobs
		return []string{c.Topic}
	}
	return append(c.topics(), c.CheckpointTopic)
}

func parseRetention(s string) (time.Duration, error) {
	if s == "-1" {
		return kafkaclient.ForEver, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("retention %q: %w", s, err)
	}
	if d < time.Minute {
		return 0, fmt.Errorf("retention %s is below a minute", d)
	}
	return d, nil
}
