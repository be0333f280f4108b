package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// fetchWait is how long a broker may wait for something to read.
	fetchWait = 500 * time.Millisecond
	// fetchLimit is how much a broker sends at once. A start that finds
	// nothing of its stream reads the whole partition.
	fetchLimit = 8 << 20
)

// partitionLog reads the stream's partition of the checkpoint topic,
// read_committed, at any offset. It asks for stretches of the log itself: a
// consumer would fetch ahead, and start anew with every step backwards.
type partitionLog struct {
	sink      *Sink
	client    *kgo.Client
	topic     topicState
	partition int32
}

// chunk is what one fetch returned.
type chunk struct {
	records []*kgo.Record // committed ones and control records, by offset
	next    int64         // where the next fetch goes
	start   int64         // of the log
	stable  int64         // the last stable offset: what is behind it is not shown
}

func (s *Sink) partitionLog(x *session) *partitionLog {
	return &partitionLog{sink: s, client: x.writer, topic: *x.checkpoints, partition: checkpointPartition(s.cfg.Stream)}
}

// fetch reads from an offset on, as far as one answer goes. Where nothing is
// readable it waits for a moment and returns no records. While the partition
// moves between brokers it tries again, as long as ctx allows.
func (l *partitionLog) fetch(ctx context.Context, from int64) (chunk, error) {
	for try := 0; ; try++ {
		c, err := l.ask(ctx, from)
		answer, ok := errors.AsType[*kerr.Error](err)
		if err == nil || ok && !answer.Retriable {
			return c, err
		}
		if ctx.Err() != nil {
			return chunk{}, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		pause(ctx, backoff(try))
		topics, err := l.sink.describe(ctx, l.client, l.topic.name)
		switch {
		case err != nil && isAnswer(err):
			return chunk{}, err
		case err != nil:
		case topics[0].id != l.topic.id || len(topics[0].partitions) < len(l.topic.partitions):
			return chunk{}, fmt.Errorf("topic %s is not the one that it was", l.topic.name)
		default:
			l.topic = topics[0]
		}
	}
}

// ask sends one fetch to the partition's leader.
func (l *partitionLog) ask(ctx context.Context, from int64) (chunk, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, fetchLimit
	req.IsolationLevel = 1 // read_committed
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = l.topic.name, l.topic.id
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = l.partition, from, fetchLimit
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	answer, err := l.client.Broker(int(l.leader())).Request(ctx, req)
	if err != nil {
		return chunk{}, l.failed(from, err)
	}
	resp, ok := answer.(*kmsg.FetchResponse)
	if !ok {
		return chunk{}, l.failed(from, fmt.Errorf("answer is a %T", answer))
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return chunk{}, l.failed(from, err)
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			return l.chunk(from, &resp.Topics[i].Partitions[j])
		}
	}
	return chunk{}, l.failed(from, errors.New("the broker's answer lacks it"))
}

func (l *partitionLog) failed(from int64, err error) error {
	return fmt.Errorf("read partition %d of %s at offset %d: %w", l.partition, l.topic.name, from, err)
}

// leader returns the broker to ask, or one that does not exist.
func (l *partitionLog) leader() int32 {
	for i := range l.topic.partitions {
		if p := &l.topic.partitions[i]; p.Partition == l.partition {
			return p.Leader
		}
	}
	return -1
}

// chunk decodes an answer.
func (l *partitionLog) chunk(from int64, p *kmsg.FetchResponseTopicPartition) (chunk, error) {
	c := chunk{next: from, start: p.LogStartOffset, stable: p.LastStableOffset}
	switch err := kerr.ErrorForCode(p.ErrorCode); {
	case errors.Is(err, kerr.OffsetOutOfRange) && p.LogStartOffset > from:
		c.next = p.LogStartOffset // the beginning of the log is gone
		return c, nil
	case err != nil:
		return chunk{}, l.failed(from, err)
	}
	opts := kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true, // or the end of a transaction would look like a gap
		Offset:             from, IsolationLevel: kgo.ReadCommitted(), Topic: l.topic.name, Partition: l.partition,
	}
	read, next := kgo.ProcessFetchPartition(opts, p, kgo.DefaultDecompressor(), nil)
	if read.Err != nil {
		return chunk{}, l.failed(from, read.Err)
	}
	c.records, c.next = read.Records, max(next, from)
	return c, nil
}
