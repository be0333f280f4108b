package metrics

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// readings is a counter whose values come from other packages. A value is 0 for the first minute
// of its stream: the first session often finds what it counts, and before the first scrape, whose
// value rate and increase miss. Its methods may be called concurrently.
type readings struct {
	desc *prometheus.Desc

	mu     sync.Mutex         // guards values
	values map[string]reading // by stream
}

// reading is the source of a stream's value.
type reading struct {
	value func() int64
	began time.Time // of the stream, which may have had other sources since
}

func newReadings(name, help string) *readings {
	desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{"stream"}, nil)
	return &readings{desc: desc, values: make(map[string]reading)}
}

// set sets the source of a stream's value; nil removes the series.
func (r *readings) set(stream string, value func() int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.values[stream]
	switch {
	case value == nil:
		delete(r.values, stream)
	case known:
		r.values[stream] = reading{value, was.began}
	default:
		r.values[stream] = reading{value, time.Now()}
	}
}

func (r *readings) Describe(out chan<- *prometheus.Desc) { out <- r.desc }

func (r *readings) Collect(out chan<- prometheus.Metric) {
	r.mu.Lock()
	all := maps.Clone(r.values) // reading a value may take long
	r.mu.Unlock()
	for stream, of := range all {
		value := 0.0
		if time.Since(of.began) >= newFor {
			value = float64(of.value())
		}
		out <- prometheus.MustNewConstMetric(r.desc, prometheus.CounterValue, value, stream)
	}
}
