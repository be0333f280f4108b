package records

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
)

// usualPatience is how long a partition may be silent during a read.
const usualPatience = time.Minute

// begin moves the beginning of the spans to the start of the command.
func (t *tailer) begin(ctx context.Context, spans map[int32]kafkaclient.Span, from tailStart) error {
	switch from.kind {
	case fromEnd:
		for id, s := range spans {
			spans[id] = kafkaclient.Span{From: s.To, To: s.To}
		}
	case fromBack:
		for id, s := range spans {
			spans[id] = kafkaclient.Span{From: max(s.From, s.To-from.n), To: s.To}
		}
	case fromTime:
		return kafkaclient.Since(ctx, t, spans, from.n)
	}
	return nil
}

// Follow reads the records after the spans, without end. It calls show for each record, and
// settle after each batch of records.
func Follow(
	ctx context.Context, t *kafkaclient.TopicReader, spans map[int32]kafkaclient.Span, show func(*kgo.Record) error,
	settle func() error,
) error {
	client, err := t.Open(
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.ConsumePartitions(t.Behind(spans)),
	)
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
				return fmt.Errorf("read partition %d of topic %s: %w", failed.Partition, failed.Topic, failed.Err)
			}
		}
		for it := fetches.RecordIter(); !it.Done(); {
			if err := show(it.Next()); err != nil {
				return err
			}
		}
		if err := settle(); err != nil {
			return err
		}
	}
}
