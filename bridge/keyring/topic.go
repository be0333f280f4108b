// Package keyring keeps the data keys of subjects in a compacted topic with one partition.
package keyring

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/seal"
)

// Config names a topic of keys.
type Config struct {
	// Kafka says how to connect.
	Kafka  kafkaclient.Config
	Topic  string
	Master *seal.Master
	// Make, if not nil, is called if the topic is missing. It makes the topic, or returns a
	// Fault.
	Make func(context.Context) error
	// ReadOnly lets a Ring write nothing. The values of a subject without a key are withheld, and
	// all values if the topic is missing or may not be read.
	ReadOnly bool
	// TransactionalID is that of Rewrap.
	TransactionalID string
}

// stallLimit bounds how long the topic may not answer. A deleted topic is found so: Kafka's
// answers may mean that it was just created.
const stallLimit = 10 * time.Second

// rollAfter is longer than the time for which a segment of the topic takes records.
const rollAfter = kafkaclient.KeySegment + time.Minute

// topic reads the topic in the order of its offsets. One goroutine uses it.
type topic struct {
	cfg    *Config
	client *kafkaclient.Client
	log    *kafkaclient.PartitionLog
	next   int64
	rollAt time.Time // see roll; zero if nothing waits
}

// open connects, if check finds no fault with the topic. The caller closes the client.
func (c *Config) open(
	ctx context.Context, check func(*kafkaclient.Topic) error, opts ...kgo.Opt,
) (*topic, error) {
	client, err := c.Kafka.Open(append(opts, kgo.DefaultProduceTopic(c.Topic))...)
	if err != nil {
		return nil, err
	}
	t := &topic{cfg: c, client: client}
	if err = t.find(ctx, c.Make, check); err != nil {
		client.Close()
		return nil, t.fault(err)
	}
	return t, nil
}

// canRead returns why the keys cannot be read, or nil.
func (c *Config) canRead(t *kafkaclient.Topic) error {
	if !t.Exists {
		return bridge.Blockf("topic_missing", bridge.ReasonTopic, "", "topic %s does not exist", t.Name)
	}
	return c.Kafka.CanRead(t)
}

// find finds the topic, and the first offset.
func (t *topic) find(
	ctx context.Context, make func(context.Context) error, check func(*kafkaclient.Topic) error,
) error {
	found, err := t.client.Find(ctx, t.cfg.Topic)
	if err != nil {
		return err
	}
	if !found[0].Exists && make != nil {
		if err = make(ctx); err != nil {
			return err
		}
		return t.find(ctx, nil, check)
	}
	if err = check(&found[0]); err != nil {
		return err
	}
	t.log = t.client.Partition(&found[0], 0)
	t.log.Patience = stallLimit
	span, err := t.log.Bounds(ctx)
	t.next = span.From
	return err
}

// unfit returns what check finds in the topic as it is now. Brokers that do not answer, or do not
// know the topic, are left to step.
func (t *topic) unfit(ctx context.Context, check func(*kafkaclient.Topic) error) error {
	found, err := t.client.Describe(ctx, t.cfg.Topic)
	if err != nil || !found[0].Exists {
		return nil //nolint:nilerr // as above
	}
	return check(&found[0])
}

func (t *topic) fault(err error) error { return t.client.Explain(err, t.cfg.Topic) }

// end returns the offset after the last record.
func (t *topic) end(ctx context.Context) (int64, error) {
	span, err := t.log.Bounds(ctx)
	if err != nil {
		return 0, t.fault(err)
	}
	return span.To, nil
}

// step waits briefly for records, and passes them on.
func (t *topic) step(ctx context.Context, visit func(*kgo.Record, *seal.Record)) error {
	chunk, err := t.log.Fetch(ctx, t.next)
	if err != nil {
		return t.fault(err)
	}
	for _, r := range chunk.Records {
		var found *seal.Record // nil of the end of a transaction
		if !r.Attrs.IsControl() {
			if found, err = t.cfg.Master.Read(r.Key, r.Value); err != nil {
				return fmt.Errorf("topic %s, offset %d: %w", t.cfg.Topic, r.Offset, err)
			}
		}
		t.rollAt = dueAfter(t.rollAt, r)
		visit(r, found)
	}
	t.next = max(t.next, chunk.Next)
	return nil
}

// to reads up to an offset, exclusive.
func (t *topic) to(ctx context.Context, end int64, visit func(*kgo.Record, *seal.Record)) error {
	for t.next < end {
		if err := t.step(ctx, visit); err != nil {
			return err
		}
	}
	return nil
}

// dueAfter returns when roll is due after a record, if it was due at a time before. The end of a
// transaction says that keys were wrapped again.
func dueAfter(due time.Time, record *kgo.Record) time.Time {
	switch {
	case len(record.Value) == 0, record.Attrs.IsControl():
		return record.Timestamp.Add(rollAfter)
	case record.Timestamp.Before(due):
		return due
	}
	return time.Time{}
}

// roll returns a record without meaning once keys were deleted or wrapped again and nothing followed for
// longer than a segment takes records: Kafka never compacts the segment that it writes to.
func (t *topic) roll() []*kgo.Record {
	if t.rollAt.IsZero() || time.Now().Before(t.rollAt) {
		return nil
	}
	t.rollAt = time.Time{} // rolls once, whatever timestamp the broker sets
	return []*kgo.Record{{Key: []byte(seal.Roll), Value: []byte("{}")}}
}

// publish publishes records, and returns the offset after them once all replicas have them.
func publish(ctx context.Context, c *kafkaclient.Client, topic string, records []*kgo.Record) (end int64, err error) {
	if err = c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return 0, c.Explain(fmt.Errorf("publish to topic %s: %w", topic, err), topic)
	}
	for _, r := range records {
		end = max(end, r.Offset+1)
	}
	return end, nil
}

// late is the fault of a topic that is not read in time.
func late(topic string, err error) error {
	return &bridge.Fault{Class: bridge.Transient, Code: "event_keys", Err: fmt.Errorf("read topic %s: %w", topic, err)}
}

// recreated is the fault of a topic that lost all keys while a Ring followed it.
func recreated(topic string) error {
	return bridge.Blockf("topic_recreated", bridge.ReasonTopic,
		"restore the topic if possible; otherwise restart, and repeat exportbridge forget for each forgotten "+
			"subject: the values encrypted so far stay unreadable", "topic %s was recreated: the keys in it are lost", topic)
}
