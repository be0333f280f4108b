package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// quietTime is how long no record may come, from brokers that answer,
	// before the rest of a partition counts as deleted.
	quietTime = 5 * time.Second
	// queueLimit is how many records of a partition wait for those of others
	// before the partition is paused.
	queueLimit = 5_000
	// windowGrowth is how much further back each look for the newest records
	// goes than the one before.
	windowGrowth = 4
)

// topicReader reads one topic, read_committed. One goroutine uses it.
type topicReader struct {
	open  func(...kgo.Opt) (*kgo.Client, error)
	topic string
	keep  func(*kgo.Record) bool
}

// span is a part of a partition, to exclusive.
type span struct{ from, to int64 }

// bounds returns all that can be read of each partition now.
func (t *topicReader) bounds(ctx context.Context) (map[int32]span, error) {
	client, err := t.open()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, t.topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, t.explain("list first offsets", err)
	}
	ends, err := admin.ListCommittedOffsets(ctx, t.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, t.explain("list last offsets", err)
	}
	spans := make(map[int32]span)
	for id, end := range ends[t.topic] {
		start := starts[t.topic][id].Offset
		spans[id] = span{start, max(start, end.Offset)}
	}
	return spans, nil
}

// begin moves the beginning of the spans to where reading starts.
func (t *topicReader) begin(ctx context.Context, spans map[int32]span, from tailStart) error {
	switch from.kind {
	case fromEnd:
		for id, s := range spans {
			spans[id] = span{s.to, s.to}
		}
	case fromBack:
		for id, s := range spans {
			spans[id] = span{max(s.from, s.to-from.n), s.to}
		}
	case fromTime:
		client, err := t.open()
		if err != nil {
			return err
		}
		defer client.Close()
		after, err := kadm.NewClient(client).ListOffsetsAfterMilli(ctx, from.n, t.topic)
		if err == nil {
			err = after.Error()
		}
		if err != nil {
			return t.explain("list offsets by time", err)
		}
		for id, s := range spans {
			spans[id] = span{min(s.to, max(s.from, after[t.topic][id].Offset)), s.to}
		}
	}
	return nil
}

// newest returns the newest n records over all partitions that the filter
// keeps, in the order of their time. It looks back in each partition only as
// far as it must.
func (t *topicReader) newest(ctx context.Context, spans map[int32]span, n int) ([]*kgo.Record, error) {
	found := make(map[int32][]*kgo.Record) // per partition, the newest n
	todo := maps.Clone(spans)
	for size := int64(n); ; size *= windowGrowth {
		windows := make(map[int32]span)
		for id, s := range todo {
			if s.from < s.to && len(found[id]) < n {
				windows[id] = span{max(s.from, s.to-size), s.to}
			}
		}
		if len(windows) == 0 {
			break
		}
		older := make(map[int32][]*kgo.Record)
		take := func(r *kgo.Record) {
			older[r.Partition] = lastOf(append(older[r.Partition], r), 2*n, n)
		}
		if err := t.read(ctx, windows, take, nil); err != nil {
			return nil, err
		}
		for id, w := range windows {
			found[id] = lastOf(slices.Concat(older[id], found[id]), n, n)
			todo[id] = span{todo[id].from, w.from}
		}
	}
	all := slices.Concat(slices.Collect(maps.Values(found))...)
	slices.SortFunc(all, byTime)
	return lastOf(all, n, n), nil
}

// lastOf cuts a list that has become longer than limit down to its last n.
func lastOf(list []*kgo.Record, limit, n int) []*kgo.Record {
	if len(list) <= limit {
		return list
	}
	return slices.Clone(list[len(list)-n:])
}

func byTime(a, b *kgo.Record) int {
	return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

// merged emits the records of the spans: each partition in its order, and
// between partitions the one with the older time first. After each step it
// calls settle.
func (t *topicReader) merged(ctx context.Context, spans map[int32]span, emit func(*kgo.Record) error, settle func() error) error {
	queues := make(map[int32][]*kgo.Record)
	take := func(r *kgo.Record) { queues[r.Partition] = append(queues[r.Partition], r) }
	step := func(client *kgo.Client, open map[int32]span) error {
		if err := drain(queues, open, emit); err != nil {
			return err
		}
		t.hold(client, queues, open)
		return settle()
	}
	if err := t.read(ctx, spans, take, step); err != nil {
		return err
	}
	return drain(queues, nil, emit)
}

// drain emits what can be ordered: as long as every partition that is still
// being read has a record waiting.
func drain(queues map[int32][]*kgo.Record, open map[int32]span, emit func(*kgo.Record) error) error {
	for {
		for id := range open {
			if len(queues[id]) == 0 {
				return nil
			}
		}
		var first *kgo.Record
		for _, queue := range queues {
			if len(queue) > 0 && (first == nil || byTime(queue[0], first) < 0) {
				first = queue[0]
			}
		}
		if first == nil {
			return nil
		}
		queues[first.Partition] = queues[first.Partition][1:]
		if err := emit(first); err != nil {
			return err
		}
	}
}

// hold stops fetching partitions that are far ahead of the others, so that
// memory stays bounded.
func (t *topicReader) hold(client *kgo.Client, queues map[int32][]*kgo.Record, open map[int32]span) {
	var ahead, wanted []int32
	for id := range open {
		if len(queues[id]) >= queueLimit {
			ahead = append(ahead, id)
		} else {
			wanted = append(wanted, id)
		}
	}
	client.PauseFetchPartitions(map[string][]int32{t.topic: ahead})
	client.ResumeFetchPartitions(map[string][]int32{t.topic: wanted})
}

// read takes the records of the spans that the filter keeps, until the end of
// each. After each poll it calls step, if not nil, with the spans that are not
// finished.
func (t *topicReader) read(ctx context.Context, spans map[int32]span, take func(*kgo.Record), step func(*kgo.Client, map[int32]span) error) error {
	open := make(map[int32]span)
	for id, s := range spans {
		if s.from < s.to {
			open[id] = s
		}
	}
	if len(open) == 0 {
		return nil
	}
	// Control records too, or the end of a partition may never be seen.
	client, err := t.consume(open, kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer client.Close()
	for len(open) > 0 {
		fetches, err := t.poll(ctx, client, quietTime)
		if err != nil {
			return err
		}
		if fetches.Empty() {
			// Nothing more comes. That is the end only if the brokers answer.
			_, err := t.bounds(ctx)
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			s, ok := open[r.Partition]
			if !ok {
				return
			}
			if r.Offset+1 >= s.to {
				delete(open, r.Partition)
			}
			if r.Offset < s.to && !r.Attrs.IsControl() && t.keep(r) {
				take(r)
			}
		})
		if step == nil {
			continue
		}
		if err := step(client, open); err != nil {
			return err
		}
	}
	return nil
}

// follow emits what comes after the spans, for ever. After each poll it calls
// settle.
func (t *topicReader) follow(ctx context.Context, spans map[int32]span, emit func(*kgo.Record) error, settle func() error) error {
	ends := make(map[int32]span)
	for id, s := range spans {
		ends[id] = span{from: s.to}
	}
	client, err := t.consume(ends)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches, err := t.poll(ctx, client, 0)
		if err != nil {
			return err
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if !t.keep(r) {
				continue
			}
			if err := emit(r); err != nil {
				return err
			}
		}
		if err := settle(); err != nil {
			return err
		}
	}
}

// consume returns a client that reads the partitions from the spans' start.
func (t *topicReader) consume(spans map[int32]span, opts ...kgo.Opt) (*kgo.Client, error) {
	from := make(map[int32]kgo.Offset, len(spans))
	for id, s := range spans {
		from[id] = kgo.NewOffset().At(s.from)
	}
	return t.open(append(opts,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: from}),
	)...)
}

// poll returns what comes next. It waits for the given time, 0 being for
// ever; then the fetches are empty.
func (t *topicReader) poll(ctx context.Context, client *kgo.Client, wait time.Duration) (kgo.Fetches, error) {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if wait > 0 {
		limited, cancel = context.WithTimeout(ctx, wait)
	}
	defer cancel()
	fetches := client.PollFetches(limited)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, failed := range fetches.Errors() {
		if failed.Topic != "" {
			return nil, t.explain(fmt.Sprintf("read partition %d", failed.Partition), failed.Err)
		}
	}
	return fetches, nil
}

// explain says what an error of a broker was about and what to do.
func (t *topicReader) explain(what string, err error) error {
	err = fmt.Errorf("%s of topic %s: %w", what, t.topic, err)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return &exitError{code: exitRefused, err: err, hint: "exportbridge topics plan --acls"}
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return &exitError{code: exitFailed, err: err, hint: "exportbridge topics create --execute"}
	}
	return err
}
