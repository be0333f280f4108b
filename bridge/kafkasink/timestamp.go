package kafkasink

import (
	"time"

	"exportbridge/bridge/kafkaclient"
)

// futureLimit bounds record timestamps in the future. Kafka 4 rejects later
// ones by default.
const futureLimit = time.Hour

// window is the range of timestamps that a topic retains, in milliseconds since
// the epoch. Client clocks are unreliable, so event times may be outside.
type window struct{ from, to int64 }

// keptBy returns a topic's window as of now. A record older than half the
// retention would soon be deleted; Kafka has no negative timestamps.
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
