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
	// fetchWait is how long a broker may wait for something to read.
	fetchWait = 500 * time.Millisecond
	// fetchLimit is how much a broker sends at once, smallFetch how much where
	// that took too long. A record larger than that is sent all the same.
	fetchLimit = 1 << 20
	smallFetch = 64 << 10
)

// Chunk is what one fetch returned.
type Chunk struct {
	// Records are the committed ones and control records, by offset.
	Records []*kgo.Record
	// Next is where the next fetch goes: behind offsets without records too.
	Next int64
	// Start is where the log begins, Stable the last stable offset: what is
	// behind it is not shown.
	Start, Stable int64
}

// Fetch reads a partition from an offset on, as far as one answer goes. Where
// nothing is readable it waits for a moment and returns no records. An offset
// before the log's start is passed: Next is the start then. One behind the
// log's end is an error, since the log was cut. While the partition moves
// between brokers it tries again, as long as ctx allows.
func (l *Log) Fetch(ctx context.Context, id int32, from int64) (Chunk, error) {
	p := l.partition(id, Span{from, from})
	return p.fetch(ctx, from)
}

// partition is a partition while it is read. One goroutine uses it.
type partition struct {
	log   *Log
	id    int32
	limit int32 // bytes of a fetch
	// span is what is to be read, at where the next fetch goes, and seen how far
	// the records were handed on.
	span     Span
	at, seen int64
	// moved is when at moved last, heard the same but for what is no silence,
	// looked when it was asked why it did not move.
	moved, heard, looked time.Time
	cause                error // why it does not move, if that is known
}

func (l *Log) partition(id int32, s Span) *partition {
	return &partition{log: l, id: id, limit: fetchLimit, span: s, at: s.From, seen: s.From, moved: time.Now(), heard: time.Now()}
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
	// The partition's limit is the answer's: it is the only one. The embedded
	// server leaves out which transactions were aborted where the answer's own
	// limit ends it.
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

// request sends a fetch when the one before it is answered. A broker whose quota
// is used up answers with how long it will not read from the connection: what was
// sent before that is known would time out. It may answer with nothing else; then
// the turn stays here, or chance would decide which partition gets on. Neither
// wait is silence.
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

// chunk decodes an answer. What an error's fields say is no use: a broker
// leaves them empty.
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
	return Chunk{Records: read.Records, Next: max(next, from), Start: answer.LogStartOffset, Stable: answer.LastStableOffset}, nil
}

// outside asks where the log is that does not have an offset.
func (p *partition) outside(ctx context.Context, from int64) (Chunk, error) {
	s, high, err := p.log.boundsOf(ctx, p.id)
	if err != nil {
		return Chunk{}, p.failed(from, err)
	}
	if from > high {
		return Chunk{}, p.failed(from, fmt.Errorf("log truncated: it now ends at %d", high))
	}
	return Chunk{Next: max(from, s.From), Start: s.From, Stable: s.To}, nil
}
