package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// readings is a counter whose values come from other packages. Its methods may be called
// concurrently.
type readings struct {
	desc *prometheus.Desc

	mu     sync.Mutex              // guards values
	values map[string]func() int64 // by stream
}

func newReadings(name, help string) *readings {
	desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{"stream"}, nil)
	return &readings{desc: desc, values: make(map[string]func() int64)}
}

// set sets the source of a stream's value; nil removes the series.
func (r *readings) set(stream string, value func() int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if value == nil {
		delete(r.values, stream)
	} else {
		r.values[stream] = value
	}
}

func (r *readings) Describe(out chan<- *prometheus.Desc) { out <- r.desc }

func (r *readings) Collect(out chan<- prometheus.Metric) {
	r.mu.Lock()
	all := maps.Clone(r.values) // reading a value may take long
	r.mu.Unlock()
	for stream, value := range all {
		out <- prometheus.MustNewConstMetric(r.desc, prometheus.CounterValue, float64(value()), stream)
	}
}
