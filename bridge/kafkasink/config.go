package kafkasink

import (
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

// Config configures where and how events are published. Start from
// DefaultConfig.
type Config struct {
	// Stream is the stream's name, the value of the header eb-stream.
	Stream string
	// Resource is the exported resource: events, sessions or users. It
	// determines ce_source and ce_type.
	Resource string
	// Mode is the delivery guarantee.
	Mode bridge.Mode
	// Part, if not nil, makes the Sink publish a part of another stream's
	// export beside it.
	Part *Part
	// Sampled, if not nil, receives one record per acknowledged page, before
	// the commit. It must not block, may be called concurrently, and must not
	// keep the record: its memory is reused.
	Sampled func(*kgo.Record)
	// Attested is set if the stream's past periods are attested, in AttestTopic.
	Attested bool
	// Encrypted is set if values of events are encrypted, with keys in KeysTopic.
	Encrypted bool
	// Known, if not nil, returns the stream's checkpoint stored outside of Kafka, or
	// bridge.ErrNoCheckpoint. It is called when a topic is missing. After any other error
	// the topic is not created.
	Known func(context.Context) (bridge.Checkpoint, error)
	// TimePointer is where an item's time is, for the messages of dead letters.
	TimePointer string
	// Redacted names the rules for private data that were applied to the events, empty for
	// none: the value of the header eb-redacted.
	Redacted string
	// Cluster is required; package kafkastream has it.
	Cluster Cluster
	// job names the job of a Repair; empty for the stream itself.
	job string

	// Config says how to connect.
	kafkaclient.Config

	Topic       string `env:"KAFKA_TOPIC" stream:"yes" desc:"topic for events; empty for export.<stream>" example:"export.events"`
	RouteText   string `env:"KAFKA_ROUTES" stream:"yes" desc:"topics of some events, as PATTERN=TOPIC for the event's type or /POINTER=PATTERN:TOPIC for another value, * matches any text; the first match counts, the other events go to KAFKA_TOPIC; the topic drop publishes them nowhere" example:"order.*=export.orders,/region=eu-*:export.eu,*.debug=drop"`
	DLQTopic    string `env:"KAFKA_DLQ_TOPIC" stream:"yes" desc:"topic for dead letters; empty for dlq.<topic>" example:"dlq.export.events"`
	Timestamp   string `env:"KAFKA_TIMESTAMP" stream:"yes" values:"event,publish" desc:"record timestamp: event time or publish time"`
	Key         string `env:"KAFKA_KEY" stream:"yes" desc:"JSON pointer to the record key in an item: records of one key keep their order; or none, for records without a key, whose order is kept nowhere" example:"/sessionId"`
	Source      string `env:"KAFKA_CE_SOURCE" stream:"yes" desc:"value of ce_source, a URI reference; empty for that of the export's metadata, or /<stream> where it has none" example:"/acme/main/users"`
	TypePrefix  string `env:"KAFKA_CE_TYPE_PREFIX" stream:"yes" desc:"what ce_type begins with, before the event's type; empty for com.croct.event, com.croct.session or com.croct.user" example:"com.example.order"`
	Compression string `env:"KAFKA_COMPRESSION" stream:"yes" values:"none,gzip,snappy,lz4,zstd" desc:"compression codec of record batches"`

	CheckpointTopic    string        `env:"KAFKA_CHECKPOINT_TOPIC" desc:"compacted topic for checkpoints; prefix of the transactional ids"`
	TransactionTimeout time.Duration `env:"KAFKA_TRANSACTION_TIMEOUT" desc:"time after which brokers abort the open transaction of a crashed process; read_committed consumers wait that long"`

	Headers    string `env:"BRIDGE_HEADERS" stream:"yes" values:"cloudevents,minimal,none" desc:"headers of event records"`
	OnBadEvent string `env:"BRIDGE_ON_BAD_EVENT" stream:"yes" values:"dlq,dlq-all,stop" desc:"action for an event that cannot be published: write a dead letter or stop the stream; if every item is unreadable the stream stops, except with dlq-all"`
	OnMismatch string `env:"BRIDGE_ON_SCHEMA_MISMATCH" stream:"yes" values:"publish,bad-event" desc:"action for an event that differs from EVENT_SCHEMA: publish and count it, or treat it as set by BRIDGE_ON_BAD_EVENT"`
	OnExpired  string `env:"BRIDGE_ON_EXPIRED" stream:"yes" values:"publish-time,stop" desc:"action for an event whose time the topic would not retain"`
}

// DefaultConfig returns the default of every setting. Stream, Resource, Topic
// and Mode have none.
func DefaultConfig() Config {
	return Config{
		Config: kafkaclient.DefaultConfig(), Timestamp: "event", Key: "/userId", Compression: "snappy",
		CheckpointTopic: "exportbridge.checkpoints", TransactionTimeout: 30 * time.Second,
		Headers: headersCloudEvents, OnBadEvent: "dlq", OnMismatch: "publish", OnExpired: "publish-time",
	}
}

// DivertsMismatches reports whether events that differ from their schema are bad events.
func (c *Config) DivertsMismatches() bool { return c.OnMismatch == badEvent }

// Cluster tells sessions of the cluster's topics and of the processes of the streams. of
// is the stream, or the job, of the session. It is called concurrently.
type Cluster interface {
	// Ready returns the topics of the stream once they can take its records. It
	// creates missing topics if that is allowed, and if neither Known nor published
	// shows that they were lost. Otherwise a missing topic is a Permanent fault.
	Ready(
		ctx context.Context, client *kafkaclient.Client, of *Config, published *kafkarecord.Published,
	) (kafkaclient.Described, error)
	// MakeJobTopic creates the missing topic of the stream's jobs.
	MakeJobTopic(ctx context.Context, client *kafkaclient.Client, of *Config) error
	// MayRun reports whether a process runs the stream, or may run it unseen. After an
	// error the answer is unknown.
	MayRun(ctx context.Context, of *Config) (bool, error)
}

// Part configures a Sink that publishes a part of a stream's export, such as a
// window of a job: its events belong to the stream, and existing records of the
// stream are not its own.
type Part struct {
	// Stream is the value of the header eb-stream, Origin of eb-origin, of all
	// events.
	Stream, Origin string
}

// The words of settings.
const (
	timestampPublish   = "publish"
	headersCloudEvents = "cloudevents"
	headersMinimal     = "minimal"
	headersNone        = "none"
	stopStream         = "stop"
	divertAll          = "dlq-all"
	badEvent           = "bad-event"
)

// keyPattern matches a JSON pointer (RFC 6901) or none.
var keyPattern = regexp.MustCompile(`^(none|(/([^/~]|~[01])*)+)$`)

// uriReference matches the characters of a URI reference (RFC 3986),
// typePattern a prefix of ce_type.
var (
	uriReference = regexp.MustCompile(`^([A-Za-z0-9\-._~:/?#@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+$`)
	typePattern  = regexp.MustCompile(`^[^\s.\x00-\x1f\x7f]+(\.[^\s.\x00-\x1f\x7f]+)*$`)
)

// Validate reports all problems of the settings, each with its variable and an
// example.
func (c *Config) Validate() error {
	p := new(bridge.Problems)
	p.Check(c.Stream != "", "", "stream has no name")
	p.Check(c.Resource != "", "", "stream %s has no resource", c.Stream)
	kafkaclient.CheckTopic(p, "KAFKA_TOPIC", c.Topic, "export.events")
	kafkaclient.CheckTopic(p, "KAFKA_DLQ_TOPIC", c.DeadTopic(), "dlq.export.events")
	kafkaclient.CheckTopic(p, "KAFKA_CHECKPOINT_TOPIC", c.CheckpointTopic, "exportbridge.checkpoints")
	p.Check(!slices.Contains([]string{c.Topic, c.DeadTopic()}, c.CheckpointTopic),
		"KAFKA_CHECKPOINT_TOPIC", "must differ from the topics of events and dead letters (%s), "+
			"for example exportbridge.checkpoints", c.CheckpointTopic)
	p.Check(c.Topic != c.DeadTopic(), "KAFKA_DLQ_TOPIC", "must differ from KAFKA_TOPIC (%s), for example dlq.%s",
		c.Topic, c.Topic)
	c.checkRoutes(p)
	c.checkOwn(p, "BRIDGE_ATTEST", AttestTopic(c.Topic), c.Attested)
	c.checkOwn(p, "EVENT_ENCRYPT", KeysTopic(c.Topic), c.Encrypted)
	p.Check(keyPattern.MatchString(c.Key), "KAFKA_KEY", "%q is neither a JSON pointer nor none, for example %s",
		c.Key, bridge.PointerLike(c.Key))
	p.Check(c.Source == "" || uriReference.MatchString(c.Source) && len(c.Source) <= 1000, "KAFKA_CE_SOURCE",
		"%.100q is not a URI reference, for example /acme/main/users", c.Source)
	p.Check(c.TypePrefix == "" || typePattern.MatchString(c.TypePrefix), "KAFKA_CE_TYPE_PREFIX",
		"%q is not a name whose parts are separated by dots, for example com.example.order", c.TypePrefix)
	p.Add(c.Config.Validate())
	p.OneOf("KAFKA_DELIVERY", string(c.Mode), string(bridge.ExactlyOnce), string(bridge.AtLeastOnce))
	p.Check(c.TransactionTimeout >= minTransaction && c.TransactionTimeout <= maxTransaction,
		"KAFKA_TRANSACTION_TIMEOUT", "must be %s to %s, for example 30s", minTransaction, maxTransaction)
	p.OneOf("KAFKA_TIMESTAMP", c.Timestamp, "event", timestampPublish)
	p.OneOf("KAFKA_COMPRESSION", c.Compression, "none", "gzip", "snappy", "lz4", "zstd")
	p.OneOf("BRIDGE_HEADERS", c.Headers, headersCloudEvents, headersMinimal, headersNone)
	p.Check(c.Redacted == "" || c.Headers != headersNone, "BRIDGE_HEADERS",
		"must be cloudevents or minimal with EVENT_DROP, EVENT_HASH, EVENT_MASK or EVENT_ENCRYPT: a header names the rules")
	p.OneOf("BRIDGE_ON_BAD_EVENT", c.OnBadEvent, "dlq", divertAll, stopStream)
	p.OneOf("BRIDGE_ON_SCHEMA_MISMATCH", c.OnMismatch, "publish", badEvent)
	p.OneOf("BRIDGE_ON_EXPIRED", c.OnExpired, "publish-time", stopStream)
	return p.Err()
}

// checkOwn checks a topic that a setting adds to the stream.
func (c *Config) checkOwn(p *bridge.Problems, variable, topic string, used bool) {
	if !used {
		return
	}
	kafkaclient.CheckTopic(p, variable, topic, "export.events")
	others := append([]string{c.DeadTopic(), c.CheckpointTopic}, c.Routes().Topics...)
	p.Check(!slices.Contains(others, topic), variable, "publishes records to topic %s, which KAFKA_DLQ_TOPIC, "+
		"KAFKA_CHECKPOINT_TOPIC or KAFKA_ROUTES names too", topic)
}

func (c *Config) checkRoutes(p *bridge.Problems) {
	const example = "order.*=export.orders,/region=eu-*:export.eu"
	routes, err := bridge.ParseRoutes(c.RouteText, c.Topic)
	if err != nil {
		p.Check(false, "KAFKA_ROUTES", "%v, for example %s", err, example)
		return
	}
	for _, rule := range routes.Rules {
		p.Check(rule.Pointer == "" || keyPattern.MatchString(rule.Pointer), "KAFKA_ROUTES",
			"%q is not a JSON pointer, for example %s", rule.Pointer, example)
	}
	for _, topic := range routes.Topics {
		kafkaclient.CheckTopic(p, "KAFKA_ROUTES", topic, example)
		p.Check(!slices.Contains([]string{c.DeadTopic(), c.CheckpointTopic, JobsTopic(c.CheckpointTopic)}, topic),
			"KAFKA_ROUTES", "names %s, the topic of dead letters, checkpoints or jobs, for example %s", topic, example)
	}
}

// Routes returns the routes; none if KAFKA_ROUTES is not valid.
func (c *Config) Routes() bridge.Routes {
	routes, _ := bridge.ParseRoutes(c.RouteText, c.Topic) // Validate has the error
	return routes
}

// The bounds of KAFKA_TRANSACTION_TIMEOUT. A transaction must outlast a commit on a
// degraded cluster, and brokers allow 15 minutes by default.
const (
	minTransaction = 5 * time.Second
	maxTransaction = 15 * time.Minute
)

// TransactionGrant returns the command that grants the stream's transactional id.
func (c *Config) TransactionGrant() string {
	if p := c.Part; p != nil { // each window has an id of its own
		return c.Grant("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id " +
			c.CheckpointTopic + "." + p.Stream + ".")
	}
	return c.Grant("--operation Write --operation Describe --transactional-id " + c.TransactionalID())
}

// DeadTopic returns the dead-letter topic: DLQTopic, or its default.
func (c *Config) DeadTopic() string {
	if c.DLQTopic != "" {
		return c.DLQTopic
	}
	return kafkaclient.DeadTopic(c.Topic)
}

// DivertsAll reports whether events become dead letters even if all are
// unpublishable; see engine.Config.DivertAll.
func (c *Config) DivertsAll() bool { return c.OnBadEvent == divertAll }

// PublishTime reports whether records carry the time of publishing.
func (c *Config) PublishTime() bool { return c.Timestamp == timestampPublish }

// StopsExpired reports whether an event whose time the topic would not retain stops
// the stream.
func (c *Config) StopsExpired() bool { return c.OnExpired == stopStream }

// Records says which records are the stream's, for kafkarecord.NewPublished.
func (c *Config) Records() kafkarecord.Config {
	return kafkarecord.Config{
		Config: c.Config, Stream: c.Stream, Topics: c.Topics(), Naming: c.naming(),
		Unnamed: c.Headers == headersNone, Part: c.Part != nil, Redacted: c.Redacted,
	}
}

// naming names the source of events. Those of a part are named as if the stream
// itself had published them.
func (c *Config) naming() kafkarecord.Naming {
	n := kafkarecord.Naming{Source: c.Source, Resource: c.Resource, Stream: c.Stream}
	if c.Part != nil {
		n.Stream = c.Part.Stream
	}
	return n
}

// exactly reports whether each batch and its checkpoint share a transaction.
func (c *Config) exactly() bool { return c.Mode == bridge.ExactlyOnce }

// Topics returns the stream's topics by role.
func (c *Config) Topics() kafkaclient.Topics {
	t := kafkaclient.Topics{Checkpoints: c.CheckpointTopic}
	if c.Topic != c.CheckpointTopic { // else it holds nothing but the plans of jobs
		t.Events, t.Routed = c.Topic, c.Routes().Topics
		if c.OnBadEvent != stopStream {
			t.DeadLetters = c.DeadTopic()
		}
	}
	if c.Part == nil { // jobs have none
		t.Jobs = JobsTopic(c.CheckpointTopic)
		if c.Attested {
			t.Attest = AttestTopic(c.Topic)
		}
		if c.Encrypted {
			t.Keys = KeysTopic(c.Topic)
		}
	}
	return t
}
