package kafkaclient

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TopicReader reads a topic as Log does, by a connection of its own for each call. With
// Further topics it reads all of them as one: their partitions get the numbers of PartitionIn.
// One goroutine uses it.
type TopicReader struct {
	// Open connects to Kafka, Name is the topic's.
	Open    func(...kgo.Opt) (*Client, error)
	Name    string
	Further []string
	// Current is set if Ends must lack no record: see AgreeOnLeaders.
	Current bool
	// Patience, Small and Waiting are as in Log.
	Patience time.Duration
	Small    bool
	Waiting  func(error)
	// Skipped counts the offsets that were deleted before they were read.
	Skipped int64
}

// topicStep is more than the partitions of a topic.
const topicStep = 1 << 20

// PartitionIn returns the partition of a topic for the number that a TopicReader gives it.
func PartitionIn(id int32) int32 { return id % topicStep }

// Topic is the name of the topic, or all names.
func (r *TopicReader) Topic() string {
	return strings.Join(r.names(), ", ")
}

func (r *TopicReader) names() []string { return append([]string{r.Name}, r.Further...) }

// with calls f with a log of each topic. base is the number of the topic's partition 0.
func (r *TopicReader) with(f func(l *Log, base int32) error) error {
	client, err := r.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	for i, name := range r.names() {
		l := client.Log(name, [16]byte{})
		l.Patience, l.Small, l.Waiting = r.Patience, r.Small, r.Waiting
		l.Skipped = func(_ int32, gone Span) { r.Skipped += gone.To - gone.From }
		if err := f(l, int32(i)*topicStep); err != nil {
			return err
		}
	}
	return nil
}

// gather collects what list returns of the partitions of each topic.
func gather[T any](r *TopicReader, list func(*Log) (map[int32]T, error)) (map[int32]T, error) {
	all := make(map[int32]T)
	err := r.with(func(l *Log, base int32) error {
		found, err := list(l)
		for id, v := range found {
			all[base+id] = v
		}
		return err
	})
	return all, err
}

// Bounds is Log.Bounds.
func (r *TopicReader) Bounds(ctx context.Context) (map[int32]Span, error) {
	return gather(r, func(l *Log) (map[int32]Span, error) { return l.Bounds(ctx) })
}

// Ends is Log.Ends.
func (r *TopicReader) Ends(ctx context.Context) (map[int32]int64, error) {
	return gather(r, func(l *Log) (map[int32]int64, error) {
		if r.Current {
			if err := agreeOnLeaders(ctx, l.client, []string{l.name}); err != nil {
				return nil, err
			}
		}
		return l.Ends(ctx)
	})
}

// After is Log.After.
func (r *TopicReader) After(ctx context.Context, millis int64) (map[int32]int64, error) {
	return gather(r, func(l *Log) (map[int32]int64, error) { return l.After(ctx, millis) })
}

// Read is Log.Read, one topic after the other.
func (r *TopicReader) Read(ctx context.Context, spans map[int32]Span, visit func(*kgo.Record) error) error {
	return r.with(func(l *Log, base int32) error { return l.Read(ctx, spansAt(spans, base), visit) })
}

// spansAt returns the spans of the topic whose partition 0 has the number base.
func spansAt(spans map[int32]Span, base int32) map[int32]Span {
	own := make(map[int32]Span)
	for id, s := range spans {
		if id-PartitionIn(id) == base {
			own[PartitionIn(id)] = s
		}
	}
	return own
}

// Merge is Log.Merge over all topics, in the order of the records' times.
func (r *TopicReader) Merge(
	ctx context.Context, spans map[int32]Span, visit func(*kgo.Record) error, settle func() error,
) error {
	var parts []*partition
	return r.with(func(l *Log, base int32) error {
		if parts = append(parts, l.parts(spansAt(spans, base))...); int(base/topicStep) < len(r.Further) {
			return nil // the last topic merges all
		}
		return l.together(ctx, parts, merge(compareTime, visit, settle))
	})
}

// Newest returns the newest n records of the spans that keep accepts, in the order of their
// times.
func (r *TopicReader) Newest(
	ctx context.Context, spans map[int32]Span, n int, keep func(*kgo.Record) bool,
) (all []*kgo.Record, err error) {
	err = r.with(func(l *Log, base int32) error {
		some, err := Newest(ctx, l, spansAt(spans, base), n, func(r *kgo.Record) (*kgo.Record, bool) { return r, keep(r) })
		all = append(all, some...)
		return err
	})
	slices.SortFunc(all, compareTime)
	return lastOf(all, n, n), err
}

// Behind returns the ends of the spans as offsets by topic, for kgo.ConsumePartitions.
func (r *TopicReader) Behind(spans map[int32]Span) map[string]map[int32]kgo.Offset {
	from := make(map[string]map[int32]kgo.Offset)
	for i, name := range r.names() {
		from[name] = make(map[int32]kgo.Offset)
		for id, s := range spansAt(spans, int32(i)*topicStep) {
			from[name][id] = kgo.NewOffset().At(s.To)
		}
	}
	return from
}
