package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
)

// A topic that was deleted and recreated has the same name and another id. No event of a
// session may get into the new topic:
//
//   - The client loads the topics' ids when the session begins (pin). The client keeps
//     the id of a name, and produces by id (Kafka 4.1; transactions from
//     transaction.version 2). Then no record of the session can get into another topic;
//     only the marker that ends a transaction can.
//   - Requests to older brokers have names. An acknowledgement below the known end of
//     the partition shows another log. The first record of an empty partition shows
//     nothing: the session asks for the ids again (confirm). A changed log or id ends the
//     session before it commits. In at-least-once mode the records are visible, but no
//     checkpoint follows them.
//   - Another program may have filled the new topic up to the known end. Then the client
//     refuses to commit once it has the other id, and the session asks for the ids twice
//     a minute (refresh).

// reach is the known end of one topic's log. While records are in flight, the client's
// promises own it, one after the other; otherwise the Sink's caller does.
type reach struct {
	topic *kafkaclient.Topic
	ends  []int64 // the known ends of the partitions
	start int64   // the sum of the partitions' first offsets
	first bool    // since confirm, a record was the first of its partition
	// keyed is the number of partitions over which the client spreads keys, 0 before the
	// first key. pinned is true once the client has loaded the topic. Both are set while
	// a record is partitioned.
	keyed  atomic.Int32
	pinned atomic.Bool
	// used are the partitions that got a keyed record since takeUsed.
	used []atomic.Bool
}

// reaches are the known ends of a session's topics of events and dead letters.
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

// grow sets the ends of the log, but never to a lower offset: a lower end shows that the
// log was cut, and the next acknowledgement reports it.
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

// pinPartition is the partition of a record that only makes the client load the topic: it
// is never sent.
const pinPartition = -1

// pin makes a client load the session's topics, once.
func (r reaches) pin(ctx context.Context, client *kafkaclient.Client) error {
	unpinned := func(t *reach) bool { return !t.pinned.Load() }
	if !slices.ContainsFunc(r, unpinned) {
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
		errs = append(errs, <-results) // Produce obeys ctx until the topic is known
	}
	if i := slices.IndexFunc(r, unpinned); i >= 0 {
		return fmt.Errorf("load metadata of topic %s: %w", r[i].topic.Name, errors.Join(errs...))
	}
	return nil
}

// eventPartitioner partitions the records of one topic by key, like Kafka's default
// partitioner, and records what the client knows of the topic.
type eventPartitioner struct {
	reach  *reach               // nil for a topic without known ends
	sticky kgo.TopicPartitioner // of records without a key; nil before the first one
}

// RequiresConsistency implements kgo.TopicPartitioner.
func (*eventPartitioner) RequiresConsistency(r *kgo.Record) bool { return r.Key != nil }

// Partition implements kgo.TopicPartitioner.
func (p *eventPartitioner) Partition(r *kgo.Record, n int) int {
	switch {
	case p.reach != nil && r.Partition == pinPartition:
		p.reach.pinned.Store(true)
		return pinPartition // an invalid partition: the client fails the record
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

// keyTo records that a key went to partition id of n. For a record without a key that is
// unknown: the client gives it an index among the partitions with a leader, which may
// change with a batch.
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
