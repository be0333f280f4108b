package command

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
)

// usualPatience is how long a partition may show nothing while it is read.
const usualPatience = time.Minute

// topicReader reads one topic, read_committed. One goroutine uses it.
type topicReader struct {
	kafkaclient.TopicReader
	keep func(*kgo.Record) bool
}

// span is a part of a partition, to exclusive.
type span = kafkaclient.Span

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
	return t.Merge(ctx, spans, t.kept(emit), settle)
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
				return fmt.Errorf("read partition %d of topic %s: %w", failed.Partition, t.Name, failed.Err)
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
	return t.Open(append(opts,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.Name: from}),
	)...)
}
