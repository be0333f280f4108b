package kafkaclient

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// windowGrowth multiplies the range that Newest reads in each step back.
const windowGrowth = 4

// Reader reads spans of a topic like Log.Read.
type Reader interface {
	Read(ctx context.Context, spans map[int32]Span, visit func(*kgo.Record) error) error
}

// found is a value of a record, and where it is.
type found[T any] struct {
	at    kgo.Record // without its bytes
	value T
}

// Newest returns the values that keep takes from the newest n records of the spans that
// it accepts, ordered by compareTime. It reads back in each partition only as far as
// needed, and holds at most 2n values per partition.
func Newest[T any](
	ctx context.Context, r Reader, spans map[int32]Span, n int, keep func(*kgo.Record) (T, bool),
) ([]T, error) {
	var total int64
	for _, s := range spans {
		total += max(0, s.To-s.From)
	}
	n = int(min(int64(n), total))
	newest := make(map[int32][]found[T]) // per partition, the newest n
	todo := maps.Clone(spans)
	for size := int64(n); ; size *= windowGrowth {
		windows := make(map[int32]Span)
		for id, s := range todo {
			if s.From < s.To && len(newest[id]) < n {
				windows[id] = Span{From: max(s.From, s.To-size), To: s.To}
			}
		}
		if len(windows) == 0 {
			break
		}
		older := make(map[int32][]found[T])
		err := r.Read(ctx, windows, func(r *kgo.Record) error {
			if value, ok := keep(r); ok {
				at := kgo.Record{Timestamp: r.Timestamp, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
				older[r.Partition] = lastOf(append(older[r.Partition], found[T]{at, value}), 2*n, n)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for id, w := range windows {
			newest[id] = lastOf(slices.Concat(older[id], newest[id]), n, n)
			todo[id] = Span{From: todo[id].From, To: w.From}
		}
	}
	all := slices.Concat(slices.Collect(maps.Values(newest))...)
	slices.SortFunc(all, func(a, b found[T]) int { return compareTime(&a.at, &b.at) })
	values := make([]T, 0, min(n, len(all)))
	for _, f := range lastOf(all, n, n) {
		values = append(values, f.value)
	}
	return values, nil
}

// lastOf trims a list longer than limit to its last n elements.
func lastOf[E any](list []E, limit, n int) []E {
	if len(list) <= limit {
		return list
	}
	return slices.Clone(list[len(list)-n:])
}

// compareTime orders records by timestamp, topic, partition and offset.
func compareTime(a, b *kgo.Record) int {
	return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(a.Topic, b.Topic),
		cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

// Since moves the start of the spans to the first record at or after a time, in
// milliseconds since the epoch.
func Since(ctx context.Context, l interface {
	After(ctx context.Context, millis int64) (map[int32]int64, error)
}, spans map[int32]Span, millis int64) error {
	after, err := l.After(ctx, millis)
	if err != nil {
		return err
	}
	for id, s := range spans {
		spans[id] = Span{From: min(s.To, max(s.From, after[id])), To: s.To}
	}
	return nil
}
