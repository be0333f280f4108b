package kafkasink

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

// TransactionalID returns the transactional id of the stream. It is named after the data
// that the transactions protect: two writers of the same checkpoints, or of the same job's
// marks, always fence each other.
func (c *Config) TransactionalID() string {
	id := c.CheckpointTopic + "." + c.Stream
	if c.job != "" {
		id += "." + c.job
	}
	return id
}

// The keys of a stream's records in the checkpoint topic.
func (c *Config) dataKey() string    { return c.Stream }
func (c *Config) mirrorKey() string  { return c.Stream + "/mirror" }
func (c *Config) barrierKey() string { return c.scopedKey("barrier") }

// scopedKey is the key of another record of the stream, or of one of its jobs.
func (c *Config) scopedKey(name string) string {
	key := c.Stream + "/" + name
	if c.job != "" {
		key = c.job + "/" + key
	}
	return key
}

// checkpointRecord returns the record of a checkpoint under one of the stream's
// keys, on its fixed partition of the topic, with the current time.
func (c *Config) checkpointRecord(key string, cp *bridge.Checkpoint, topic *kafkaclient.Topic) (kgo.Record, error) {
	value, err := cp.Encode()
	if err != nil {
		return kgo.Record{}, err
	}
	rec := c.ownRecord(key, value)
	rec.Headers = []kgo.RecordHeader{{Key: kafkarecord.HeaderContentType, Value: []byte("application/json")}}
	if size, limit := recordSize(&rec), topic.Settings.MaxMessage; size > limit {
		hint := c.Alter(topic.Name, fmt.Sprintf("max.message.bytes=%d", 2*size))
		if !topic.Settings.Known { // the limit is that of the setting
			hint = hiddenLimit(c.GrantRead(topic.Name))
		}
		return kgo.Record{}, bridge.Blockf("checkpoint_too_large", bridge.ReasonTopic, hint,
			"checkpoint %s of %s has %d bytes, topic %s allows %d", cp.Version, c.Stream, size, topic.Name, limit)
	}
	return rec, nil
}

// partition is the stream's partition of the checkpoint topic.
func (c *Config) partition() int32 { return kafkaclient.CheckpointPartition(c.Stream) }

// ownRecord returns a record for the stream's partition of the checkpoint topic.
func (c *Config) ownRecord(key string, value []byte) kgo.Record {
	return kgo.Record{
		Topic: c.CheckpointTopic, Partition: c.partition(),
		Key: []byte(key), Value: value, Timestamp: time.Now(),
	}
}

// partitioner partitions events by key like Java's client, and checkpoints by
// their record's partition.
type partitioner struct {
	checkpoints string // topic
	topics      *topics
}

// ForTopic implements kgo.Partitioner.
func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	if topic == p.checkpoints {
		return kgo.ManualPartitioner().ForTopic(topic)
	}
	return &eventPartitioner{reach: p.topics.reaches.of(topic)}
}
