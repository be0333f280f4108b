package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

const (
	// settleTimeout is how long to wait for an open transaction. If its producer is
	// gone, brokers abort it after its time-out, 15 minutes at most.
	settleTimeout  = 16 * time.Minute
	settleInterval = 100 * time.Millisecond
	// settleQuiet is how long to wait without a message: a running stream has an open
	// transaction most of the time.
	settleQuiet = 3 * time.Second
	// stampSlack is how much earlier than its event or ingestion time a record's
	// timestamp may be: an event time further in the future becomes the time of
	// publishing.
	stampSlack = time.Hour
)

// settled returns the spans of a topic from a record time on, in milliseconds since the
// epoch, up to its current end. It waits for open transactions in these spans: they hide
// committed records behind them.
func (c *comparison) settled(ctx context.Context, l deadletter.Log, from int64) (map[int32]kafkaclient.Span, error) {
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
			return spans, kafkaclient.Since(ctx, l, spans, from-stampSlack.Milliseconds())
		}
		if c.Waiting != nil && time.Since(began) > settleQuiet {
			c.Waiting(fmt.Errorf("open transaction on partition %d of topic %s", kafkaclient.PartitionIn(open), l.Topic()))
		}
		bridge.Sleep(limited, settleInterval)
		if err := limited.Err(); err != nil {
			return nil, fmt.Errorf("wait for the open transaction on partition %d of topic %s: %w",
				kafkaclient.PartitionIn(open), l.Topic(), err)
		}
	}
}

// keep asks what the topics keep, and rejects a recreated topic: the marks and the records
// read so far are of the deleted one.
func (c *comparison) keep(ctx context.Context) error {
	kept, err := c.Topic.Kept(ctx)
	if err != nil {
		return err
	}
	for i := range kept {
		if kept[i].ID != c.kept[i].ID {
			return reject(TopicMade, "topic %s was recreated meanwhile", kept[i].Topic)
		}
	}
	c.kept = kept
	return nil
}

// routed returns the number of topics of routes.
func (c *comparison) routed() int { return max(0, len(c.Topics)-1) }

// keptOf returns which records of an event its topic and the former topics still have. Any
// topic may have had an event from before the routes changed, or while the settings had
// other routes.
func (c *comparison) keptOf(e copies) kafkaclient.Kept {
	k, others := c.kept[0], c.kept[1+c.routed():]
	if int(e.route) <= c.routed() {
		k = c.kept[e.route]
	}
	if e.at <= c.start.RoutesChanged || c.Routes != c.start.Routes {
		others = c.kept
	}
	for _, former := range others {
		k.Expired, k.From = k.Expired || former.Expired, max(k.From, former.From)
	}
	return k
}

// read calls take with the stream's records in the spans, and with records of the topic
// that name no stream. Without an error it has read all of them.
func (c *comparison) read(
	ctx context.Context, l deadletter.Log, spans map[int32]kafkaclient.Span, take func(*kgo.Record) error,
) error {
	return l.Read(ctx, spans, func(r *kgo.Record) error {
		if deadletter.Header(r, kafkarecord.HeaderStream) == c.Stream || l == c.Topic && c.isUnmarked(r) {
			return take(r)
		}
		return nil
	})
}

// isUnmarked reports whether a record names no stream, but may be this stream's: it was
// published with BRIDGE_HEADERS=none. Such a record has no id either.
func (c *comparison) isUnmarked(r *kgo.Record) bool {
	return deadletter.Header(r, kafkarecord.HeaderStream) == "" &&
		(c.Unmarked || deadletter.Header(r, kafkarecord.HeaderID) == "")
}

// recordOf returns the record id and the event time, in milliseconds since the epoch, of
// a record: by its headers, else by its event. Its error is that of the keys of encrypted values.
func (c *comparison) recordOf(r *kgo.Record) (id []byte, when int64, err error) {
	id, when = []byte(deadletter.Header(r, kafkarecord.HeaderID)), r.Timestamp.UnixMilli()
	t, noTime := time.Parse(time.RFC3339Nano, deadletter.Header(r, kafkarecord.HeaderTime))
	if noTime == nil {
		when = t.UnixMilli()
	}
	if noTime == nil && len(id) > 0 {
		return id, when, nil
	}
	decode := c.Source.DecodeItem
	if deadletter.Header(r, kafkarecord.HeaderRedacted) != "" { // the rules were applied
		decode = func(value []byte) (*bridge.Page, error) { return c.Source.DecodeRecord(value, string(id)) }
	}
	page, err := decode(r.Value)
	if err != nil {
		return id, when, deadletter.KeysFault(err)
	}
	e := &page.Events[0]
	if e.Defect == "" {
		when = e.Time
	}
	if len(id) == 0 {
		id = e.AppendRecordID(nil)
	}
	return id, when, nil
}

// deadLetterID returns the record id of a dead letter's item.
func (c *comparison) deadLetterID(r *kgo.Record) ([]byte, error) {
	l := deadletter.Read(r)
	if id := deadletter.Header(r, kafkarecord.HeaderID); id != "" {
		return []byte(id), nil
	}
	if !l.Whole {
		return []byte(l.ID), nil
	}
	page, err := c.Source.DecodeItem(l.Item)
	if err != nil {
		return nil, deadletter.KeysFault(err)
	}
	return page.Events[0].AppendRecordID(nil), nil
}
