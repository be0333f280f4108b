package kafkasink

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
)

// mostHeld is how many events are remembered: about 300 MB.
const mostHeld = 5_000_000

// Held implements bridge.Holdings. It reads the topic read_committed, from
// record times an hour before from on, since an event's record may have been
// given the time of its publishing. With headers an event is known by its
// record's ce_id, without by the bytes of its value. Dead letters are not
// looked for. It waits for brokers, and for transactions that are open, as long
// as ctx allows.
func (s *Sink) Held(ctx context.Context, from time.Time) (bridge.Held, error) {
	w := newWatch()
	client, err := s.newClient(w,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // or the end of a partition may never be reached
		kgo.FetchMaxWait(fetchWait),
	)
	if err != nil {
		return nil, s.fault(err, "")
	}
	defer client.Close()
	h, err := s.readHeld(ctx, client, from.Add(-futureLimit))
	switch {
	case err == nil:
		return h, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("read the events of %s: %w", s.cfg.Stream, errors.Join(ctx.Err(), w.cause()))
	}
	if fault, ok := errors.AsType[*bridge.Fault](err); ok {
		return nil, fault
	}
	return nil, s.explain(fmt.Errorf("read the events of %s: %w", s.cfg.Stream, err), w)
}

func (s *Sink) readHeld(ctx context.Context, client *kgo.Client, from time.Time) (*held, error) {
	ends, err := s.consumeFrom(ctx, client, from)
	if err != nil {
		return nil, err
	}
	h := &held{byValue: s.cfg.Headers == headersNone, times: make(map[Fingerprint]int32)}
	err = s.readTo(ctx, client, ends, "to know what it holds", func(r *kgo.Record) bool {
		if s.isOurs(r) {
			h.add(r)
		}
		return len(h.times) <= mostHeld
	})
	if err == nil && len(h.times) > mostHeld {
		err = &bridge.Fault{
			Class: bridge.Permanent, Reason: bridge.ReasonCursor, Code: "overlap",
			Hint: "lower EXPORT_OVERLAP, or exportbridge cursor reset --to-datetime",
			Err:  fmt.Errorf("topic %s holds more than %d events since %s, too many to tell apart", s.cfg.Topic, mostHeld, from.UTC().Format(time.RFC3339)),
		}
	}
	return h, err
}

// consumeFrom has the client consume the topic from records of a time on, and
// returns the offsets where its partitions end now, without those that hold
// nothing.
func (s *Sink) consumeFrom(ctx context.Context, client *kgo.Client, from time.Time) (map[partition]int64, error) {
	admin := kadm.NewClient(client)
	starts, err := admin.ListOffsetsAfterMilli(ctx, from.UnixMilli(), s.cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("look for %s in topic %s: %w", from.UTC().Format(time.RFC3339), s.cfg.Topic, err)
	}
	last, err := admin.ListEndOffsets(ctx, s.cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("list last offsets: %w", err)
	}
	ends := make(map[partition]int64)
	offsets := make(map[int32]kgo.Offset)
	for _, end := range last[s.cfg.Topic] {
		start, ok := starts.Lookup(s.cfg.Topic, end.Partition)
		if err := errors.Join(end.Err, start.Err); err != nil {
			return nil, fmt.Errorf("topic %s: %w", s.cfg.Topic, err)
		}
		if ok && start.Offset >= 0 && start.Offset < end.Offset {
			ends[partition{s.cfg.Topic, end.Partition}], offsets[end.Partition] = end.Offset, kgo.NewOffset().At(start.Offset)
		}
	}
	if len(ends) > 0 {
		client.AddConsumePartitions(map[string]map[int32]kgo.Offset{s.cfg.Topic: offsets})
	}
	return ends, nil
}

// Fingerprint names an event where very many are remembered: 16 bytes of the
// SHA-256 of its id or its bytes.
type Fingerprint [16]byte

// FingerprintOf returns the fingerprint of an id, or of bytes.
func FingerprintOf(b []byte) Fingerprint {
	sum := sha256.Sum256(b)
	return Fingerprint(sum[:16])
}

// held is what a topic holds.
type held struct {
	byValue bool
	times   map[Fingerprint]int32
	id      []byte
}

func (h *held) add(r *kgo.Record) {
	if h.byValue {
		h.times[FingerprintOf(r.Value)]++
		return
	}
	for _, header := range r.Headers {
		if header.Key == headerID {
			h.times[FingerprintOf(header.Value)]++
			return
		}
	}
}

// Take implements bridge.Held.
func (h *held) Take(e *bridge.Event) bool {
	name := e.Raw
	if !h.byValue {
		h.id = e.AppendRecordID(h.id[:0])
		name = h.id
	}
	p := FingerprintOf(name)
	n := h.times[p]
	if n > 0 && e.ID == nil {
		h.times[p]--
	}
	return n > 0
}
