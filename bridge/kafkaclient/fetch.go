package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge"
)

const (
	// fetchWait bounds a broker's wait for data.
	fetchWait = 500 * time.Millisecond
	// fetchLimit bounds the response size of a fetch, smallFetch after a slow
	// one. A larger record is still returned.
	fetchLimit = 1 << 20
	smallFetch = 64 << 10
)

// Chunk is the result of one fetch.
type Chunk struct {
	// Records are committed records and control records, by offset.
	Records []*kgo.Record
	// Next is the offset of the next fetch, past offsets without records.
	Next int64
	// Start is the log start offset, Stable the last stable offset: records
	// after it are not returned.
	Start, Stable int64
}

// Fetch returns one response of a partition from an offset. Without readable
// records it waits briefly and returns none. For an offset before the log
// start, Next is the log start. An offset after the end of the log is an error:
// the log was truncated. It retries while the partition moves between brokers,
// until ctx ends.
func (l *Log) Fetch(ctx context.Context, id int32, from int64) (Chunk, error) {
	p := l.partition(id, Span{from, from})
	return p.fetch(ctx, from)
}

// partition is the state of reading a partition, for one goroutine.
type partition struct {
	log   *Log
	id    int32
	limit int32 // bytes per fetch
	// span is the range to read. at is the next offset to fetch. seen is the end of the
	// delivered records.
	span     Span
	at, seen int64
	// moved is when at last advanced; heard is the same, but throttling counts
	// as progress; looked is when the cause of a stall was last checked.
	moved, heard, looked time.Time
	cause                error // the cause of a stall, if known
}

func (l *Log) partition(id int32, s Span) *partition {
	limit := int32(fetchLimit)
	if l.Small {
		limit = smallFetch
	}
	now := time.Now()
	return &partition{log: l, id: id, limit: limit, span: s, at: s.From, seen: s.From, moved: now, heard: now}
}

func (p *partition) fetch(ctx context.Context, from int64) (Chunk, error) {
	again := false
	for try := 0; ; try++ {
		c, err := p.ask(ctx, from, again)
		if err == nil {
			return c, nil
		}
		answer, answered := errors.AsType[*kerr.Error](err)
		switch {
		case errors.Is(err, kerr.OffsetOutOfRange):
			return p.outside(ctx, from)
		case errors.Is(err, errAnother), errors.Is(err, kgo.ErrClientClosed), answered && !answer.Retriable:
			return Chunk{}, err
		case ctx.Err() != nil:
			return Chunk{}, fmt.Errorf("%w: %w", ctx.Err(), err)
		case !answered:
			p.limit = max(p.limit/2, smallFetch) // it may have come too slowly
		}
		p.cause, again = err, true
		if err := p.stalled(); err != nil {
			return Chunk{}, err
		}
		bridge.Sleep(ctx, Backoff(try))
	}
}

// ask sends one fetch to the partition's leader.
func (p *partition) ask(ctx context.Context, from int64, again bool) (Chunk, error) {
	l := p.log
	leader, err := l.leader(ctx, p.id, again)
	if err != nil {
		return Chunk{}, err
	}
	req := kmsg.NewPtrFetchRequest()
	// Only the partition limit bounds the response: the embedded server omits
	// aborted transactions if the response limit cuts it.
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, math.MaxInt32
	if !l.Uncommitted {
		req.IsolationLevel = 1
	}
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = l.name, l.ID()
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = p.id, from, p.limit
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := p.request(ctx, leader, req)
	if err != nil {
		return Chunk{}, p.failed(from, err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return Chunk{}, p.failed(from, err)
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			return p.chunk(from, &resp.Topics[i].Partitions[j])
		}
	}
	return Chunk{}, p.failed(from, errors.New("missing from the response"))
}

// request sends a fetch after the previous one to the broker has been answered.
// A broker that throttles does not read from the connection for a while:
// requests sent before that is known would time out. A throttled response may
// be empty; the request is then repeated without giving up the turn, so that
// every partition advances. Neither wait counts as silence.
func (p *partition) request(ctx context.Context, leader int32, req kmsg.Request) (*kmsg.FetchResponse, error) {
	turn, began := p.log.turn(leader), time.Now()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.heard = p.heard.Add(time.Since(began))
	for {
		answer, err := p.log.client.Broker(int(leader)).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		resp, ok := answer.(*kmsg.FetchResponse)
		if !ok {
			return nil, fmt.Errorf("answer is a %T", answer)
		}
		if resp.ThrottleMillis == 0 {
			return resp, nil
		}
		throttled := time.Duration(resp.ThrottleMillis) * time.Millisecond
		p.cause = fmt.Errorf("throttled by the brokers' quota for %s", throttled.Round(100*time.Millisecond))
		p.heard = time.Now().Add(throttled)
		if throttled >= lookAfter || time.Since(p.moved) >= lookAfter {
			p.tell()
		}
		if len(resp.Topics) > 0 {
			return resp, nil
		}
	}
}

func (p *partition) failed(from int64, err error) error {
	return fmt.Errorf("read partition %d of %s at offset %d: %w", p.id, p.log.name, from, err)
}

// chunk decodes a response. The fields of an error response are not used:
// brokers leave them empty.
func (p *partition) chunk(from int64, answer *kmsg.FetchResponseTopicPartition) (Chunk, error) {
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return Chunk{}, p.failed(from, err)
	}
	level := kgo.ReadCommitted()
	if p.log.Uncommitted {
		level = kgo.ReadUncommitted()
	}
	opts := kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true, // or the end of a transaction would look like a gap
		Offset:             from, IsolationLevel: level, Topic: p.log.name, Partition: p.id,
	}
	read, next := kgo.ProcessFetchPartition(opts, answer, kgo.DefaultDecompressor(), nil)
	if read.Err != nil {
		return Chunk{}, p.failed(from, read.Err)
	}
	return Chunk{
		Records: read.Records, Next: max(next, from),
		Start: answer.LogStartOffset, Stable: answer.LastStableOffset,
	}, nil
}

// outside handles an offset out of range by the current bounds of the log.
func (p *partition) outside(ctx context.Context, from int64) (Chunk, error) {
	s, high, err := p.log.highOf(ctx, p.id)
	if err != nil {
		return Chunk{}, p.failed(from, err)
	}
	if from > high {
		return Chunk{}, p.failed(from, fmt.Errorf("log truncated: it now ends at %d", high))
	}
	return Chunk{Next: max(from, s.From), Start: s.From, Stable: s.To}, nil
}
