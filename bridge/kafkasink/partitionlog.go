package kafkasink

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/kafkaclient"
)

// partitionLog reads the stream's partition of the checkpoint topic,
// read_committed, at any offset. It asks for stretches of the log itself: a
// consumer would fetch ahead, and start anew with every step backwards.
type partitionLog struct {
	*kafkaclient.Log
	client    *kgo.Client
	topic     topicState
	partition int32
}

func (s *Sink) partitionLog(x *session) *partitionLog {
	l := s.logOf(x.writer, x.checkpoints)
	l.Waiting = s.report
	return l
}

// logOf reads the stream's partition of a topic as it was described.
func (s *Sink) logOf(client *kgo.Client, t *topicState) *partitionLog {
	return &partitionLog{Log: kafkaclient.NewLog(client, t.name, t.id), client: client, topic: *t, partition: checkpointPartition(s.cfg.Stream)}
}

// fetch reads from an offset on, as far as one answer goes.
func (l *partitionLog) fetch(ctx context.Context, from int64) (kafkaclient.Chunk, error) {
	return l.Fetch(ctx, l.partition, from)
}

// scan reads the records of [from, to). It returns where the log begins.
func (l *partitionLog) scan(ctx context.Context, from, to int64, add func(*kgo.Record)) (start int64, err error) {
	return l.Scan(ctx, l.partition, kafkaclient.Span{From: from, To: to}, add)
}

// bounds returns what of the partition is readable now.
func (l *partitionLog) bounds(ctx context.Context) (kafkaclient.Span, error) {
	all, err := l.Bounds(ctx)
	if err != nil {
		return kafkaclient.Span{}, err
	}
	s, ok := all[l.partition]
	if !ok {
		return s, fmt.Errorf("topic %s has no partition %d", l.topic.name, l.partition)
	}
	return s, nil
}
