package kafkasink

import (
	"time"

	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkarecord"
)

// timeRange is the range of timestamps that a topic retains, in milliseconds since the
// epoch. Client clocks are unreliable, so event times may be outside.
type timeRange struct{ from, to int64 }

// keptBy returns a topic's range as of now. A record older than half the
// retention would soon be deleted; Kafka has no negative timestamps.
func keptBy(t *kafkaclient.Settings, now time.Time) timeRange {
	r := timeRange{to: now.Add(min(kafkarecord.FutureLimit, t.After)).UnixMilli()}
	if t.Retention != kafkaclient.ForEver {
		r.from = max(r.from, now.Add(-t.Retention/2).UnixMilli())
	}
	if t.Before != kafkaclient.Unbounded {
		r.from = max(r.from, now.Add(-t.Before).UnixMilli())
	}
	return r
}

func (t timeRange) holds(ms int64) bool { return ms >= t.from && ms <= t.to }
