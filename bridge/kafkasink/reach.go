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
func (r *reach) follows(rec *kgo.Record) error {
	p := int(rec.Partition)
	for p >= len(r.ends) { // a partition that was added
		r.ends = append(r.ends, 0)
	}
	if rec.Offset < r.ends[p] {
		return fmt.Errorf("partition %d is at offset %d, it was at %d: %w", p, rec.Offset, r.ends[p],
			&bridge.CutOffError{Topic: rec.Topic, Offsets: r.ends[p] - rec.Offset})
	}
	r.first = r.first || r.ends[p] == 0
	r.ends[p] = rec.Offset + 1
	return nil
}

// state is what is known of the topic.
func (r *reach) state(letters bool) bridge.TopicState {
	s := r.topic.State(letters)
	if n := int(r.keyed.Load()); n > 0 {
		s.Partitions = n
	}
	for _, end := range r.ends {
		s.End += end
	}
	s.Start, s.Ends = r.start, bridge.EncodeEnds(r.ends)
	return s
}

// Topics implements bridge.Sink.
func (s *Sink) Topics(ctx context.Context) ([]bridge.TopicState, error) {
	session := s.session
	if session == nil {
		return nil, noSession()
	}
	ctx, cancel := context.WithTimeout(ctx, kafkaclient.AttemptTimeout)
	defer cancel()
	if err := session.topics.measure(ctx); err != nil {
		s.endSession()
		return nil, session.explain(err)
	}
	return session.topics.states(), nil
}

// grow notes where the log ends, unless it is known to reach further: then the end of the
// log is lost, which the next acknowledgement shows.
func (r *reach) grow(bounds map[int32]kafkaclient.Span) {
	for id, b := range bounds {
		r.ends = append(r.ends, make([]int64, max(0, int(id)+1-len(r.ends)))...)
		r.ends[id] = max(r.ends[id], b.To)
	}
}

// of returns what is known of a topic, or nil.
func (r reaches) of(topic string) *reach {
	for _, t := range r {
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
func (r reaches) pinned() bool {
	for _, t := range r {
		if !t.pinned.Load() {
			return false
		}
	}
	return true
}

// pin makes a client load the session's topics, once.
func (r reaches) pin(ctx context.Context, client *kafkaclient.Client) error {
	if r.pinned() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	results := make(chan error, len(r))
	for _, t := range r {
		record := kgo.Record{Topic: t.topic.Name, Partition: pinPartition, Key: []byte{}, Timestamp: time.Now()}
		client.Produce(ctx, &record, func(_ *kgo.Record, err error) { results <- err })
	}
	var errs []error
	for range r {
		errs = append(errs, <-results) // Produce heeds ctx until the topic is known
	}
	for _, t := range r {
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
func (r *reach) keyTo(id, n int) {
	if int(r.keyed.Load()) != n {
		r.keyed.Store(int32(n))
	}
	if id < len(r.used) && !r.used[id].Load() {
		r.used[id].Store(true)
	}
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (p *eventPartitioner) OnNewBatch() {
	if inner, ok := p.sticky.(kgo.TopicPartitionerOnNewBatch); ok {
		inner.OnNewBatch()
	}
}
