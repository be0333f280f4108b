package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
)

// usualPatience is how long a partition may show nothing while it is read.
const usualPatience = time.Minute

// topicReader reads one topic, read_committed. One goroutine uses it.
type topicReader struct {
	open  func(...kgo.Opt) (*kafkaclient.Client, error)
	topic string
	keep  func(*kgo.Record) bool
	// patience is how long a partition may show nothing, 0 for ever; say is told
	// why one does; again says how to read what could not be read in time.
	patience time.Duration
	say      func(error)
	again    string
	// skipped counts offsets that were deleted while they were to be read.
	skipped int64
}

// span is a part of a partition, to exclusive.
type span = kafkaclient.Span

// with calls f with a log of the topic.
func (t *topicReader) with(f func(*kafkaclient.Log) error) error {
	client, err := t.open()
	if err != nil {
		return err
	}
	defer client.Close()
	l := client.Log(t.topic, [16]byte{})
	l.Patience, l.Waiting = t.patience, t.say
	l.Skipped = func(_ int32, gone span) { t.skipped += gone.To - gone.From }
	return t.explain(f(l))
}

// Topic is the name of the topic.
func (t *topicReader) Topic() string { return t.topic }

// Bounds returns all that can be read of each partition now.
func (t *topicReader) Bounds(ctx context.Context) (spans map[int32]span, err error) {
	err = t.with(func(l *kafkaclient.Log) error {
		spans, err = l.Bounds(ctx)
		return err
	})
	return spans, err
}

// Ends returns where the partitions end, open transactions included.
func (t *topicReader) Ends(ctx context.Context) (ends map[int32]int64, err error) {
	err = t.with(func(l *kafkaclient.Log) error {
		ends, err = l.Ends(ctx)
		return err
	})
	return ends, err
}

// After returns the first offset of each partition at or after a time.
func (t *topicReader) After(ctx context.Context, millis int64) (offsets map[int32]int64, err error) {
	err = t.with(func(l *kafkaclient.Log) error {
		offsets, err = l.After(ctx, millis)
		return err
	})
	return offsets, err
}

// Read calls visit with the records of the spans. Without an error it has come
// to the end of each.
func (t *topicReader) Read(ctx context.Context, spans map[int32]span, visit func(*kgo.Record) error) error {
	return t.with(func(l *kafkaclient.Log) error { return l.Read(ctx, spans, visit) })
}

// begin moves the beginning of the spans to where reading starts.
func (t *topicReader) begin(ctx context.Context, spans map[int32]span, from tailStart) error {
	switch from.kind {
	case fromEnd:
		for id, s := range spans {
			spans[id] = span{From: s.To, To: s.To}
		}
	case fromBack:
		for id, s := range spans {
			spans[id] = span{From: max(s.From, s.To-from.n), To: s.To}
		}
	case fromTime:
		return kafkaclient.Since(ctx, t, spans, from.n)
	}
	return nil
}

// merged emits the records of the spans: each partition in its order, and
// between partitions the one with the older time first. Before it waits it calls
// settle.
func (t *topicReader) merged(ctx context.Context, spans map[int32]span, emit func(*kgo.Record) error, settle func() error) error {
	return t.with(func(l *kafkaclient.Log) error {
		return l.Merge(ctx, spans, kafkaclient.CompareTime, t.kept(emit), settle)
	})
}

func (t *topicReader) kept(visit func(*kgo.Record) error) func(*kgo.Record) error {
	return func(r *kgo.Record) error {
		if !t.keep(r) {
			return nil
		}
		return visit(r)
	}
}

// follow emits what comes after the spans, for ever. After each poll it calls
// settle.
func (t *topicReader) follow(ctx context.Context, spans map[int32]span, emit func(*kgo.Record) error, settle func() error) error {
	ends := make(map[int32]span)
	for id, s := range spans {
		ends[id] = span{From: s.To}
	}
	client, err := t.consume(ends)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, failed := range fetches.Errors() {
			if failed.Topic != "" {
				return t.explain(fmt.Errorf("read partition %d of topic %s: %w", failed.Partition, t.topic, failed.Err))
			}
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
func (t *topicReader) consume(spans map[int32]span, opts ...kgo.Opt) (*kafkaclient.Client, error) {
	from := make(map[int32]kgo.Offset, len(spans))
	for id, s := range spans {
		from[id] = kgo.NewOffset().At(s.From)
	}
	return t.open(append(opts,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: from}),
	)...)
}

// explain says what to do about an error.
func (t *topicReader) explain(err error) error {
	_, incomplete := errors.AsType[*kafkaclient.IncompleteError](err)
	switch {
	case err == nil:
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return &exitError{code: exitRefused, err: err, hint: "exportbridge topics plan --acls"}
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return &exitError{code: exitFailed, err: err, hint: "exportbridge topics create --execute"}
	case incomplete && !errors.Is(err, context.Canceled):
		return &exitError{code: exitFailed, err: err, hint: cmp.Or(t.again, "the same command again; exportbridge check says whether the brokers are well")}
	}
	return err
}
