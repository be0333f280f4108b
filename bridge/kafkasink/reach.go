package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// A topic that is deleted and made again has the same name. What keeps events
// of a session out of it:
//
//   - The client is made to learn the topics when the session begins (pin). It
//     never takes another id for a name, and names topics by id when it produces
//     (Kafka 4.1; transactions from transaction.version 2): then no record of the
//     session can get into another topic, at most the end of a transaction.
//   - Older brokers are told names. There an acknowledgement below the offset
//     that the partition is known to reach is of another log; the first record
//     of an empty partition proves nothing, so the ids are asked for once more
//     behind it. Both end the session before the transaction is committed. At
//     least once, such records are visible, but nothing goes on from them. What
//     is left is a topic that somebody else has filled that far meanwhile: then
//     the client refuses to commit once it sees the other id, and the look at
//     the ids twice a minute (refresh) ends the session.

// reach is the known end of one topic's log. While records are in flight it
// belongs to the client's promises, which are serialized, otherwise to the
// Sink's caller.
type reach struct {
	topic *kafkaclient.Topic
	ends  []int64 // of the partitions
	start int64   // the sum of where they begin
	first bool    // a record was the first of its partition, and the ids were not asked for since
	// keyed is over how many partitions the client spreads keys, 0 before the
	// first one; pinned is true once it has learnt the topic. Both are set
	// while a record is partitioned.
	keyed  atomic.Int32
	pinned atomic.Bool
	// used are the partitions that got a keyed record since takeUsed.
	used []atomic.Bool
}

// reaches are those of a session's topics of events and dead letters.
type reaches []*reach

// follows records an acknowledged offset, and checks that it is after the known
// end of the partition.
func (t *reach) follows(r *kgo.Record) error {
	p := int(r.Partition)
	for p >= len(t.ends) { // a partition that was added
		t.ends = append(t.ends, 0)
	}
	if r.Offset < t.ends[p] {
		return fmt.Errorf("partition %d is at offset %d, it was at %d: %w", p, r.Offset, t.ends[p],
			&bridge.CutOffError{Topic: r.Topic, Offsets: t.ends[p] - r.Offset})
	}
	t.first = t.first || t.ends[p] == 0
	t.ends[p] = r.Offset + 1
	return nil
}

// state is what is known of the topic.
func (t *reach) state(letters bool) bridge.TopicState {
	s := t.topic.State(letters)
	if n := int(t.keyed.Load()); n > 0 {
		s.Partitions = n
	}
	for _, end := range t.ends {
		s.End += end
	}
	s.Start, s.Ends = t.start, bridge.EncodeEnds(t.ends)
	return s
}

// Topics implements bridge.Sink.
func (s *Sink) Topics(ctx context.Context) ([]bridge.TopicState, error) {
	x := s.session
	if x == nil {
		return nil, noSession()
	}
	ctx, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	if err := x.topics.measure(ctx); err != nil {
		s.endSession()
		return nil, x.explain(err)
	}
	return x.topics.states(), nil
}

// grow notes where the log ends, unless it is known to reach further: then the end of the
// log is lost, which the next acknowledgement shows.
func (t *reach) grow(bounds map[int32]kafkaclient.Span) {
	for id, b := range bounds {
		t.ends = append(t.ends, make([]int64, max(0, int(id)+1-len(t.ends)))...)
		t.ends[id] = max(t.ends[id], b.To)
	}
}

// of returns what is known of a topic, or nil.
func (all reaches) of(topic string) *reach {
	for _, t := range all {
		if t.topic.Name == topic {
			return t
		}
	}
	return nil
}

// pinPartition is the partition of a record that only makes the client learn
// its topic: it is never sent.
const pinPartition = -1

// pinned reports whether the client knows the ids of all topics.
func (all reaches) pinned() bool {
	for _, t := range all {
		if !t.pinned.Load() {
			return false
		}
	}
	return true
}

// pin makes a client load the session's topics, once.
func (all reaches) pin(ctx context.Context, client *kafkaclient.Client) error {
	if all.pinned() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	results := make(chan error, len(all))
	for _, t := range all {
		record := kgo.Record{Topic: t.topic.Name, Partition: pinPartition, Key: []byte{}, Timestamp: time.Now()}
		client.Produce(ctx, &record, func(_ *kgo.Record, err error) { results <- err })
	}
	var errs []error
	for range all {
		errs = append(errs, <-results) // Produce heeds ctx until the topic is known
	}
	for _, t := range all {
		if !t.pinned.Load() {
			return fmt.Errorf("load metadata of topic %s: %w", t.topic.Name, errors.Join(errs...))
		}
	}
	return nil
}

// eventPartitioner partitions the records of one topic by key, like Kafka's default
// partitioner, and records what the client knows of the topic.
type eventPartitioner struct {
	reach  *reach               // nil where nobody asks
	sticky kgo.TopicPartitioner // of records without a key; nil before the first one
}

// RequiresConsistency implements kgo.TopicPartitioner.
func (*eventPartitioner) RequiresConsistency(r *kgo.Record) bool { return r.Key != nil }

// Partition implements kgo.TopicPartitioner.
func (p *eventPartitioner) Partition(r *kgo.Record, n int) int {
	switch {
	case p.reach != nil && r.Partition == pinPartition:
		p.reach.pinned.Store(true)
		return pinPartition // which the client takes for a mistake, and fails the record
	case r.Key == nil:
		if p.sticky == nil {
			p.sticky = kgo.StickyPartitioner().ForTopic("")
		}
		return p.sticky.Partition(r, n)
	}
	id := kafkaclient.KeyPartition(r, n)
	if p.reach != nil {
		p.reach.keyTo(id, n)
	}
	return id
}

// keyTo notes that a key has gone to one of n partitions. For a record without key,
// id is only an index of those that have a leader, and may change where a batch begins.
func (t *reach) keyTo(id, n int) {
	if int(t.keyed.Load()) != n {
		t.keyed.Store(int32(n))
	}
	if id < len(t.used) && !t.used[id].Load() {
		t.used[id].Store(true)
	}
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (p *eventPartitioner) OnNewBatch() {
	if inner, ok := p.sticky.(kgo.TopicPartitionerOnNewBatch); ok {
		inner.OnNewBatch()
	}
}
