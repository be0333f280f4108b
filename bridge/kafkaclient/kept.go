package kafkaclient

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Kept says which of its records a topic still has.
type Kept struct {
	// Topic is the topic's name, ID its id, empty if the brokers have none.
	Topic, ID string
	// Whole is true if every partition begins at its first offset: nothing was
	// deleted.
	Whole bool
	// Expired is true if retention may have deleted records. A topic that keeps all
	// of them can only have been truncated.
	Expired bool
	// From is the time from which on no record has expired, in milliseconds since the
	// epoch; 0 if none has.
	From int64
}

// Kept asks for the settings of each topic and for the first record of each partition. The
// first topic is Name, those of Further follow.
func (r *TopicReader) Kept(ctx context.Context) ([]Kept, error) {
	client, err := r.Open()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	topics, err := client.Describe(ctx, r.names()...)
	if err != nil {
		return nil, err
	}
	all := make([]Kept, len(topics))
	err = r.with(func(l *Log, base int32) error {
		spans, err := l.Bounds(ctx)
		if err != nil {
			return err
		}
		t := &topics[base/topicStep]
		k := &all[base/topicStep]
		k.Topic, k.ID = t.Name, t.State(false).ID
		return k.Note(ctx, l, spans, &t.Settings)
	})
	return all, err
}

// errFirst ends a read at its first record.
var errFirst = errors.New("the first record")

// Note sets what the bounds of the partitions say. An expired record is older than the
// retention time. If that time was raised since, or retention is by size, the record is
// older than the first kept record.
func (k *Kept) Note(ctx context.Context, l Reader, spans map[int32]Span, s *Settings) error {
	k.Whole = true
	for id, span := range spans {
		if span.From == 0 {
			continue
		}
		k.Whole = false
		if s.KeepsAll() {
			continue
		}
		k.Expired = true
		if s.Retention > 0 {
			k.From = max(k.From, time.Now().Add(-s.Retention).UnixMilli())
		}
		var first time.Time
		err := l.Read(ctx, map[int32]Span{id: span}, func(r *kgo.Record) error {
			first = r.Timestamp
			return errFirst
		})
		switch {
		case errors.Is(err, errFirst):
			k.From = max(k.From, first.UnixMilli())
		case err != nil:
			return err
		case s.Sized || s.Retention <= 0: // all of the partition is gone
			k.From = max(k.From, time.Now().UnixMilli())
		}
	}
	return nil
}
