package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"exportbridge/bridge"
)

const namespace = "exportbridge"

// Metrics counts what a bridge observes, and shows what its Status says, as
// Prometheus metrics. It is a bridge.Observer; all methods may be called
// concurrently.
type Metrics struct {
	registry *prometheus.Registry

	requests     *prometheus.CounterVec
	request      *prometheus.HistogramVec
	received     *prometheus.CounterVec
	body         *prometheus.CounterVec
	retries      *prometheus.CounterVec
	pageEvents   *prometheus.HistogramVec
	pages        *prometheus.CounterVec
	published    *prometheus.CounterVec
	bytes        *prometheus.CounterVec
	dead         *prometheus.CounterVec
	restamped    *prometheus.CounterVec
	tailChanged  *prometheus.CounterVec
	repeated     *prometheus.CounterVec
	commits      *prometheus.CounterVec
	commit       *prometheus.HistogramVec
	transactions *prometheus.CounterVec
	transaction  *prometheus.HistogramVec
	resets       *prometheus.CounterVec
	stage        *prometheus.HistogramVec
}

// Build says which program the metrics are of.
type Build struct{ Version, Revision, GoVersion string }

// NewMetrics returns the metrics of the given streams in a registry of their
// own. statuses is called at every scrape.
func NewMetrics(build Build, streams []string, statuses func() []bridge.Status) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.requests = m.counter("source_requests_total", "Requests to the export API by HTTP status or kind of failure.", "code")
	m.request = m.histogram("source_request_duration_seconds", "Time of a request to the export API, body included.", latencyBuckets)
	m.body = m.counter("source_response_bytes_total", "Bytes of pages received, after decompression.")
	m.received = m.counter("events_received_total", "Events in pages received, before anything is dropped.")
	m.retries = m.counter("source_retries_total", "Waits before another try, by what failed.", "reason")
	m.pageEvents = m.histogram("page_events", "Events per page as the API sent it.", []float64{0, 1, 10, 50, 100, 250, 500, 750, 999, 1000})
	m.pages = m.counter("pages_committed_total", "Pages that the committed cursor passed.")
	m.published = m.counter("events_published_total", "Events acknowledged by Kafka and covered by a committed cursor.")
	m.bytes = m.counter("event_bytes_published_total", "Bytes of values published.")
	m.dead = m.counter("events_dead_lettered_total", "Items published to the dead-letter topic instead, by reason.", "reason")
	m.restamped = m.counter("events_restamped_total", "Events published with the time of publishing, because the topic would not keep their own.")
	m.repeated = m.counter("events_repeated_total", "Items that the API listed twice in one page and that were published once.")
	m.tailChanged = m.counter("tail_items_changed_total", "Items at the end of the results that vanished or came back with other bytes.", "change")
	m.commits = m.counter("cursor_commits_total", "Commits of the cursor by result.", "result")
	m.commit = m.histogram("cursor_commit_duration_seconds", "Time to store the cursor.", latencyBuckets)
	m.transactions = m.counter("transactions_total", "Kafka transactions by result; the next session finds out what became of an unknown one.", "result")
	m.transaction = m.histogram("transaction_duration_seconds", "Time of a Kafka transaction.", latencyBuckets)
	m.resets = m.counter("cursor_resets_total", "Operator's changes of the position that were applied.", "kind")
	m.stage = m.histogram("stage_duration_seconds", "Time per step: wait (for a page), fetch, decode, publish, checkpoint.", latencyBuckets, "stage")
	m.registry.MustRegister(newStatusCollector(build, statuses))
	for _, s := range streams {
		m.initialise(s)
	}
	return m
}

var latencyBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// Registry returns the registry, for adapters that have metrics of their own.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, append([]string{"stream"}, labels...))
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, append([]string{"stream"}, labels...))
	m.registry.MustRegister(v)
	return v
}

// initialise makes every series exist from the start: a rate over a series
// that appears with its first increment misses that increment.
func (m *Metrics) initialise(stream string) {
	for _, v := range []*prometheus.CounterVec{m.received, m.body, m.pages, m.published, m.bytes, m.restamped, m.repeated} {
		v.WithLabelValues(stream)
	}
	for _, code := range []string{"200", "429", "timeout", "network", "decode"} {
		m.requests.WithLabelValues(stream, code)
	}
	for _, d := range []bridge.Defect{bridge.DefectNotObject, bridge.DefectTime, bridge.DefectTooLarge} {
		m.dead.WithLabelValues(stream, string(d))
	}
	for _, result := range []string{"ok", "error", "conflict"} {
		m.commits.WithLabelValues(stream, result)
	}
	for _, result := range []string{"committed", "fenced", "unknown"} {
		m.transactions.WithLabelValues(stream, result)
	}
	for _, kind := range []bridge.Kind{bridge.KindReset, bridge.KindPause, bridge.KindResume, "refused-cursor"} {
		m.resets.WithLabelValues(stream, string(kind))
	}
	m.tailChanged.WithLabelValues(stream, "vanished")
	m.tailChanged.WithLabelValues(stream, "mutated")
}

// Observe implements bridge.Observer.
func (m *Metrics) Observe(o bridge.Observation) {
	s := o.Stream
	switch o.What {
	case bridge.ObserveFetch:
		m.requests.WithLabelValues(s, o.Code).Inc()
		m.request.WithLabelValues(s).Observe(o.Took.Seconds())
		m.body.WithLabelValues(s).Add(float64(o.Bytes))
		m.stage.WithLabelValues(s, string(o.What)).Observe(o.Took.Seconds())
	case bridge.ObserveDecode:
		m.received.WithLabelValues(s).Add(float64(o.Events))
		m.pageEvents.WithLabelValues(s).Observe(float64(o.Events))
		m.stage.WithLabelValues(s, string(o.What)).Observe(o.Took.Seconds())
	case bridge.ObserveWait, bridge.ObservePublish:
		m.stage.WithLabelValues(s, string(o.What)).Observe(o.Took.Seconds())
	case bridge.ObserveTransaction:
		m.transactions.WithLabelValues(s, o.Code).Inc()
		m.transaction.WithLabelValues(s).Observe(o.Took.Seconds())
	case bridge.ObserveCheckpoint:
		m.commits.WithLabelValues(s, o.Code).Inc()
		m.commit.WithLabelValues(s).Observe(o.Took.Seconds())
		m.stage.WithLabelValues(s, string(o.What)).Observe(o.Took.Seconds())
	case bridge.ObserveCommit:
		m.committed(o)
	case bridge.ObserveRetry:
		m.retries.WithLabelValues(s, o.Code).Inc()
	case bridge.ObserveReset:
		m.resets.WithLabelValues(s, o.Code).Inc()
	case bridge.ObserveState: // shown from Status
	}
}

func (m *Metrics) committed(o bridge.Observation) {
	s := o.Stream
	m.pages.WithLabelValues(s).Add(float64(o.Pages))
	m.published.WithLabelValues(s).Add(float64(o.Events))
	m.bytes.WithLabelValues(s).Add(float64(o.Receipt.Bytes))
	m.restamped.WithLabelValues(s).Add(float64(o.Receipt.Restamped))
	m.repeated.WithLabelValues(s).Add(float64(o.Repeated))
	m.tailChanged.WithLabelValues(s, "vanished").Add(float64(o.Vanished))
	m.tailChanged.WithLabelValues(s, "mutated").Add(float64(o.Changed))
	for defect, n := range o.Receipt.DeadLettered {
		m.dead.WithLabelValues(s, string(defect)).Add(float64(n))
	}
}

// statusCollector turns Status into gauges at scrape time.
type statusCollector struct {
	build    Build
	statuses func() []bridge.Status
	buildInfo, leader, state, blocked, epoch, up, position, lastEvent,
	lastCommit, lastPoll, caughtUp, pages, bytes *prometheus.Desc
}

func newStatusCollector(build Build, statuses func() []bridge.Status) *statusCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return &statusCollector{
		build: build, statuses: statuses,
		buildInfo:  desc("build_info", "1, labelled with the program's version.", "version", "revision", "goversion"),
		leader:     desc("leader", "1 while the stream is this process's, 0 while it stands by.", "stream"),
		state:      desc("state", "1 for the state the stream is in, 0 for the others.", "stream", "state"),
		blocked:    desc("stream_blocked", "1 while the stream is blocked, labelled with why.", "stream", "reason"),
		epoch:      desc("epoch", "Epoch of the committed checkpoint; it grows with every reset.", "stream"),
		up:         desc("dependency_up", "1 while the server answers.", "stream", "dependency"),
		position:   desc("source_position_timestamp_seconds", "Instant up to which the export is known to be in Kafka.", "stream"),
		lastEvent:  desc("last_event_timestamp_seconds", "Time of the newest published event.", "stream"),
		lastCommit: desc("last_commit_timestamp_seconds", "Time of the last commit.", "stream"),
		lastPoll:   desc("last_poll_timestamp_seconds", "Time of the last answered request.", "stream"),
		caughtUp:   desc("caught_up", "1 when the API had nothing more.", "stream"),
		pages:      desc("prefetched_pages", "Pages fetched and not yet acknowledged by Kafka.", "stream"),
		bytes:      desc("prefetched_bytes", "Bytes fetched and not yet acknowledged by Kafka.", "stream"),
	}
}

// Describe implements prometheus.Collector.
func (c *statusCollector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements prometheus.Collector.
func (c *statusCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.buildInfo, 1, c.build.Version, c.build.Revision, c.build.GoVersion)
	for _, s := range c.statuses() {
		for _, state := range bridge.States {
			gauge(c.state, boolean(s.State == state), s.Stream, string(state))
		}
		if s.State == bridge.StateBlocked {
			gauge(c.blocked, 1, s.Stream, string(s.Reason))
		}
		for name, d := range s.Dependencies {
			gauge(c.up, boolean(d.Up), s.Stream, name)
		}
		gauge(c.leader, boolean(s.Leader), s.Stream)
		gauge(c.epoch, float64(s.Place.Epoch), s.Stream)
		if s.Leader { // how far the stream is, its owner says
			gauge(c.position, seconds(s.Position), s.Stream)
			gauge(c.lastEvent, seconds(s.LastEvent), s.Stream)
			gauge(c.lastCommit, seconds(s.LastCommit), s.Stream)
			gauge(c.lastPoll, seconds(s.LastPoll), s.Stream)
		}
		gauge(c.caughtUp, boolean(s.CaughtUp), s.Stream)
		gauge(c.pages, float64(s.PrefetchedPages), s.Stream)
		gauge(c.bytes, float64(s.PrefetchedBytes), s.Stream)
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
