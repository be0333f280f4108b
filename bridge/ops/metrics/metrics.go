// Package metrics exposes observations and statuses of bridges as Prometheus metrics.
package metrics

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"exportbridge/bridge"
)

const namespace = "exportbridge"

// Metrics is a bridge.Observer and a prometheus.Gatherer. All methods may be called concurrently.
type Metrics struct {
	registry  *prometheus.Registry
	began     time.Time // when New had created its series
	perStream bool      // full detail
	// initialise creates the series of a stream at the start: a rate over a series that
	// appears with its first increment misses that increment.
	initialise []func(stream string)
	// forget removes the series of a stream.
	forget []func(stream string)

	requests     bounded
	request      histogram
	received     counter
	body         counter
	retries      bounded
	throttled    counter
	pageEvents   histogram
	fetched      bounded
	stuck        bounded
	pages        counter
	published    counter
	bytes        counter
	dead         bounded
	dropped      bounded
	restamped    counter
	unrouted     counter
	mismatched   counter
	tailChanged  bounded
	repeated     counter
	atBorder     counter
	shared       counter
	latency      histogram
	late         histogram
	commits      bounded
	commit       histogram
	transactions bounded
	transaction  histogram
	failures     bounded
	rejections   bounded
	transitions  bounded
	resets       bounded
	stage        histogram
	logs         *prometheus.CounterVec
	rejected     *prometheus.CounterVec
	unsafe       *prometheus.GaugeVec
	windows      *prometheus.GaugeVec
	grown        counter
	reload       *prometheus.GaugeVec // without a series until the first reload
	losses       *readings
	refused      *readings

	mu sync.RWMutex // guards lost, and the series of windows of streams that are removed
	// lost counts the losses that the engine found, by stream.
	lost map[string]*atomic.Int64
}

// Build is the program's build.
type Build struct {
	Version   string // of the program, as v1.2.3
	Revision  string // the commit it was built from
	GoVersion string // of the compiler
}

// New returns the metrics of these streams, in their own registry. Each scrape calls
// statuses.
func New(build Build, detail Detail, streams []string, statuses func() []bridge.Status) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), perStream: detail.perStream(len(streams)), lost: make(map[string]*atomic.Int64),
	}
	m.losses = newReadings("broker_data_losses_total", "Losses of acknowledged records or checkpoints: lost by a broker, "+
		"or a topic was deleted, recreated, emptied or truncated. Must stay 0.")
	m.refused = newReadings("checkpoints_refused_total",
		"Rejected checkpoints in Kafka: produced outside a transaction, so not by a bridge. Must stay 0.")
	m.defineSource()
	m.defineSink()
	m.stage = m.histogram("stage_duration_seconds",
		"Time per stage: wait (for a page), fetch, decode, publish, checkpoint.", latencyBuckets, "stage")
	m.start(together, func(stream string) {
		for _, stage := range stages {
			m.stage.vec.WithLabelValues(stream, string(stage))
		}
	})
	m.logs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "log_messages_total",
		Help: "Log messages of this process by level, including messages merged into one.",
	}, []string{"level"})
	m.rejected = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "http_rejected_total",
		Help: "Rejected HTTP requests, by status: 401 and 429 (missing or wrong token), " +
			"403 (not local, or another site), 411 (chunked body), 421 (unknown Host name), " +
			"503 (tokens cannot be read), tls (failed handshake).",
	}, []string{"status"})
	for _, status := range []string{"401", "403", "411", "421", "429", "503", "tls"} {
		m.rejected.WithLabelValues(status)
	}
	m.unsafe = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "unsafe_setting", Help: "1 for each active setting that disables a protection.",
	}, []string{"stream", "setting"})
	m.windows = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "backfill_windows", Help: "Windows of known backfills and replays, by state.",
	}, []string{"stream", "state"})
	m.reload = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "config_last_reload_successful",
		Help: "1 if the streams run with the file of BRIDGE_CONFIG as it is, 0 if the last reload failed.",
	}, nil)
	m.registry.MustRegister(m.logs, m.rejected, m.unsafe, m.windows, m.reload, m.losses, m.refused,
		newStatusCollector(build, m.perStream, statuses))
	m.forget = append(m.forget, forgetIn(m.unsafe.MetricVec), forgetIn(m.windows.MetricVec))
	for _, level := range logLevels {
		m.logs.WithLabelValues(level)
	}
	for _, stream := range streams {
		m.AddStream(stream)
	}
	m.began = time.Now()
	return m
}

// AddStream makes the series of a stream exist.
func (m *Metrics) AddStream(stream string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost[stream] != nil {
		return
	}
	m.lost[stream] = new(atomic.Int64)
	for _, initialise := range m.initialise {
		initialise(stream)
	}
}

// RemoveStream removes the series of a stream, which has ended.
func (m *Metrics) RemoveStream(stream string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.lost, stream)
	m.losses.set(stream, nil)
	m.refused.set(stream, nil)
	for _, forget := range m.forget {
		forget(stream)
	}
}

func forgetIn(v *prometheus.MetricVec) func(stream string) {
	return func(stream string) { v.DeletePartialMatch(prometheus.Labels{"stream": stream}) }
}

// Reloaded says whether the last reload of the settings succeeded.
func (m *Metrics) Reloaded(successful bool) { m.reload.WithLabelValues().Set(boolean(successful)) }

func (m *Metrics) defineSource() {
	m.requests = m.bounded(always, "source_requests_total",
		"Requests to the export API, by HTTP status or kind of failure; 429 is every rate limit.", "code",
		"200", "401", "403", "429", "500", "502", "503", "504", "timeout", "network", "tls", "decode", "schema", "size")
	m.request = m.histogram("source_request_duration_seconds",
		"Duration of requests to the export API, including the body.", latencyBuckets)
	m.body = m.counter(together, "source_response_bytes_total", "Bytes of pages received, after decompression.")
	m.received = m.counter(always, "events_received_total", "Events in pages received, before deduplication.")
	m.retries = m.bounded(together, "source_retries_total",
		"Retries, by kind of failure.", "reason", "429", "500", "502", "503", "504", "timeout", "network", "decode")
	m.throttled = m.counter(seldom, "source_throttled_seconds_total",
		"Time spent waiting because of 429 responses or EXPORT_RATE_LIMIT.")
	m.pageEvents = m.histogram("page_events",
		"Events per page, as received from the API.", []float64{0, 1, 10, 50, 100, 250, 500, 750, 999, 1000})
	m.fetched = m.bounded(together, "pages_fetched_total",
		"Pages received: full, partial (fewer events than EXPORT_PAGE_SIZE) or empty.",
		"kind", "full", "partial", "empty")
	m.stuck = m.bounded(seldom, "cursor_no_progress_total",
		"Pages without progress: a cursor that was already read (cycle), a full last page that names itself (full-tail), "+
			"a full page without a next one (full_page_without_next), a last page with older items than before (older_page), "+
			"or a page that begins with all items kept of the page before (border_overlap).",
		"kind", "cycle", "full-tail", bridge.StuckFullPage, bridge.StuckOlder, bridge.StuckBorder)
}

func (m *Metrics) defineSink() {
	m.pages = m.counter(together, "pages_committed_total", "Pages passed by the committed cursor.")
	m.published = m.counter(always, "events_published_total",
		"Events acknowledged by Kafka and covered by a committed cursor.")
	m.bytes = m.counter(together, "event_bytes_published_total", "Bytes of record values published.")
	m.dead = m.bounded(seldom, "events_dead_lettered_total",
		"Items published to the dead-letter topic, by reason.", "reason", string(bridge.DefectNotObject), string(bridge.DefectTime), string(bridge.DefectBadText),
		string(bridge.DefectTooLarge), string(bridge.DefectSharedID))
	m.dropped = m.bounded(always, "events_unaccounted_total",
		"Events passed by the cursor that reached no topic. Must stay 0.", "reason", unaccounted)
	m.restamped = m.counter(seldom, "events_restamped_total",
		"Events published with the publish time because the topic would not retain their event time.")
	m.unrouted = m.counter(seldom, "events_dropped_by_route_total", "Events that a route of KAFKA_ROUTES drops.")
	m.mismatched = m.counter(seldom, "events_schema_mismatched_total",
		"Events that differ from EVENT_SCHEMA: published, or dead letters (BRIDGE_ON_SCHEMA_MISMATCH).")
	m.shared = m.counter(seldom, "events_shared_id_total",
		"Items that share their id with a different item of the page: published, or dead letters (BRIDGE_ON_SHARED_ID).")
	m.repeated = m.counter(seldom, "events_repeated_total", "Items listed twice in one page and published once.")
	m.atBorder = m.counter(seldom, "border_repeats_total",
		"Items that ended the page before, listed again with the same bytes and dropped.")
	m.tailChanged = m.bounded(seldom, "tail_items_changed_total",
		"Items at the end of the results that vanished or changed.", "change", "vanished", "mutated")
	m.late = m.histogram(lateEvents,
		"Time from an event to the window that listed it, for events behind which a window had ended: "+
			"the API shows them late.", lateBuckets)
	m.latency = m.histogram("event_end_to_end_latency_seconds",
		"Time from an event to its commit, for a sample of each page (all events of a small page).", ageBuckets)
	m.commits = m.bounded(together, "checkpoint_store_writes_total",
		"Checkpoint writes to Redis, by result.", "result", "ok", "error", "conflict")
	m.commit = m.histogram("cursor_commit_duration_seconds", "Duration of checkpoint writes to Redis.", latencyBuckets)
	m.transactions = m.bounded(always, "transactions_total",
		"Kafka transactions, by result. The next session resolves an unknown result.",
		"result", "committed", "fenced", "unknown")
	m.transaction = m.histogram("transaction_duration_seconds", "Duration of Kafka transactions.", latencyBuckets)
	m.failures = m.bounded(seldom, "produce_errors_total",
		"Batches that failed to produce, by error.",
		"error", "network", "timeout", "stalled", "invalid_producer_epoch", "error")
	m.rejections = m.bounded(seldom, "fencing_rejections_total",
		"Commits rejected because another session moved the stream, by rejecting system.",
		"layer", bridge.DependencySink, bridge.DependencyStore)
	m.transitions = m.bounded(seldom, "owner_transitions_total",
		"Ownership acquired (to=owner) or released (to=standby).", "to", "owner", "standby")
	m.grown = m.counter(seldom, "topic_partition_changes_total",
		"Partition increases of the topic. Keys map to different partitions afterwards.")
	m.resets = m.bounded(seldom, "cursor_resets_total",
		"Applied resets, pauses and resumes of operators, and recoveries from a cursor that the API rejected.", "kind",
		string(bridge.KindReset), string(bridge.KindPause), string(bridge.KindResume), "refused-cursor")
}

// unaccounted is the reason of a dropped event: Kafka's receipt does not name it.
const unaccounted = "unaccounted"

// lateEvents is the histogram of Event.Late.
const lateEvents = "late_event_seconds"

var (
	latencyBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	lateBuckets    = []float64{60, 300, 900, 3600, 6 * 3600, 24 * 3600}
	ageBuckets     = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600}
)

// stages are the observations whose duration is that of a stage.
var stages = []bridge.What{
	bridge.ObserveWait, bridge.ObserveFetch, bridge.ObserveDecode, bridge.ObservePublish, bridge.ObserveCheckpoint,
}

// Registry is for adapters that have metrics of their own.
func (m *Metrics) Registry() prometheus.Registerer { return m.registry }

// Throttled returns a function that counts the time that a stream's requests wait for
// EXPORT_RATE_LIMIT.
func (m *Metrics) Throttled(stream string) func(time.Duration) {
	return func(d time.Duration) { m.throttled.add(stream, d.Seconds()) }
}

// CountLosses adds a counter of a stream's acknowledged records that Kafka lost. Each
// scrape calls losses, the number that brokers report. It must never fall.
func (m *Metrics) CountLosses(stream string, losses func() int64) {
	found := m.lostOf(stream)
	if found == nil {
		found = new(atomic.Int64)
	}
	m.losses.set(stream, func() int64 { return losses() + found.Load() })
}

func (m *Metrics) lostOf(stream string) *atomic.Int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.lost[stream]
}

// CountRefused adds a counter of the checkpoints that a stream rejected. Each scrape
// calls refused, whose number must never fall.
func (m *Metrics) CountRefused(stream string, refused func() int64) {
	m.refused.set(stream, refused)
}

// WindowStates are the states of the windows of backfills and replays.
var WindowStates = []string{"running", "interrupted", "done", "cancelled"}

// Windows sets the number of windows of a stream's backfills and replays by state, 0 for
// a state that is absent. A nil map removes the series: the numbers are unknown. A stream
// that was removed has none, and in DetailProcess there is none for 0.
func (m *Metrics) Windows(stream string, byState map[string]int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.lost[stream] == nil {
		return
	}
	for _, state := range WindowStates {
		if byState == nil || !m.perStream && byState[state] == 0 {
			m.windows.DeleteLabelValues(stream, state)
			continue
		}
		m.windows.WithLabelValues(stream, state).Set(float64(byState[state]))
	}
}

// Rejected counts a rejected HTTP request by its status, or "tls" for a failed handshake.
func (m *Metrics) Rejected(status string) { m.rejected.WithLabelValues(status).Inc() }

// Unsafe exposes an active setting that disables a protection, of the process if stream
// is empty.
func (m *Metrics) Unsafe(stream, setting string) { m.unsafe.WithLabelValues(stream, setting).Set(1) }

// Safe removes the unsafe settings of a stream.
func (m *Metrics) Safe(stream string) { forgetIn(m.unsafe.MetricVec)(stream) }

// Observe implements bridge.Observer.
func (m *Metrics) Observe(o bridge.Observation) {
	s := o.Stream
	switch o.What {
	case bridge.ObserveFetch:
		m.requests.inc(s, o.Code)
		m.request.observe(s, o.Took.Seconds())
		m.body.add(s, float64(o.Bytes))
	case bridge.ObserveDecode:
		m.fetched.inc(s, o.Code)
		m.received.add(s, float64(o.Events))
		m.pageEvents.observe(s, float64(o.Events))
	case bridge.ObservePublish:
		if o.Code != "ok" {
			m.failures.inc(s, o.Code)
		}
	case bridge.ObserveTransaction:
		m.transactions.inc(s, o.Code)
		m.transaction.observe(s, o.Took.Seconds())
	case bridge.ObserveCheckpoint:
		m.commits.inc(s, o.Code)
		m.commit.observe(s, o.Took.Seconds())
	case bridge.ObserveCommit:
		m.committed(o)
	case bridge.ObserveRetry:
		m.retries.inc(s, o.Code)
		if o.Code == "429" {
			m.throttled.add(s, o.Took.Seconds())
		}
	case bridge.ObserveReset:
		m.resets.inc(s, o.Code)
	case bridge.ObserveOwner:
		m.transitions.inc(s, o.Code)
	case bridge.ObserveRejected:
		m.rejections.inc(s, o.Code)
	case bridge.ObserveStuck:
		m.stuck.inc(s, o.Code)
	case bridge.ObserveTopic:
		if lost := m.lostOf(s); o.Code == bridge.TopicGrew {
			m.grown.add(s, 1)
		} else if lost != nil {
			lost.Add(1)
		}
	}
	if slices.Contains(stages, o.What) {
		m.stage.vec.WithLabelValues(m.stage.label(s), string(o.What)).Observe(o.Took.Seconds())
	}
}

func (m *Metrics) committed(o bridge.Observation) {
	s := o.Stream
	m.pages.add(s, float64(o.Pages))
	m.published.add(s, float64(o.Events))
	m.bytes.add(s, float64(o.Receipt.Bytes))
	m.restamped.add(s, float64(o.Receipt.Restamped))
	m.unrouted.add(s, float64(o.Receipt.Dropped))
	m.mismatched.add(s, float64(o.Receipt.Mismatched))
	m.repeated.add(s, float64(o.Repeated))
	m.atBorder.add(s, float64(o.AtBorder))
	m.shared.add(s, float64(o.Shared))
	m.tailChanged.add(s, "vanished", o.Vanished)
	m.tailChanged.add(s, "mutated", o.Changed)
	m.dropped.add(s, unaccounted, o.Unaccounted)
	for defect, n := range o.Receipt.DeadLettered {
		m.dead.add(s, string(defect), n)
	}
	latency, now := m.latency.vec.WithLabelValues(m.latency.label(s)), time.Now().UnixMilli()
	for _, by := range o.Late {
		m.late.observe(s, by.Seconds())
	}
	for _, at := range o.Times {
		latency.Observe(max(0, float64(now-at)/1000)) // clients' clocks may be ahead
	}
}
