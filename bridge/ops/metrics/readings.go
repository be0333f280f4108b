package metrics

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// readings is a counter whose values come from other packages. A series is created with its stream,
// whose first session often finds what it counts, so that Gather shows 0 for a minute. Its methods
// may be called concurrently.
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
		out <- prometheus.MustNewConstMetricWithCreatedTimestamp(r.desc, prometheus.CounterValue, float64(of.value()), of.began,
			stream)
	}
}
