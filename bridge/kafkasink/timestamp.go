package kafkasink

import (
	"time"

	"exportbridge/bridge/kafkaclient"
)

// futureLimit is how far in the future a record's time may be. Kafka 4 refuses
// more by default.
const futureLimit = time.Hour

// window is the span of times that a topic would keep, in milliseconds since
// the epoch. Clients' clocks lie, so event times need not be in it.
type window struct{ from, to int64 }

// keptBy returns a topic's span as of now. A record older than half the retention
// would be gone before long; a negative time is no time to Kafka.
func keptBy(t *kafkaclient.Settings, now time.Time) window {
	w := window{to: now.Add(min(futureLimit, t.After)).UnixMilli()}
	if t.Retention != kafkaclient.ForEver {
		w.from = max(w.from, now.Add(-t.Retention/2).UnixMilli())
	}
	if t.Before != kafkaclient.Unbounded {
		w.from = max(w.from, now.Add(-t.Before).UnixMilli())
	}
	return w
}

func (w window) holds(ms int64) bool { return ms >= w.from && ms <= w.to }
