package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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

// settled returns the parts of the partitions from a record time on, in
// milliseconds since the epoch, up to where the topic ends now. It waits until
// all of that is decided: behind an open transaction, whosever it is, records
// that are committed cannot be seen, and would seem to be missing.
func (t *topicReader) settled(ctx context.Context, from int64, say func(error)) (map[int32]span, error) {
	ends, err := t.lastOffsets(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for began := time.Now(); ; {
		spans, err := t.bounds(ctx)
		if err != nil {
			return nil, err
		}
		open := int32(-1)
		for id, end := range ends {
			if spans[id].To < end {
				open = id
			}
			spans[id] = span{From: spans[id].From, To: max(spans[id].From, end)}
		}
		if open < 0 {
			return spans, t.begin(ctx, spans, tailStart{kind: fromTime, n: max(0, from-stampSlack.Milliseconds())})
		}
		if time.Since(began) > settleQuiet {
			say(fmt.Errorf("a transaction is open on partition %d of topic %s", open, t.topic))
		}
		if err := waitFor(limited, settleInterval); err != nil {
			return nil, fmt.Errorf("wait for the transaction that is open on partition %d of topic %s: %w", open, t.topic, err)
		}
	}
}

// lastOffsets returns where the partitions end, open transactions included.
func (t *topicReader) lastOffsets(ctx context.Context) (ends map[int32]int64, err error) {
	err = t.with(func(l *kafkaclient.Log) error {
		ends, err = l.Ends(ctx)
		return err
	})
	return ends, err
}

// recordOf returns the event that a record holds, as far as a comparison needs
// it: its id and its time, in milliseconds since the epoch.
func (v *verifier) recordOf(r *kgo.Record) (id []byte, when int64) {
	when = r.Timestamp.UnixMilli()
	if t, err := time.Parse(time.RFC3339Nano, header(r, headerEventTime)); err == nil {
		when = t.UnixMilli()
		if id := header(r, headerEventID); id != "" {
			return []byte(id), when
		}
	}
	// Without these headers the event itself says it.
	page, err := decodeItem(v.api, v.stream.Export.ItemsField, r.Value)
	if err != nil {
		return []byte(header(r, headerEventID)), when
	}
	e := &page.Events[0]
	if e.Defect == "" {
		when = e.Time
	}
	if id := header(r, headerEventID); id != "" {
		return []byte(id), when
	}
	return e.AppendRecordID(nil), when
}

// letterID returns the record id of the item that a dead letter is about.
func (v *verifier) letterID(r *kgo.Record) []byte {
	l := kafkasink.ReadLetter(r)
	if id := header(r, headerEventID); id != "" {
		return []byte(id)
	}
	if l.Item == nil {
		return []byte(l.ID)
	}
	page, err := decodeItem(v.api, v.stream.Export.ItemsField, l.Item)
	if err != nil {
		return nil
	}
	return page.Events[0].AppendRecordID(nil)
}
