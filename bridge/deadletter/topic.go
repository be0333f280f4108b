// Package deadletter looks at the dead letters of a stream and publishes them
// after all, each event once. The running stream is not touched, and a letter
// stays where it is.
package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
)

// ErrNotFound says that there is no dead letter of the stream at a place.
var ErrNotFound = errors.New("no dead letter")

// Log reads the topic of the dead letters; kafkaclient.Log says what each
// method promises.
type Log interface {
	Topic() string
	Bounds(ctx context.Context) (map[int32]kafkaclient.Span, error)
	After(ctx context.Context, millis int64) (map[int32]int64, error)
	Read(ctx context.Context, spans map[int32]kafkaclient.Span, visit func(*kgo.Record) error) error
}

// Topic is the dead letters of one stream. A topic that was not read to its end
// is an error of all its methods.
type Topic struct {
	Log
	// Missing is set where the topic does not exist: there are no letters.
	Missing bool
	Stream  string
}

// Query says which letters are listed.
type Query struct {
	// Since is the earliest time of writing, in milliseconds since the epoch; 0
	// is any.
	Since int64
	// Reason is the word for what is wrong; empty is any.
	Reason string
	// Limit is how many are listed, the newest ones. At least 1.
	Limit int
}

// List returns letters, the newest first, without their items, which may be
// large.
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
	seen := make(map[Place]DeadLetter)
	records, err := kafkaclient.Newest(ctx, t, spans, q.Limit, func(r *kgo.Record) bool {
		l := Read(r)
		if l.Stream != t.Stream || !l.because(q.Reason) || q.Since != 0 && r.Timestamp.UnixMilli() < q.Since {
			return false
		}
		l.Item, r.Key, r.Value, r.Headers = nil, nil, nil, nil
		seen[l.Place] = l
		return true
	})
	if err != nil {
		return nil, err
	}
	all := make([]DeadLetter, 0, len(records))
	for _, r := range slices.Backward(records) {
		all = append(all, seen[placeOf(r)])
	}
	return all, nil
}

// because reports whether the letter has a reason; empty is any.
func (l *DeadLetter) because(reason string) bool {
	return reason == "" || l.Reason == bridge.Defect(reason)
}

// Places returns where the letters with a reason are, in their order; an empty
// reason is any.
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

// Load reads the letters at these places, in that order. It is an ErrNotFound if
// one is not there, or not the stream's.
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
			if _, wanted := found[placeOf(r)]; wanted && streamOf(r) == t.Stream {
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

// streamOf returns whose record it is.
func streamOf(r *kgo.Record) string {
	stream := ""
	for _, h := range r.Headers {
		if h.Key == kafkasink.HeaderStream {
			stream = string(h.Value)
		}
	}
	return stream
}

// Check makes sure that all letters are there. Few of them are in memory at a
// time.
func (t *Topic) Check(ctx context.Context, places []Place) error {
	for some := range slices.Chunk(places, loadedAtOnce) {
		if _, err := t.Load(ctx, some); err != nil {
			return err
		}
	}
	return nil
}
