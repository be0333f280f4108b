package kafkaclient

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
)

// CheckpointPartitions is the number of partitions of a checkpoint topic that
// streams are spread over. It never changes: otherwise the checkpoints of a
// stream would not be found.
const CheckpointPartitions = 16

// KeySegment is how long a segment of a topic of keys takes records: Kafka compacts closed
// segments only. KeyCompaction is how long they may wait for it. Kafka deletes a key within
// about the sum of both.
const (
	KeySegment    = 10 * time.Minute
	KeyCompaction = time.Hour
)

// CheckpointPartition returns the partition of the stream's checkpoints,
// whatever the topic's partition count: murmur2 of the name, like Kafka's
// default partitioner.
func CheckpointPartition(stream string) int32 {
	return int32(KeyPartition(&kgo.Record{Key: []byte(stream)}, CheckpointPartitions))
}

// byKey takes 5 KB. Records with a key do not change it: one is enough for all clients.
var byKey = kgo.StickyKeyPartitioner(nil).ForTopic("")

// KeyPartition returns the partition of a record with a key among n: murmur2, like
// Kafka's default partitioner. It may be called concurrently.
func KeyPartition(r *kgo.Record, n int) int { return byKey.Partition(r, n) }

// The commands below are for people to paste: what this program may do is for
// the cluster's administrators to grant.

// Grant returns the command that grants an ACL to KAFKA_SASL_USERNAME, or to a
// placeholder. With AWS_MSK_IAM it returns the statement of an IAM policy.
func (c *Config) Grant(right string) string {
	if c.SASLMechanism == saslMSK {
		return statement(right)
	}
	who := "<principal>"
	if c.SASLUsername != "" {
		who = c.SASLUsername
	}
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal 'User:%s' %s",
		strings.Join(c.Brokers, ","), who, right)
}

// GrantLogin returns what allows connecting, "" where a login suffices.
func (c *Config) GrantLogin() string {
	if c.SASLMechanism != saslMSK {
		return ""
	}
	return c.Grant("--operation IdempotentWrite --cluster")
}

// The operations of GrantWrite and GrantRead.
const (
	toWrite = "--operation Write --operation Describe"
	toRead  = "--operation Read --operation DescribeConfigs"
)

// GrantWrite returns the command that allows publishing to topics.
func (c *Config) GrantWrite(topics ...string) string { return c.Grant(toWrite + onTopics(topics)) }

// GrantRead returns the command that allows reading topics and their configuration.
func (c *Config) GrantRead(topics ...string) string { return c.Grant(toRead + onTopics(topics)) }

// onTopics names topics in a right.
func onTopics(names []string) string { return " --topic " + strings.Join(names, " --topic ") }

// GrantCreate returns the command that allows creating a topic.
func (c *Config) GrantCreate(topic string) string {
	return c.Grant("--operation Create --topic " + topic)
}

// Alter returns the command that changes a topic setting.
func (c *Config) Alter(topic, setting string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config %s",
		strings.Join(c.Brokers, ","), topic, setting)
}

func (c *Config) missing(t *Topic, advice bridge.Hint) *bridge.Fault {
	f := bridge.Blockf("unknown_topic_or_partition", bridge.ReasonTopic, "", "topic %s does not exist", t.Name)
	return c.Advise(f, advice)
}

// Unknown is the fault of a topic that was created or found, but that the broker which was
// asked last does not know yet. It is retried: under load that takes seconds.
func (t *Topic) Unknown() *bridge.Fault {
	return &bridge.Fault{
		Class: bridge.Transient, Code: "unknown_topic_or_partition",
		Err: fmt.Errorf("topic %s exists, but a broker does not know it yet", t.Name),
	}
}

func forbidden(topics []string, what, grant string) *bridge.Fault {
	return bridge.Blockf("topic_authorization_failed", bridge.ReasonAuth, grant, "%s: no permission to %s",
		topicsText(topics), what)
}

// topicsText names topics for people.
func topicsText(names []string) string {
	if len(names) == 1 {
		return "topic " + names[0]
	}
	return "topics " + strings.Join(names, ", ")
}

// CanWrite returns a Fault that names all existing topics that may not be written, or nil.
func (c *Config) CanWrite(topics ...*Topic) error {
	var denied []string
	for _, t := range topics {
		if t.Exists && !t.may(kmsg.ACLOperationWrite) {
			denied = append(denied, t.Name)
		}
	}
	if len(denied) == 0 {
		return nil
	}
	return forbidden(denied, "write", c.GrantWrite(denied...))
}

// CanPublish returns why events cannot be published to a topic, or nil.
func (c *Config) CanPublish(t *Topic) error {
	switch {
	case !t.Exists:
		return c.missing(t, bridge.HintTopicMissing)
	case !t.may(kmsg.ACLOperationWrite):
		return c.CanWrite(t)
	case t.Settings.Compacted:
		return bridge.Blockf("compacted", bridge.ReasonTopic,
			c.Alter(t.Name, "cleanup.policy=delete"),
			"topic %s is compacted: it would keep one record per key", t.Name)
	}
	return tooSmall(t)
}

// CanRead returns why an existing topic cannot be read, or nil.
func (c *Config) CanRead(t *Topic) error {
	if t.may(kmsg.ACLOperationRead) {
		return nil
	}
	return forbidden([]string{t.Name}, "read", c.GrantRead(t.Name))
}

// CanCheckpoint returns why a topic cannot hold checkpoints, or nil.
func (c *Config) CanCheckpoint(t *Topic) error {
	switch {
	case !t.Exists:
		return c.missing(t, bridge.HintCheckpointTopicMissing)
	case len(t.Partitions) < CheckpointPartitions:
		return bridge.Blockf("partitions", bridge.ReasonTopic,
			fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --alter --topic %s --partitions %d",
				strings.Join(c.Brokers, ","), t.Name, CheckpointPartitions),
			"topic %s has %d partitions, %d are required: each stream has a fixed partition",
			t.Name, len(t.Partitions), CheckpointPartitions)
	}
	return c.canCompact(t, "checkpoints")
}

// CanKeepKeys returns why a topic cannot keep the keys of encrypted values, or nil.
func (c *Config) CanKeepKeys(t *Topic) error {
	switch {
	case !t.Exists:
		return bridge.Blockf("topic_missing", bridge.ReasonTopic, "if values were encrypted before, restore the topic: "+
			"without it they stay unreadable; otherwise: exportbridge topics create --execute",
			"topic %s does not exist", t.Name)
	case len(t.Partitions) != 1:
		return bridge.Blockf("partitions", bridge.ReasonTopic, "create it again with one partition, before values are "+
			"encrypted", "topic %s has %d partitions, 1 is required: the keys of a subject have one order",
			t.Name, len(t.Partitions))
	}
	return c.canCompact(t, "keys")
}

// canCompact returns why a compacted topic cannot be written and read, or nil.
func (c *Config) canCompact(t *Topic, what string) error {
	read, write, name := t.may(kmsg.ACLOperationRead), t.may(kmsg.ACLOperationWrite), []string{t.Name}
	switch {
	case !write && !read:
		return forbidden(name, "write and read", c.Grant(toWrite+" "+toRead+onTopics(name)))
	case !write:
		return c.CanWrite(t)
	case !read:
		return c.CanRead(t)
	case t.Settings.Known && (!t.Settings.Compacted || t.Settings.Deletes):
		return bridge.Blockf("cleanup_policy", bridge.ReasonTopic, c.Alter(t.Name, "cleanup.policy=compact"),
			"topic %s has cleanup.policy %s: %s would be deleted after the retention time", t.Name, t.Configs["cleanup.policy"], what)
	}
	return tooSmall(t)
}

func tooSmall(t *Topic) error {
	if t.Settings.MaxMessage >= MinMessage {
		return nil
	}
	return bridge.Blockf("max_message_bytes", bridge.ReasonTopic, "raise max.message.bytes; Kafka's default is 1048588",
		"topic %s allows only %d bytes per message, %d are required", t.Name, t.Settings.MaxMessage, MinMessage)
}
