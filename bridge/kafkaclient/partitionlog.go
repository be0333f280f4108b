package kafkaclient

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// PartitionLog is one partition of a Log.
type PartitionLog struct {
	*Log
	Partition int32
}

// Partition returns a reader of one partition of a described topic.
func (c *Client) Partition(t *Topic, partition int32) *PartitionLog {
	return &PartitionLog{c.Log(t.Name, t.ID), partition}
}

// Fetch is Log.Fetch.
func (l *PartitionLog) Fetch(ctx context.Context, from int64) (Chunk, error) {
	return l.Log.Fetch(ctx, l.Partition, from)
}

// Scan is Log.Scan.
func (l *PartitionLog) Scan(ctx context.Context, s Span, visit func(*kgo.Record)) (start int64, err error) {
	return l.Log.Scan(ctx, l.Partition, s, visit)
}

// Bounds returns the readable range of the partition.
func (l *PartitionLog) Bounds(ctx context.Context) (Span, error) {
	return l.boundsOf(ctx, l.Partition)
}

// End returns the end offset, open transactions included.
func (l *PartitionLog) End(ctx context.Context) (int64, error) {
	return l.offset(ctx, l.Partition, lastOffset, false)
}

// After is Log.After.
func (l *PartitionLog) After(ctx context.Context, millis int64) (int64, error) {
	at, err := l.offset(ctx, l.Partition, max(0, millis), false) // brokers reject a negative time
	if err == nil && at < 0 {
		return l.offset(ctx, l.Partition, lastOffset, false)
	}
	return at, err
}
