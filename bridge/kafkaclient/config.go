package kafkaclient

import (
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// Config configures the connection to Kafka. Start from DefaultConfig.
type Config struct {
	Brokers       []string      `env:"KAFKA_BROKERS" desc:"bootstrap brokers, host:port" example:"kafka-1:9092,kafka-2:9092"`
	ClientID      string        `env:"KAFKA_CLIENT_ID" desc:"client id in broker logs and quotas"`
	Rack          string        `env:"KAFKA_RACK" desc:"client rack, to fetch from the closest replica" example:"eu-west-1a"`
	TLSEnabled    bool          `env:"KAFKA_TLS_ENABLED" desc:"connect with TLS"`
	TLSCA         string        `env:"KAFKA_TLS_CA" desc:"trusted CA certificates (PEM); empty for the system's"`
	TLSCert       string        `env:"KAFKA_TLS_CERT" desc:"client certificate (PEM), for mutual TLS"`
	TLSKey        bridge.Secret `env:"KAFKA_TLS_KEY" secret:"yes" desc:"private key of the client certificate (PEM)"`
	TLSSkipVerify bool          `env:"KAFKA_TLS_SKIP_VERIFY" desc:"skip verification of broker certificates; for tests only"`
	MaxMessage    int64         `env:"KAFKA_MAX_MESSAGE_BYTES" unit:"bytes" stream:"yes" desc:"maximum record batch size where the topic's max.message.bytes cannot be read"`
	// TLSCAFile, TLSCertFile and TLSKeyFile are the files that TLSCA, TLSCert and TLSKey were
	// read from, if any. They are reloaded for every connection.
	TLSCAFile, TLSCertFile, TLSKeyFile string
	SASL
	// Report, if not nil, is called with nil when Kafka is healthy, and with an
	// error that names the broker when it is not. It is called within ten
	// seconds of either, by the goroutine that waits for Kafka.
	Report func(error)
	// Hooks observe every client, besides its own ones.
	Hooks []kgo.Hook
	// Log receives the Kafka client's messages; nil discards them.
	Log *slog.Logger
	// Hints has the text of Fault.Hint for Fault.HintCode. Without a text a Fault has
	// only its HintCode.
	Hints bridge.HintTexts
}

// DefaultConfig returns the default of every setting.
func DefaultConfig() Config {
	return Config{Brokers: []string{"localhost:9092"}, ClientID: "exportbridge", MaxMessage: 1_000_000}
}

// MinMessage is the minimum max.message.bytes. A dead letter about an oversized
// record must always fit.
const MinMessage = 16 << 10

// Validate reports all problems of the settings, each with its variable and an
// example.
func (c *Config) Validate() error {
	p := new(bridge.Problems)
	p.Check(len(c.Brokers) > 0, "KAFKA_BROKERS", "is empty, for example localhost:9092")
	for _, b := range c.Brokers {
		if !validAddress(b) {
			p.Add(bridge.Problem{Variable: "KAFKA_BROKERS",
				Message: fmt.Sprintf("KAFKA_BROKERS: %q is not host:port, for example localhost:9092", b)})
		}
	}
	p.Check(c.MaxMessage >= MinMessage && c.MaxMessage <= maxBatch, "KAFKA_MAX_MESSAGE_BYTES",
		"must be %d to %d bytes, for example 1MB", MinMessage, maxBatch)
	p.Check(c.ClientID != "", "KAFKA_CLIENT_ID", "is empty, for example exportbridge")
	c.validateTLS(p)
	c.SASL.validate(p, c.TLSEnabled)
	return p.Err()
}

// Unsafe lists the settings that disable a protection. KAFKA_TLS_ENABLED is one if it is
// off and a broker is on another machine.
func (c *Config) Unsafe() []string {
	var list []string
	elsewhere := func(broker string) bool { return !bridge.LoopbackAddr(broker) }
	if !c.TLSEnabled && slices.ContainsFunc(c.Brokers, elsewhere) {
		list = append(list, "KAFKA_TLS_ENABLED")
	}
	if c.TLSSkipVerify {
		list = append(list, "KAFKA_TLS_SKIP_VERIFY")
	}
	if c.SASLInsecure {
		list = append(list, "KAFKA_SASL_INSECURE")
	}
	return list
}

// Alike reports whether clients of both connect in the same way, as the same user. Reports, logs
// and limits of topics may differ.
func (c *Config) Alike(other *Config) bool {
	connection := func(c Config) Config {
		c.Report, c.Hooks, c.Log, c.Hints, c.MaxMessage = nil, nil, nil, nil, 0
		return c
	}
	return reflect.DeepEqual(connection(*c), connection(*other))
}

// Tell calls Report, if there is one.
func (c *Config) Tell(err error) {
	if c.Report != nil {
		c.Report(err)
	}
}

func (c *Config) validateTLS(p *bridge.Problems) {
	if !c.TLSEnabled {
		var set []string
		for _, v := range []struct {
			name  string
			isSet bool
		}{
			{"CA", c.TLSCA != ""}, {"CERT", c.TLSCert != ""}, {"KEY", c.TLSKey != ""}, {"SKIP_VERIFY", c.TLSSkipVerify},
		} {
			if v.isSet {
				set = append(set, "KAFKA_TLS_"+v.name)
			}
		}
		if len(set) > 0 {
			p.Add(bridge.Problem{Variable: "KAFKA_TLS_ENABLED",
				Message: set[0] + " is set, but TLS is off; set KAFKA_TLS_ENABLED=true"})
		}
		return
	}
	p.Add(c.clientTLS().Validate())
}

// CheckTopic checks a topic name by the brokers' rule.
func CheckTopic(p *bridge.Problems, name, value, example string) {
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
