package kafkaclient

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TopicReader reads one topic as Log does, by a connection of its own for each call.
// One goroutine uses it.
type TopicReader struct {
	// Open connects to Kafka, Name is the topic's.
	Open func(...kgo.Opt) (*Client, error)
	Name string
	// Patience, Small and Waiting are as in Log.
	Patience time.Duration
	Small    bool
	Waiting  func(error)
	// Skipped counts the offsets that were deleted before they were read.
	Skipped int64
}

// Topic is the name of the topic.
func (r *TopicReader) Topic() string { return r.Name }

// with calls f with a log of the topic.
func (r *TopicReader) with(f func(*Log) error) error {
	client, err := r.Open()
	if err != nil {
		return err
	}
	defer client.Close()
	l := client.Log(r.Name, [16]byte{})
	l.Patience, l.Small, l.Waiting = r.Patience, r.Small, r.Waiting
	l.Skipped = func(_ int32, gone Span) { r.Skipped += gone.To - gone.From }
	return f(l)
}

// Bounds is Log.Bounds.
func (r *TopicReader) Bounds(ctx context.Context) (spans map[int32]Span, err error) {
	err = r.with(func(l *Log) error {
		spans, err = l.Bounds(ctx)
		return err
	})
	return spans, err
}

// Ends is Log.Ends.
func (r *TopicReader) Ends(ctx context.Context) (ends map[int32]int64, err error) {
	err = r.with(func(l *Log) error {
		ends, err = l.Ends(ctx)
		return err
	})
	return ends, err
}

// After is Log.After.
func (r *TopicReader) After(ctx context.Context, millis int64) (offsets map[int32]int64, err error) {
	err = r.with(func(l *Log) error {
		offsets, err = l.After(ctx, millis)
		return err
	})
	return offsets, err
}

// Read is Log.Read.
func (r *TopicReader) Read(ctx context.Context, spans map[int32]Span, visit func(*kgo.Record) error) error {
	return r.with(func(l *Log) error { return l.Read(ctx, spans, visit) })
}

// Merge is Log.Merge, in the order of the records' times.
func (r *TopicReader) Merge(
	ctx context.Context, spans map[int32]Span, visit func(*kgo.Record) error, settle func() error,
) error {
	return r.with(func(l *Log) error { return l.Merge(ctx, spans, compareTime, visit, settle) })
}
