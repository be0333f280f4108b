package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// holdsDepth is how many of a partition's newest offsets are looked at.
	holdsDepth = 200
	// holdsQuiet is how long no record may come before it is looked whether
	// retention has deleted the rest.
	holdsQuiet = 5 * time.Second
)

// Holds looks for the stream's header among the newest records of each
// partition, dead letters included; without headers any event record counts.
// A dead-letter topic that does not exist holds nothing. A part of a stream is
// told apart by its checkpoints alone: it holds nothing without them.
func (s *Sink) Holds(ctx context.Context) (bool, error) {
	if s.cfg.Part != nil {
		return false, nil
	}
	w := newWatch()
	client, err := s.newClient(w,
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()), // an open transaction hides nothing that matters here
		kgo.KeepControlRecords(),                       // or the end of a partition may never be reached
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return false, s.fault(err, "")
	}
	defer client.Close()
	found, err := s.holds(ctx, client)
	switch {
	case err != nil && ctx.Err() != nil:
		return false, fmt.Errorf("look for records of %s: %w", s.cfg.Stream, ctx.Err())
	case err != nil:
		return false, s.explain(fmt.Errorf("look for records of %s: %w", s.cfg.Stream, err), w)
	}
	return found, nil
}

func (s *Sink) holds(ctx context.Context, client *kgo.Client) (bool, error) {
	ends, err := s.ends(ctx, client)
	if err != nil || len(ends) == 0 {
		return false, err
	}
	found := false
	err = s.readTo(ctx, client, ends, "to see whether the stream has begun before", func(r *kgo.Record) bool {
		found = s.isOurs(r)
		return !found
	})
	return found, err
}

// readTo shows what the client consumes to visit, at least up to these ends or
// until that returns false. What retention deletes meanwhile is not waited for.
// why says what it is for.
func (s *Sink) readTo(ctx context.Context, client *kgo.Client, ends map[partition]int64, why string, visit func(*kgo.Record) bool) error {
	for len(ends) > 0 {
		polled, cancel := context.WithTimeout(ctx, holdsQuiet)
		fetches := client.PollFetches(polled)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, failed := range fetches.Errors() {
			if failed.Topic != "" {
				return s.unreadable(failed, why)
			}
		}
		if fetches.Empty() {
			if err := s.gone(ctx, client, ends); err != nil {
				return err
			}
			continue // slow brokers are no sign of an empty topic
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if !visit(r) {
				return nil
			}
			if p := (partition{r.Topic, r.Partition}); r.Offset+1 >= ends[p] {
				delete(ends, p)
			}
		}
	}
	return nil
}

// unreadable says why a partition cannot be read.
func (s *Sink) unreadable(failed kgo.FetchError, why string) error {
	err := fmt.Errorf("read partition %d of %s, %s: %w", failed.Partition, failed.Topic, why, failed.Err)
	if !errors.Is(failed.Err, kerr.TopicAuthorizationFailed) {
		return err
	}
	f := s.fault(err, failed.Topic)
	f.Hint = s.readACL(failed.Topic)
	return f
}

// gone takes off what retention has deleted meanwhile: it will never come.
func (s *Sink) gone(ctx context.Context, client *kgo.Client, ends map[partition]int64) error {
	starts, err := kadm.NewClient(client).ListStartOffsets(ctx, s.cfg.topics()...)
	if err != nil {
		return fmt.Errorf("list first offsets: %w", err)
	}
	for p, end := range ends {
		if start, ok := starts.Lookup(p.topic, p.id); ok && start.Err == nil && start.Offset >= end {
			delete(ends, p)
		}
	}
	return nil
}

// partition names a partition of a topic.
type partition struct {
	topic string
	id    int32
}

// ends has the client consume the newest records of both topics and returns
// the offsets where their partitions end, without those that are empty.
func (s *Sink) ends(ctx context.Context, client *kgo.Client) (map[partition]int64, error) {
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, s.cfg.topics()...)
	if err != nil {
		return nil, fmt.Errorf("list first offsets: %w", err)
	}
	last, err := admin.ListEndOffsets(ctx, s.cfg.topics()...)
	if err != nil {
		return nil, fmt.Errorf("list last offsets: %w", err)
	}
	ends := make(map[partition]int64)
	from := make(map[string]map[int32]kgo.Offset)
	var failed error
	last.Each(func(end kadm.ListedOffset) {
		start, ok := starts.Lookup(end.Topic, end.Partition)
		switch {
		case isMissing(end.Err) && end.Topic != s.cfg.Topic:
		case end.Err != nil:
			failed = fmt.Errorf("topic %s: %w", end.Topic, end.Err)
		case ok && start.Err == nil && start.Offset < end.Offset:
			if from[end.Topic] == nil {
				from[end.Topic] = make(map[int32]kgo.Offset)
			}
			from[end.Topic][end.Partition] = kgo.NewOffset().At(max(start.Offset, end.Offset-holdsDepth))
			ends[partition{end.Topic, end.Partition}] = end.Offset
		}
	})
	if failed != nil {
		return nil, failed
	}
	client.AddConsumePartitions(from)
	return ends, nil
}

// isOurs reports whether a record of the stream was found.
func (s *Sink) isOurs(r *kgo.Record) bool {
	if r.Attrs.IsControl() {
		return false
	}
	if r.Topic == s.cfg.Topic && s.cfg.Headers == headersNone {
		return true
	}
	for _, h := range r.Headers {
		if h.Key == headerStream && string(h.Value) == s.cfg.Stream {
			return true
		}
	}
	return false
}
