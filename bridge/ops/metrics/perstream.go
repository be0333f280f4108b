package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// perStream is a counter whose values other packages count. Its methods may be called
// concurrently.
type perStream struct {
	desc *prometheus.Desc

	mu     sync.Mutex              // guards values
	values map[string]func() int64 // by stream
}

func newPerStream(name, help string) *perStream {
	desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{"stream"}, nil)
	return &perStream{desc: desc, values: make(map[string]func() int64)}
}

// set sets what counts for a stream; nil removes the series.
func (p *perStream) set(stream string, value func() int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if value == nil {
		delete(p.values, stream)
	} else {
		p.values[stream] = value
	}
}

func (p *perStream) Describe(out chan<- *prometheus.Desc) { out <- p.desc }

func (p *perStream) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	all := maps.Clone(p.values) // a value may take its time
	p.mu.Unlock()
	for stream, value := range all {
		out <- prometheus.MustNewConstMetric(p.desc, prometheus.CounterValue, float64(value()), stream)
	}
}
