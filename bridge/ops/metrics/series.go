package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Detail is how many series a stream has.
type Detail string

// The details.
const (
	// DetailAuto is DetailStream for up to mostDetailed streams, else DetailProcess.
	DetailAuto Detail = "auto"
	// DetailStream has every series for each stream.
	DetailStream Detail = "stream"
	// DetailProcess has about 20 series for each stream. Histograms and other metrics with
	// many series count all streams together. A counter of a rare event has no series
	// before the first event.
	DetailProcess Detail = "process"
)

// mostDetailed is how many streams have every series by default: above it, a scrape
// exceeds 250 kB.
const mostDetailed = 10

// perStream reports whether each of n streams has every series.
func (d Detail) perStream(n int) bool {
	return d == DetailStream || d != DetailProcess && n <= mostDetailed
}

// scope is the set of series that a metric has in DetailProcess. In DetailStream, each stream
// has all series from the start.
type scope uint8

const (
	// always is one series for each stream from the start, for the first expected value.
	always scope = iota
	// seldom is a series for a stream from the first count on.
	seldom
	// together is one set of series for all streams, with an empty stream name.
	together
)

// start creates the series of a metric at the start. ensure creates those of one stream.
func (m *Metrics) start(s scope, ensure func(stream string)) {
	switch {
	case m.perStream || s == always:
		m.initialise = append(m.initialise, ensure)
	case s == together:
		ensure("")
	}
}

// streams is the label stream of a metric.
type streams struct{ together bool }

func (m *Metrics) streams(s scope) streams { return streams{s == together && !m.perStream} }

func (s streams) label(stream string) string {
	if s.together {
		return ""
	}
	return stream
}

// counter counts per stream.
type counter struct {
	streams
	vec *prometheus.CounterVec
}

func (m *Metrics) counter(s scope, name, help string) counter {
	c := counter{m.streams(s), m.counterVec(name, help)}
	m.start(s, func(stream string) { c.vec.WithLabelValues(stream) })
	return c
}

func (m *Metrics) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	opts := prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
	v := prometheus.NewCounterVec(opts, append([]string{"stream"}, labels...))
	m.registry.MustRegister(v)
	m.forget = append(m.forget, forgetIn(v.MetricVec))
	return v
}

// add adds n, which makes the series unless n is 0.
func (c counter) add(stream string, n float64) {
	if n != 0 {
		c.vec.WithLabelValues(c.label(stream)).Add(n)
	}
}

// histogram is of all streams together in DetailProcess.
type histogram struct {
	streams
	vec *prometheus.HistogramVec
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) histogram {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, append([]string{"stream"}, labels...))
	m.registry.MustRegister(v)
	m.forget = append(m.forget, forgetIn(v.MetricVec))
	if len(labels) == 0 && name != lateEvents { // which few streams have
		m.start(together, func(stream string) { v.WithLabelValues(stream) })
	}
	return histogram{m.streams(together), v}
}

func (h histogram) observe(stream string, value float64) {
	h.vec.WithLabelValues(h.label(stream)).Observe(value)
}

// newFor is how long a new series of a counter stays 0. Scrapes are rarely further apart.
const newFor = time.Minute

// alarming are the counters whose first count raises an alert. A stream often counts it within
// seconds of the start, which is before the first scrape.
var alarming = []string{
	"exportbridge_broker_data_losses_total", "exportbridge_checkpoints_refused_total",
	"exportbridge_cursor_no_progress_total", "exportbridge_events_dead_lettered_total",
	"exportbridge_events_schema_mismatched_total", "exportbridge_events_unaccounted_total",
}

// Gather implements prometheus.Gatherer. The functions rate and increase miss the value
// that a series begins with, so a series that is alarming, or new since the start of the
// process, is 0 for its first minute.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	families, err := m.registry.Gather()
	newest := time.Now().Add(-newFor)
	for _, f := range families {
		if f.GetType() != dto.MetricType_COUNTER {
			continue
		}
		held := slices.Contains(alarming, f.GetName())
		for _, series := range f.Metric {
			created := series.Counter.CreatedTimestamp.AsTime() // 1970 for one without
			if (held || created.After(m.began)) && created.After(newest) {
				series.Counter.Value = new(0.0)
			}
		}
	}
	return families, err
}
