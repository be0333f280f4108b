package process

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/ops"
)

// sampler offers published events to the sampler of the web UI.
func sampler(to *ops.Sampler, stream, letters string) func(*kgo.Record) {
	return func(r *kgo.Record) {
		if r.Topic == letters {
			return // the record is a dead letter
		}
		to.Offer(stream, func(values bool) ops.Sample { return sampleOf(r, values) })
	}
}

func sampleOf(r *kgo.Record, values bool) ops.Sample {
	s := ops.Sample{Time: r.Timestamp.UTC(), Key: string(r.Key), Partition: r.Partition, Offset: r.Offset}
	for _, h := range r.Headers {
		switch h.Key {
		case "ce_type":
			s.Type = string(h.Value)
		case "ce_id":
			s.ID = string(h.Value)
		case "eb-origin":
			s.Origin = string(h.Value)
		}
	}
	if values {
		s.Value = string(r.Value)
	}
	return s
}
