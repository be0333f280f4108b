package kafkasink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// Config says where and how events are published. One made by hand begins with
// DefaultConfig.
type Config struct {
	// Stream names the stream in the header eb-stream.
	Stream string
	// Resource is what the stream exports: events, sessions or users. It
	// decides ce_source and ce_type.
	Resource string
	// SASLPasswordFile is the file that SASLPassword came from, if it did. It
	// is read again at every authentication, so that tokens can be rotated.
	SASLPasswordFile string
	// Mode is the delivery guarantee.
	Mode bridge.Mode
	// InstanceID makes this process a static member of the streams' groups, so
	// that it has them back at once after a crash; empty is none.
	InstanceID string
	// Part, if not nil, says that the Sink publishes a part of what another
	// stream exports, beside that one.
	Part *Part
	// Report, if not nil, is called with nil when Kafka did its part, with an
	// error that names the broker when it does not. It is called within ten
	// seconds of either, from the goroutine that called the Sink.
	Report func(error)
	// Sampled, if not nil, is shown one record of each page that Kafka has
	// acknowledged, which is not committed yet. It must be quick, may be called
	// concurrently, and keeps nothing of the record: its memory is used again.
	Sampled func(*kgo.Record)
	// Known, if not nil, returns the stream's checkpoint that is kept outside of
	// Kafka, or bridge.ErrNoCheckpoint. It is asked where a topic is missing.
	Known func(context.Context) (bridge.Checkpoint, error)
	// Log takes the Kafka client's warnings; nil discards them.
	Log *slog.Logger
	// job names what a Repair does beside the stream, empty for the stream
	// itself.
	job string

	Brokers     []string `env:"KAFKA_BROKERS, default=localhost:9092" desc:"addresses of some brokers, host:port" example:"kafka-1:9092,kafka-2:9092"`
	Topic       string   `env:"KAFKA_TOPIC" stream:"yes" desc:"topic of the events; export.<stream> if empty" example:"export.events"`
	DLQTopic    string   `env:"KAFKA_DLQ_TOPIC" stream:"yes" desc:"topic of the dead letters; dlq.<topic> if empty" example:"dlq.export.events"`
	Retention   string   `env:"KAFKA_RETENTION, default=-1" stream:"yes" desc:"how long topics that we create keep records, by event time; -1 is for ever" example:"8760h"`
	Timestamp   string   `env:"KAFKA_TIMESTAMP, default=event" stream:"yes" values:"event,publish" desc:"time of a record: the event's, or that of publishing"`
	Key         string   `env:"KAFKA_KEY, default=/userId" stream:"yes" desc:"JSON pointer of the record key inside an item, or none" example:"/sessionId"`
	Compression string   `env:"KAFKA_COMPRESSION, default=snappy" stream:"yes" values:"none,gzip,snappy,lz4,zstd" desc:"compression of record batches"`
	MaxMessage  int64    `env:"KAFKA_MAX_MESSAGE, default=1000000" unit:"bytes" stream:"yes" desc:"largest record batch, used when the topic's max.message.bytes cannot be read"`

	CheckpointTopic    string        `env:"KAFKA_CHECKPOINT_TOPIC, default=exportbridge.checkpoints" desc:"compacted topic of the checkpoints; transactional ids are named after it"`
	TransactionTimeout time.Duration `env:"KAFKA_TRANSACTION_TIMEOUT, default=30s" desc:"how long the brokers leave a transaction open whose process is gone; readers of its partitions wait so long"`
	Group              string        `env:"BRIDGE_GROUP, default=exportbridge" desc:"processes with the same group share their streams; the consumer group of a stream is <group>.<stream>"`
	SessionTimeout     time.Duration `env:"BRIDGE_SESSION_TIMEOUT, default=10s" desc:"how long until the streams of a dead process move to another"`

	CreateTopics bool  `env:"KAFKA_CREATE_TOPICS, default=false" desc:"create missing topics at start"`
	Partitions   int32 `env:"KAFKA_PARTITIONS, default=6" stream:"yes" desc:"partitions of topics that we create"`
	Replication  int16 `env:"KAFKA_REPLICATION, default=-1" stream:"yes" desc:"replicas of topics that we create; -1 is the brokers' default"`

	ClientID      string        `env:"KAFKA_CLIENT_ID, default=exportbridge" desc:"name of this client in the brokers' logs and quotas"`
	Rack          string        `env:"KAFKA_RACK" desc:"rack of this process, to read from the nearest replica" example:"eu-west-1a"`
	TLSEnabled    bool          `env:"KAFKA_TLS_ENABLED, default=false" desc:"connect with TLS"`
	TLSCA         string        `env:"KAFKA_TLS_CA" desc:"certificates in PEM to trust in place of the system's"`
	TLSCert       string        `env:"KAFKA_TLS_CERT" desc:"our certificate in PEM, for mutual TLS"`
	TLSKey        bridge.Secret `env:"KAFKA_TLS_KEY" secret:"yes" desc:"key of our certificate in PEM"`
	TLSSkipVerify bool          `env:"KAFKA_TLS_SKIP_VERIFY, default=false" desc:"accept any broker certificate; for tests only"`
	SASLMechanism string        `env:"KAFKA_SASL_MECHANISM" values:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER" desc:"how to authenticate; not at all if empty"`
	SASLUsername  string        `env:"KAFKA_SASL_USERNAME" desc:"user name for PLAIN and SCRAM" example:"exportbridge"`
	SASLPassword  bridge.Secret `env:"KAFKA_SASL_PASSWORD" secret:"yes" desc:"password, or the token for OAUTHBEARER"`
	SASLInsecure  bool          `env:"KAFKA_SASL_INSECURE, default=false" desc:"allow PLAIN and OAUTHBEARER without TLS, readable by anybody on the way"`

	Headers    string `env:"BRIDGE_HEADERS, default=cloudevents" stream:"yes" values:"cloudevents,minimal,none" desc:"headers of event records"`
	OnBadEvent string `env:"BRIDGE_ON_BAD_EVENT, default=dlq" stream:"yes" values:"dlq,dlq-all,stop" desc:"what to do with an event that cannot be published: dead letter, or stop the stream; a stream of which all items are unreadable stops too, but with dlq-all"`
	OnExpired  string `env:"BRIDGE_ON_EXPIRED, default=publish-time" stream:"yes" values:"publish-time,stop" desc:"what to do with an event whose time the topic would not keep"`
}

// DefaultConfig returns the defaults of the tags. Stream, Resource, Topic and
// Mode have none.
func DefaultConfig() Config {
	return Config{
		Brokers: []string{"localhost:9092"}, Retention: "-1", Timestamp: "event", Key: "/userId", Compression: "snappy", MaxMessage: 1_000_000,
		CheckpointTopic: "exportbridge.checkpoints", TransactionTimeout: 30 * time.Second, Group: "exportbridge", SessionTimeout: 10 * time.Second,
		Partitions: 6, Replication: -1, ClientID: "exportbridge",
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
	mechanisms   = []string{"", saslPlain, saslScram256, saslScram512, saslOAuth}
	headerModes  = []string{headersCloudEvents, headersMinimal, headersNone}
	onBadEvents  = []string{"dlq", divertAll, stopStream}
	onExpireds   = []string{"publish-time", stopStream}
)

// minMessage is the smallest usable max.message.bytes. A dead letter about a
// record that is too large must always fit.
const minMessage = 16 << 10

// Validate reports everything that is wrong with the configuration, each
// problem with its variable and an example.
func (c *Config) Validate() error {
	p := new(bridge.Problems)
	p.Check(c.Stream != "", "", "stream has no name")
	p.Check(c.Resource != "", "", "stream %s has no resource", c.Stream)
	p.Check(len(c.Brokers) > 0, "KAFKA_BROKERS", "is empty, for example localhost:9092")
	for _, b := range c.Brokers {
		if !validAddress(b) {
			p.Add(bridge.Problem{Variable: "KAFKA_BROKERS", Message: fmt.Sprintf("KAFKA_BROKERS: %q is not host:port, for example localhost:9092", b)})
		}
	}
	checkTopic(p, "KAFKA_TOPIC", c.Topic, "export.events")
	checkTopic(p, "KAFKA_DLQ_TOPIC", c.DeadTopic(), "dlq.export.events")
	checkTopic(p, "KAFKA_CHECKPOINT_TOPIC", c.CheckpointTopic, "exportbridge.checkpoints")
	p.Check(!slices.Contains([]string{c.Topic, c.DeadTopic()}, c.CheckpointTopic),
		"KAFKA_CHECKPOINT_TOPIC", "must differ from the topics of events and dead letters (%s), for example exportbridge.checkpoints", c.CheckpointTopic)
	p.Check(c.Topic != c.DeadTopic(), "KAFKA_DLQ_TOPIC", "must differ from KAFKA_TOPIC (%s), for example dlq.%s", c.Topic, c.Topic)
	_, err := parseRetention(c.Retention)
	p.Check(err == nil, "KAFKA_RETENTION", "%q is neither -1 nor a duration of at least 1m, for example 8760h", c.Retention)
	p.Check(c.Key == "none" || strings.HasPrefix(c.Key, "/"), "KAFKA_KEY", "%q is neither a JSON pointer nor none, for example /userId", c.Key)
	p.Check(c.MaxMessage >= minMessage && c.MaxMessage <= maxBatch, "KAFKA_MAX_MESSAGE", "must be %d to %d bytes, for example 1MB", minMessage, maxBatch)
	p.Check(c.Partitions >= 1, "KAFKA_PARTITIONS", "must be at least 1, for example 6")
	p.Check(c.Replication == -1 || c.Replication >= 1, "KAFKA_REPLICATION", "must be -1 or at least 1, for example 3")
	p.Check(c.ClientID != "", "KAFKA_CLIENT_ID", "is empty, for example exportbridge")
	c.validateDelivery(p)
	checkOneOf(p, "KAFKA_TIMESTAMP", c.Timestamp, timestamps)
	checkOneOf(p, "KAFKA_COMPRESSION", c.Compression, compressions)
	checkOneOf(p, "BRIDGE_HEADERS", c.Headers, headerModes)
	checkOneOf(p, "BRIDGE_ON_BAD_EVENT", c.OnBadEvent, onBadEvents)
	checkOneOf(p, "BRIDGE_ON_EXPIRED", c.OnExpired, onExpireds)
	c.validateTLS(p)
	c.validateSASL(p)
	return p.Err()
}

// The bounds of the settings that are durations. A transaction must outlast a
// commit on a limping cluster, and brokers allow 15 minutes by default.
const (
	minTransaction = 5 * time.Second
	maxTransaction = 15 * time.Minute
	minSession     = time.Second
	maxSession     = 5 * time.Minute
)

func (c *Config) validateDelivery(p *bridge.Problems) {
	checkOneOf(p, "KAFKA_DELIVERY", string(c.Mode), deliveries)
	p.Check(c.TransactionTimeout >= minTransaction && c.TransactionTimeout <= maxTransaction,
		"KAFKA_TRANSACTION_TIMEOUT", "must be %s to %s, for example 30s", minTransaction, maxTransaction)
	p.Check(c.Group != "", "BRIDGE_GROUP", "is empty, for example exportbridge")
	p.Check(c.SessionTimeout >= minSession && c.SessionTimeout <= maxSession,
		"BRIDGE_SESSION_TIMEOUT", "must be %s to %s, for example 10s", minSession, maxSession)
}

func (c *Config) validateTLS(p *bridge.Problems) {
	if !c.TLSEnabled {
		if c.TLSCA != "" || c.TLSCert != "" || c.TLSKey != "" || c.TLSSkipVerify {
			p.Add(bridge.Problem{Variable: "KAFKA_TLS_ENABLED", Message: "KAFKA_TLS_* is set but TLS is off, for example KAFKA_TLS_ENABLED=true"})
		}
		return
	}
	if c.TLSCA != "" {
		p.Check(x509.NewCertPool().AppendCertsFromPEM([]byte(c.TLSCA)),
			"KAFKA_TLS_CA", "holds no certificate in PEM; to name a file: KAFKA_TLS_CA_FILE=/etc/kafka/ca.pem")
	}
	if c.TLSCert != "" || c.TLSKey != "" {
		_, err := tls.X509KeyPair([]byte(c.TLSCert), []byte(c.TLSKey.Reveal()))
		p.Check(err == nil, "KAFKA_TLS_CERT", "and KAFKA_TLS_KEY are not a pair in PEM (%v); to name files: KAFKA_TLS_CERT_FILE=/etc/kafka/client.pem, KAFKA_TLS_KEY_FILE=/etc/kafka/client.key", err)
	}
}

func (c *Config) validateSASL(p *bridge.Problems) {
	checkOneOf(p, "KAFKA_SASL_MECHANISM", c.SASLMechanism, mechanisms)
	if c.SASLMechanism == "" {
		p.Check(c.SASLUsername == "" && c.SASLPassword == "", "KAFKA_SASL_USERNAME", "or _PASSWORD is set but no mechanism, for example KAFKA_SASL_MECHANISM=SCRAM-SHA-512")
		return
	}
	p.Check(c.SASLPassword != "" || c.SASLPasswordFile != "", "KAFKA_SASL_PASSWORD", "is empty; to name a file: KAFKA_SASL_PASSWORD_FILE=/etc/kafka/password")
	p.Check(c.SASLUsername != "" || c.SASLMechanism == saslOAuth, "KAFKA_SASL_USERNAME", "is empty, for example exportbridge")
	exposed := c.SASLMechanism == saslPlain || c.SASLMechanism == saslOAuth
	if exposed && !c.TLSEnabled && !c.SASLInsecure {
		p.Add(bridge.Problem{Variable: "KAFKA_SASL_MECHANISM", Message: fmt.Sprintf("KAFKA_SASL_MECHANISM=%s sends the password readable; KAFKA_TLS_ENABLED=true, or KAFKA_SASL_INSECURE=true to allow it", c.SASLMechanism)})
	}
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

// forEver is the retention of a topic that keeps its records.
const forEver time.Duration = -1

func parseRetention(s string) (time.Duration, error) {
	if s == "-1" {
		return forEver, nil
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

func checkOneOf(p *bridge.Problems, name, value string, allowed []string) {
	words := strings.TrimPrefix(strings.Join(allowed, ", "), ", ")
	p.Check(slices.Contains(allowed, value), name, "%q is not one of: %s", value, words)
}

// checkTopic checks a name against the brokers' rule.
func checkTopic(p *bridge.Problems, name, value, example string) {
	bad := strings.ContainsFunc(value, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && r != '.' && r != '_' && r != '-'
	})
	ok := value != "" && len(value) <= 249 && value != "." && value != ".." && !bad
	p.Check(ok, name, "%q is not a topic name (1 to 249 of a-z A-Z 0-9 . _ -), for example %s", value, example)
}

func validAddress(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return host != "" && err == nil && n > 0 && n < 65536
}
