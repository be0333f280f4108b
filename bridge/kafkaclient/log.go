package kafkaclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Span is a range of offsets of a partition, from From up to but excluding To.
type Span struct{ From, To int64 }

// Log reads one topic by offset, without a consumer group. When reading starts, it gets the
// bounds of each partition from Kafka (ListOffsets). Only that end ends the reading,
// neither silence nor an error does. Offsets without records (transaction markers, aborted
// or compacted records) are skipped.
//
// Unresponsive brokers and partitions without a leader are retried until ctx ends. All
// methods may be called concurrently. The exported fields are set before the first call.
type Log struct {
	// Uncommitted reads up to the high watermark. By default a Log is
	// read_committed: it ends at the last stable offset.
	Uncommitted bool
	// Patience bounds how long a partition may return nothing before reading
	// fails even though ctx has not ended; 0 is no limit. Throttling does not
	// count.
	Patience time.Duration
	// Small lets Read hold little: it reads one partition after the other with 64 KiB
	// per fetch, instead of four at once with 1 MiB each. Compressed records take
	// many times that in memory.
	Small bool
	// Waiting, if not nil, is called with the cause every few seconds while a
	// partition returns nothing. Calls are serialized.
	Waiting func(error)
	// Skipped, if not nil, is called with requested offsets that no longer
	// exist because the log start has moved. Calls are serialized.
	Skipped func(partition int32, gone Span)

	client *kgo.Client
	name   string

	telling sync.Mutex // held while Waiting or Skipped runs; guards told
	told    time.Time  // when Waiting was called

	mu      sync.Mutex // guards all below
	id      [16]byte   // zero before the first look
	leaders map[int32]int32
	turns   map[int32]chan struct{} // by broker, full while a fetch is under way
}

// Topic returns the topic's name.
func (l *Log) Topic() string { return l.name }

// ID returns the topic's id; zero if none was given and nothing was read yet.
func (l *Log) ID() [16]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// Bounds returns the readable range of each partition. From may be any offset;
// From == To is an empty partition.
func (l *Log) Bounds(ctx context.Context) (map[int32]Span, error) {
	all, err := bounds(ctx, l.client, l.Uncommitted, l.name)
	return all[l.name], err
}

// Ends returns the end offsets of the partitions, open transactions included.
func (l *Log) Ends(ctx context.Context) (map[int32]int64, error) {
	ends, err := listed("last offsets", []string{l.name})(kadm.NewClient(l.client).ListEndOffsets(ctx, l.name))
	return ends[l.name], err
}

// After returns, per partition, the first offset of a record at or after a time
// in milliseconds since the epoch; the end if there is none.
func (l *Log) After(ctx context.Context, millis int64) (map[int32]int64, error) {
	admin := kadm.NewClient(l.client)
	millis = max(0, millis) // brokers reject a negative time
	offsets, err := listed("offsets by time", []string{l.name})(admin.ListOffsetsAfterMilli(ctx, millis, l.name))
	return offsets[l.name], err
}

// Bounds returns the start and end offsets of the partitions of topics, open
// transactions included. Without topics it returns none.
func (c *Client) Bounds(ctx context.Context, topics ...string) (map[string]map[int32]Span, error) {
	if len(topics) == 0 {
		return nil, nil // a request without names lists every topic of the cluster
	}
	return bounds(ctx, c.Client, true, topics...)
}

func bounds(
	ctx context.Context, client *kgo.Client, uncommitted bool, topics ...string,
) (map[string]map[int32]Span, error) {
	admin := kadm.NewClient(client)
	starts, err := listed("first offsets", topics)(admin.ListStartOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	list := admin.ListCommittedOffsets
	if uncommitted {
		list = admin.ListEndOffsets
	}
	ends, err := listed("last offsets", topics)(list(ctx, topics...))
	if err != nil {
		return nil, err
	}
	all := make(map[string]map[int32]Span)
	for topic := range ends {
		all[topic] = make(map[int32]Span)
		for id, end := range ends[topic] {
			if start, ok := starts[topic][id]; ok { // else it was added in between
				all[topic][id] = Span{start, max(start, end)}
			}
		}
	}
	return all, nil
}

// listed converts the listed offsets of all partitions of topics, or returns an
// error.
func listed(what string, topics []string) func(kadm.ListedOffsets, error) (map[string]map[int32]int64, error) {
	return func(list kadm.ListedOffsets, err error) (map[string]map[int32]int64, error) {
		if err == nil {
			err = list.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("list %s of topic %s: %w", what, strings.Join(topics, ", "), err)
		}
		offsets := make(map[string]map[int32]int64)
		list.Each(func(o kadm.ListedOffset) {
			if offsets[o.Topic] == nil {
				offsets[o.Topic] = make(map[int32]int64)
			}
			offsets[o.Topic][o.Partition] = o.Offset
		})
		return offsets, nil
	}
}

// boundsOf returns the readable range of one partition.
func (l *Log) boundsOf(ctx context.Context, id int32) (s Span, err error) {
	if s.From, err = l.offset(ctx, id, firstOffset, false); err != nil {
		return s, err
	}
	end, err := l.offset(ctx, id, lastOffset, !l.Uncommitted)
	s.To = max(s.From, end)
	return s, err
}

// highOf is boundsOf with the high watermark.
func (l *Log) highOf(ctx context.Context, id int32) (s Span, high int64, err error) {
	if s, err = l.boundsOf(ctx, id); err != nil || l.Uncommitted {
		return s, s.To, err
	}
	high, err = l.offset(ctx, id, lastOffset, false)
	return s, high, err
}

// firstOffset and lastOffset are used in place of a time.
const firstOffset, lastOffset = -2, -1

// offset returns the first offset at or after a time, -1 if there is none. It asks for one
// partition only: the leaders of the others may be away.
func (l *Log) offset(ctx context.Context, id int32, millis int64, committed bool) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	if committed {
		req.IsolationLevel = 1
	}
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = id, millis
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = l.name, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, l.client)
	switch {
	case err != nil:
	case len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1:
		err = errors.New("missing from the response")
	default:
		found := &resp.Topics[0].Partitions[0]
		if err = kerr.ErrorForCode(found.ErrorCode); err == nil {
			return found.Offset, nil
		}
	}
	return 0, fmt.Errorf("list offsets of partition %d of %s: %w", id, l.name, err)
}

// leader returns the leader of a partition, or -1. It loads all leaders if they
// are unknown or outdated.
func (l *Log) leader(ctx context.Context, id int32, again bool) (int32, error) {
	l.mu.Lock()
	known := l.leaders != nil && !again
	leader, ok := l.leaders[id]
	l.mu.Unlock()
	if !known {
		if err := l.look(ctx); err != nil {
			return -1, err
		}
		l.mu.Lock()
		leader, ok = l.leaders[id]
		l.mu.Unlock()
	}
	if !ok {
		return -1, fmt.Errorf("partition %d of %s: %w", id, l.name, kerr.UnknownTopicOrPartition)
	}
	return leader, nil
}

// turn returns the semaphore of a broker's fetches.
func (l *Log) turn(broker int32) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.turns[broker]
	if t == nil {
		t = make(chan struct{}, 1)
		l.turns[broker] = t
	}
	return t
}

// errAnother: the topic was deleted and recreated.
var errAnother = errors.New("the topic was recreated")

// look loads the topic's id and the leaders of its partitions.
func (l *Log) look(ctx context.Context) error {
	resp, err := metadataRequest([]string{l.name}).RequestWith(ctx, l.client)
	if err != nil {
		return fmt.Errorf("describe topic %s: %w", l.name, err)
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("describe topic %s: missing from the response", l.name)
	}
	found := &resp.Topics[0]
	if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
		return fmt.Errorf("describe topic %s: %w", l.name, err)
	}
	leaders := make(map[int32]int32)
	for i := range found.Partitions {
		leaders[found.Partitions[i].Partition] = found.Partitions[i].Leader
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id != [16]byte{} && l.id != found.TopicID {
		return fmt.Errorf("topic %s: %w", l.name, errAnother)
	}
	l.id, l.leaders = found.TopicID, leaders
	return nil
}
