package kafkaadmin

import (
	"fmt"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// Layout configures the topics that are created.
type Layout struct {
	Retention    string `env:"KAFKA_RETENTION" stream:"yes" desc:"retention of created topics, by event time; -1 for unlimited" example:"8760h"`
	CreateTopics bool   `env:"KAFKA_CREATE_TOPICS" desc:"create missing topics at startup"`
	Partitions   int32  `env:"KAFKA_PARTITIONS" stream:"yes" desc:"partitions of created topics"`
	Replication  int16  `env:"KAFKA_REPLICATION" stream:"yes" desc:"replication factor of created topics; -1 for the brokers' default"`
}

// DefaultLayout returns the default of every setting.
func DefaultLayout() Layout { return Layout{Retention: "-1", Partitions: 6, Replication: -1} }

// Validate reports all problems, each with its variable and an example.
func (l *Layout) Validate() error {
	p := new(bridge.Problems)
	_, err := parseRetention(l.Retention)
	p.Check(err == nil, "KAFKA_RETENTION", "%q is neither -1 nor a duration of at least 1m, for example 8760h",
		l.Retention)
	p.Check(l.Partitions >= 1, "KAFKA_PARTITIONS", "must be at least 1, for example 6")
	p.Check(l.Replication == -1 || l.Replication >= 1, "KAFKA_REPLICATION", "must be -1 or at least 1, for example 3")
	return p.Err()
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
