// Package deadletter lists the dead letters of a stream, and publishes their events, each
// once. It changes neither the running stream nor the dead letters.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

// ErrNotFound means that the stream has no dead letter at a place.
var ErrNotFound = errors.New("no dead letter")

// Log reads a topic in read_committed isolation, by the contract of kafkaclient.Log.
type Log interface {
	Topic() string
	Bounds(ctx context.Context) (map[int32]kafkaclient.Span, error)
	Ends(ctx context.Context) (map[int32]int64, error)
	After(ctx context.Context, millis int64) (map[int32]int64, error)
	Read(ctx context.Context, spans map[int32]kafkaclient.Span, visit func(*kgo.Record) error) error
}

// EventLog is the Log of the stream's topics.
type EventLog interface {
	Log
	// Kept returns which of its records each topic still has: first the topic of events
	// without a route, then those of routes in the order of Event.Route, then former
	// topics.
	Kept(ctx context.Context) ([]kafkaclient.Kept, error)
}

// Topic has the dead letters of one stream. A method that cannot read the whole topic
// returns an error.
type Topic struct {
	Log
	// Missing is set if the topic does not exist and so has no dead letters.
	Missing bool
	Stream  string
}

// Query selects dead letters.
type Query struct {
	// Since is the earliest record time in milliseconds since the epoch; 0 is any.
	Since int64
	// Reason is one of Reasons; empty is any.
	Reason string
	// Limit is the maximum number, at least 1; the newest are listed.
	Limit int
}

// List returns dead letters, newest first, without their items.
func (t *Topic) List(ctx context.Context, q Query) ([]DeadLetter, error) {
	if t.Missing {
		return nil, nil
	}
	spans, err := t.Bounds(ctx)
	if err == nil && q.Since != 0 {
		err = kafkaclient.Since(ctx, t, spans, q.Since)
	}
	if err != nil {
		return nil, err
	}
	all, err := kafkaclient.Newest(ctx, t, spans, q.Limit, func(r *kgo.Record) (DeadLetter, bool) {
		l := Read(r)
		l.Item = nil
		wanted := l.Stream == t.Stream && l.because(q.Reason) && (q.Since == 0 || r.Timestamp.UnixMilli() >= q.Since)
		if wanted {
			l.Headers = openHeaders(r)
		}
		return l, wanted
	})
	slices.Reverse(all)
	return all, err
}

// because reports whether the dead letter has a reason; empty is any.
func (l *DeadLetter) because(reason string) bool {
	return reason == "" || l.Reason == bridge.Defect(reason)
}

// Places returns the places of the dead letters with a reason, sorted; an empty reason is
// any.
func (t *Topic) Places(ctx context.Context, reason string) ([]Place, error) {
	if t.Missing {
		return nil, nil
	}
	spans, err := t.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	var all []Place
	err = t.Read(ctx, spans, func(r *kgo.Record) error {
		if l := Read(r); l.Stream == t.Stream && l.because(reason) {
			all = append(all, l.Place)
		}
		return nil
	})
	slices.SortFunc(all, Place.compare)
	return all, err
}

// Load reads the dead letters at these places, in that order. It returns an ErrNotFound if
// one is missing or of another stream.
func (t *Topic) Load(ctx context.Context, places []Place) ([]*kgo.Record, error) {
	found := make(map[Place]*kgo.Record, len(places))
	if !t.Missing {
		there, err := t.Bounds(ctx)
		if err != nil {
			return nil, err
		}
		spans := make(map[int32]kafkaclient.Span)
		for _, p := range places {
			if all, ok := there[p.Partition]; !ok || p.Offset < all.From || p.Offset >= all.To {
				continue
			}
			found[p] = nil
			s, ok := spans[p.Partition]
			if !ok {
				s = kafkaclient.Span{From: p.Offset, To: p.Offset + 1}
			}
			spans[p.Partition] = kafkaclient.Span{From: min(s.From, p.Offset), To: max(s.To, p.Offset+1)}
		}
		err = t.Read(ctx, spans, func(r *kgo.Record) error {
			if _, wanted := found[placeOf(r)]; wanted && Header(r, kafkarecord.HeaderStream) == t.Stream {
				found[placeOf(r)] = r
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	records := make([]*kgo.Record, len(places))
	for i, p := range places {
		if records[i] = found[p]; records[i] == nil {
			return nil, fmt.Errorf("topic %s has %w of stream %s at %s", t.Log.Topic(), ErrNotFound, t.Stream, p)
		}
	}
	return records, nil
}

// Header returns the last value of a record's header, empty if there is none.
func Header(r *kgo.Record, name string) string {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// Check verifies that all dead letters exist. It holds only a few of them in memory.
func (t *Topic) Check(ctx context.Context, places []Place) error {
	for some := range slices.Chunk(places, loadedAtOnce) {
		if _, err := t.Load(ctx, some); err != nil {
			return err
		}
	}
	return nil
}
