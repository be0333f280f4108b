package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
)

const (
	// settleTimeout is how long an open transaction is waited for. Brokers end
	// one whose process is gone after KAFKA_TRANSACTION_TIMEOUT, 15 minutes at
	// most.
	settleTimeout  = 16 * time.Minute
	settleInterval = 100 * time.Millisecond
	// settleQuiet is how long that is not worth a message: the running stream
	// has a transaction open most of the time.
	settleQuiet = 3 * time.Second
	// stampSlack is how much earlier a record may be stamped than its event, or
	// than the API took that in: an event time further in the future than that
	// becomes the time of publishing.
	stampSlack = time.Hour
)

// settled returns the parts of a topic's partitions from a record time on, in
// milliseconds since the epoch, up to where the topic ends now. It waits until
// all of that is decided: behind an open transaction, whosever it is, records
// that are committed cannot be seen, and would seem to be missing.
func (c *comparison) settled(ctx context.Context, l Log, from int64) (map[int32]kafkaclient.Span, error) {
	ends, err := l.Ends(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for began := time.Now(); ; {
		spans, err := l.Bounds(ctx)
		if err != nil {
			return nil, err
		}
		open := int32(-1)
		for id, end := range ends {
			if spans[id].To < end {
				open = id
			}
			spans[id] = kafkaclient.Span{From: spans[id].From, To: max(spans[id].From, end)}
		}
		if open < 0 {
			return spans, kafkaclient.Since(ctx, l, spans, max(0, from-stampSlack.Milliseconds()))
		}
		if time.Since(began) > settleQuiet {
			c.waiting(fmt.Errorf("a transaction is open on partition %d of topic %s", open, l.Topic()))
		}
		bridge.Sleep(limited, settleInterval)
		if err := limited.Err(); err != nil {
			return nil, fmt.Errorf("wait for the transaction that is open on partition %d of topic %s: %w", open, l.Topic(), err)
		}
	}
}

// read takes the stream's records of the spans. Without an error it has come to
// the end of each.
func (c *comparison) read(ctx context.Context, l Log, spans map[int32]kafkaclient.Span, take func(*kgo.Record)) error {
	return l.Read(ctx, spans, func(r *kgo.Record) error {
		if l == c.Topic && c.Unmarked || header(r, kafkasink.HeaderStream) == c.Stream {
			take(r)
		}
		return nil
	})
}

// recordOf returns the event that a record holds, as far as a comparison needs
// it: its id and its time, in milliseconds since the epoch.
func (c *comparison) recordOf(r *kgo.Record) (id []byte, when int64) {
	when = r.Timestamp.UnixMilli()
	if t, err := time.Parse(time.RFC3339Nano, header(r, kafkasink.HeaderTime)); err == nil {
		when = t.UnixMilli()
		if id := header(r, kafkasink.HeaderID); id != "" {
			return []byte(id), when
		}
	}
	// Without these headers the event itself says it.
	page, err := c.Source.DecodeItem(r.Value)
	if err != nil {
		return []byte(header(r, kafkasink.HeaderID)), when
	}
	e := &page.Events[0]
	if e.Defect == "" {
		when = e.Time
	}
	if id := header(r, kafkasink.HeaderID); id != "" {
		return []byte(id), when
	}
	return e.AppendRecordID(nil), when
}

// letterID returns the record id of the item that a dead letter is about.
func (c *comparison) letterID(r *kgo.Record) []byte {
	l := deadletter.Read(r)
	if id := header(r, kafkasink.HeaderID); id != "" {
		return []byte(id)
	}
	if !l.Whole {
		return []byte(l.ID)
	}
	page, err := c.Source.DecodeItem(l.Item)
	if err != nil {
		return nil
	}
	return page.Events[0].AppendRecordID(nil)
}

// header returns the last value of a header, or nothing.
func header(r *kgo.Record, name string) string {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
