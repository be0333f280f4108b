package kafkasink

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// settingsAge bounds the age of the topics' settings. Settings may change while a stream
// runs for weeks: a shorter retention deletes records whose time the old one allowed. An
// idle stream notices a recreated topic in no other way.
const settingsAge = 30 * time.Second

// metadataAge is how long a transactional client uses its metadata unless a broker refuses a
// request. kgo's five minutes open a connection of each quiet stream for nothing else. The
// client learns of added partitions from refresh.
const metadataAge = 30 * time.Minute

// topics are the described topics of a session and the known ends of their logs. Owned
// by the Sink's caller.
type topics struct {
	kafkaclient.Described
	client   *kafkaclient.Client // asks the brokers
	producer *kafkaclient.Client // produces the events
	read     time.Time           // when the topics were last described
	// reaches are the known ends of the topics of events and dead letters. measured is true
	// once the starts of their logs are known too.
	reaches  reaches
	measured bool
}

func newTopics(client, producer *kafkaclient.Client, found kafkaclient.Described) topics {
	t := topics{Described: found, client: client, producer: producer, read: time.Now()}
	for _, each := range found.Needed() {
		each.Configs = nil // Settings has the needed part of Configs
	}
	for _, each := range found.Published() {
		t.reaches = append(t.reaches, &reach{topic: each, used: make([]atomic.Bool, len(each.Partitions))})
	}
	return t
}

// named returns what is known of one of the topics, or nil.
func (t *topics) named(name string) *kafkaclient.Topic {
	for _, each := range t.Needed() {
		if each.Name == name {
			return each
		}
	}
	return nil
}

// batchLimit is the maximum batch size of a topic. A client asks once per
// topic, at its first record.
func (t *topics) batchLimit(name string) int32 {
	if each := t.named(name); each != nil {
		return int32(each.Settings.MaxMessage)
	}
	return kafkaclient.MinMessage
}

// checkpointLog returns the stream's partition of the checkpoint topic, to be read
// read_committed at any offset. A consumer would prefetch, and restart at every step
// backwards.
func (t *topics) checkpointLog(cfg *Config) *kafkaclient.PartitionLog {
	l := t.client.Partition(t.Checkpoints, cfg.partition())
	l.Waiting = cfg.Report
	return l
}

// states returns the known states of the topics of events and dead letters.
func (t *topics) states() []bridge.TopicState {
	states := make([]bridge.TopicState, len(t.reaches))
	for i, r := range t.reaches {
		states[i] = r.state(r.topic == t.DeadLetters)
	}
	return states
}

// confirm checks topic ids where offsets do not prove that the batch is in the
// right topic.
func (t *topics) confirm(ctx context.Context) error {
	ask := false
	for _, r := range t.reaches {
		ask = ask || r.first
		r.first = false
	}
	if !ask {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	return t.identify(ctx)
}

// identify returns an error if a topic of events or dead letters was recreated.
func (t *topics) identify(ctx context.Context) error {
	found, err := t.client.Identify(ctx, namesOf(t.Published())...)
	if err != nil {
		return err
	}
	return t.same(found)
}

// same compares topics with those of the session.
func (t *topics) same(found []kafkaclient.Topic) error {
	for i := range found {
		if f := &found[i]; f.ID != t.named(f.Name).ID || !f.Exists {
			return goneTopic(fmt.Errorf("topic %s was recreated", f.Name))
		}
	}
	return nil
}

// measure reads the bounds of the topics of events and dead letters. A second call doubts the
// answer of the first.
func (t *topics) measure(ctx context.Context) error {
	if t.measured {
		if err := t.client.AgreeOnLeaders(ctx, namesOf(t.Published())...); err != nil {
			return err
		}
	}
	if err := t.identify(ctx); err != nil {
		return err
	}
	bounds, err := t.client.Bounds(ctx, namesOf(t.Published())...)
	if err != nil {
		return err
	}
	for _, r := range t.reaches {
		r.start, r.ends = startOf(bounds[r.topic.Name]), nil
		r.grow(bounds[r.topic.Name])
	}
	t.measured = true
	return nil
}

// refresh returns an error if the topics have changed, and updates their known ends. It
// asks the brokers at most once per settingsAge. Unresponsive brokers are no error.
func (t *topics) refresh(ctx context.Context) error {
	if time.Since(t.read) < settingsAge {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	t.read = time.Now()
	found, err := t.client.DescribeAgain(ctx, namesOf(t.Needed())...)
	if err != nil {
		return nil //nolint:nilerr // producing waits for the brokers, and says so
	}
	if err := t.same(found); err != nil {
		return err
	}
	for i := range found {
		known := t.named(found[i].Name)
		if found[i].Settings != known.Settings {
			err := fmt.Errorf("settings of topic %s changed", known.Name)
			return &bridge.Fault{Class: bridge.Transient, Code: "settings", Err: err}
		}
		if len(found[i].Partitions) > len(known.Partitions) {
			known.Partitions = found[i].Partitions
			t.producer.ForceMetadataRefresh()
		}
	}
	// A quiet partition grows by the marker of the last transaction, and by records of
	// other streams. Records that retention deletes behind the known ends count as lost.
	bounds, _ := t.client.Bounds(ctx, namesOf(t.Published())...) // none after an error
	for _, r := range t.reaches {
		r.grow(bounds[r.topic.Name])
		lost := startOf(bounds[r.topic.Name]) - r.start
		if t.measured && lost > 0 && r.topic != t.DeadLetters && r.topic.Settings.KeepsAll() {
			// The next session compares the topic with the checkpoint, and blocks.
			return goneTopic(fmt.Errorf("topic %s starts %d offsets later than before, although its retention is unlimited",
				r.topic.Name, lost))
		}
	}
	return nil
}

func startOf(bounds map[int32]kafkaclient.Span) (sum int64) {
	for _, b := range bounds {
		sum += b.From
	}
	return sum
}

func namesOf(topics []*kafkaclient.Topic) []string {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	return names
}
