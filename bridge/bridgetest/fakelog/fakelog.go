// Package fakelog has a topic in memory with the methods of a read_committed
// kafkaclient.Log, and makes records like those of a stream's topic.
package fakelog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
)

// Log is a topic. It knows time only through the standard library, so it works
// in a synctest bubble. All methods may be called concurrently.
type Log struct {
	name string

	mu    sync.Mutex // guards all below
	parts [][]*kgo.Record
	first []int64         // first offset of each partition
	open  map[int32]int64 // first offset of the open transaction, by partition
	cut   int             // number of records after which a Read ends; negative for no limit
	reads int
	id    string
	keeps kafkaclient.Settings
	// changed is closed and replaced with every change.
	changed chan struct{}
}

// New returns an empty topic.
func New(topic string, partitions int) *Log {
	return &Log{
		name: topic, parts: make([][]*kgo.Record, partitions), first: make([]int64, partitions),
		open: make(map[int32]int64), cut: -1,
		changed: make(chan struct{}), id: "first", keeps: kafkaclient.Settings{Known: true, Retention: kafkaclient.ForEver},
	}
}

// Expire sets the topic's retention.
func (l *Log) Expire(retention time.Duration) { l.change(func() { l.keeps.Retention = retention }) }

// Remake recreates the topic with another id.
func (l *Log) Remake(id string) {
	l.change(func() {
		l.id, l.parts, l.first = id, make([][]*kgo.Record, len(l.parts)), make([]int64, len(l.parts))
	})
}

// Kept returns which of its records the topic still has.
func (l *Log) Kept(ctx context.Context) ([]kafkaclient.Kept, error) {
	spans, err := l.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	id, keeps := l.id, l.keeps
	l.mu.Unlock()
	k := kafkaclient.Kept{Topic: l.name, ID: id}
	err = k.Note(ctx, l, spans, &keeps)
	return []kafkaclient.Kept{k}, err
}

// Append adds records to a partition. They are committed, unless the partition has an open
// transaction.
func (l *Log) Append(partition int32, records ...*kgo.Record) {
	l.change(func() {
		for _, r := range records {
			r.Topic, r.Partition, r.Offset = l.name, partition, int64(len(l.parts[partition]))
			l.parts[partition] = append(l.parts[partition], r)
		}
	})
}

// Begin opens a transaction in a partition. Records that are appended from now on are
// hidden until commit is called.
func (l *Log) Begin(partition int32) (commit func()) {
	l.change(func() { l.open[partition] = int64(len(l.parts[partition])) })
	return func() { l.change(func() { delete(l.open, partition) }) }
}

// Delete deletes the records of a partition before an offset, like retention.
func (l *Log) Delete(partition int32, before int64) {
	l.change(func() { l.first[partition] = before })
}

// Cut makes each Read fail after n records, like a broker that stays away too long.
func (l *Log) Cut(n int) { l.change(func() { l.cut = n }) }

// Reads returns the number of calls of Read so far.
func (l *Log) Reads() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

func (l *Log) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Topic is the name of the topic.
func (l *Log) Topic() string { return l.name }

// Bounds returns the offsets of each partition that can be read now.
func (l *Log) Bounds(context.Context) (map[int32]kafkaclient.Span, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[int32]kafkaclient.Span)
	for id := range l.parts {
		all[int32(id)] = kafkaclient.Span{From: l.first[id], To: max(l.first[id], l.stable(int32(id)))}
	}
	return all, nil
}

// stable returns the last stable offset. The caller holds mu.
func (l *Log) stable(id int32) int64 {
	if at, ok := l.open[id]; ok {
		return at
	}
	return int64(len(l.parts[id]))
}

// Ends returns the ends of the partitions, open transactions included.
func (l *Log) Ends(context.Context) (map[int32]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends := make(map[int32]int64)
	for id, records := range l.parts {
		ends[int32(id)] = int64(len(records))
	}
	return ends, nil
}

// After returns the offset of the first record of each partition at or after a time, in
// milliseconds since the epoch. Without such a record it returns the end.
func (l *Log) After(_ context.Context, millis int64) (map[int32]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	offsets := make(map[int32]int64)
	for id, records := range l.parts {
		at := slices.IndexFunc(records, func(r *kgo.Record) bool {
			return r.Offset >= l.first[id] && r.Timestamp.UnixMilli() >= millis
		})
		if at < 0 {
			at = len(records)
		}
		offsets[int32(id)] = int64(at)
	}
	return offsets, nil
}

// errCut is the error of a Read after Cut.
var errCut = errors.New("the broker is away")

// Read calls visit with the records of the spans. It waits until ctx ends for records that
// an open transaction hides.
func (l *Log) Read(ctx context.Context, spans map[int32]kafkaclient.Span, visit func(*kgo.Record) error) error {
	l.mu.Lock()
	l.reads++
	left := l.cut
	l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(spans)) {
		for at := spans[id].From; at < spans[id].To; at++ {
			r, err := l.at(ctx, id, at)
			if err != nil {
				return l.incomplete(id, kafkaclient.Span{From: at, To: spans[id].To}, err)
			}
			if r == nil {
				continue // deleted meanwhile
			}
			if left == 0 {
				return l.incomplete(id, kafkaclient.Span{From: at, To: spans[id].To}, errCut)
			}
			left--
			if err := visit(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Log) incomplete(id int32, rest kafkaclient.Span, why error) error {
	unread := []kafkaclient.Unread{{Partition: id, Span: rest}}
	return &kafkaclient.IncompleteError{Topic: l.name, Partitions: unread, Err: why}
}

// at waits until the record at an offset is committed, and returns it.
func (l *Log) at(ctx context.Context, id int32, offset int64) (*kgo.Record, error) {
	for {
		l.mu.Lock()
		there, changed := offset < l.stable(id), l.changed
		if there {
			defer l.mu.Unlock()
			if offset < l.first[id] {
				return nil, nil //nolint:nilnil // there is none, which is no error
			}
			r := *l.parts[id][offset]
			r.Headers = slices.Clone(r.Headers)
			return &r, nil
		}
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for offset %d: %w", offset, ctx.Err())
		}
	}
}

// Record returns a record with this time and these headers, given as pairs.
func Record(at time.Time, value string, headers ...string) *kgo.Record {
	r := &kgo.Record{Value: []byte(value), Timestamp: at}
	for pair := range slices.Chunk(headers, 2) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: pair[0], Value: []byte(pair[1])})
	}
	return r
}
