package metrics_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops/metrics"
)

// observations are the engine's observations of a page of 1,000 events.
func observations() []bridge.Observation {
	now := time.Now().UnixMilli()
	all := []bridge.Observation{
		{What: bridge.ObserveFetch, Code: "200", Took: 20 * time.Millisecond, Bytes: 1 << 20},
		{What: bridge.ObserveDecode, Code: "full", Took: time.Millisecond, Events: 1000},
		{What: bridge.ObserveWait, Took: time.Millisecond},
		{What: bridge.ObservePublish, Code: "ok", Took: 3 * time.Millisecond},
		{What: bridge.ObserveTransaction, Code: "committed", Took: 3 * time.Millisecond},
		{What: bridge.ObserveCheckpoint, Code: "ok", Took: time.Millisecond},
		{
			What: bridge.ObserveCommit, Pages: 1, Events: 1000, Receipt: bridge.Receipt{Published: 1000, Bytes: 1 << 20},
			Times: []int64{now - 400, now - 300, now - 200, now - 200, now - 100, now - 100, now - 50, now},
		},
	}
	for i := range all {
		all[i].Stream = "events"
	}
	return all
}

// BenchmarkObserve measures a page that is alone in its transaction. An event costs the bridge
// about 2.8 us, so 28 us are 1 % of a page.
func BenchmarkObserve(b *testing.B) {
	m, page := newMetrics(bridge.Status{}), observations()
	b.ReportAllocs()
	for b.Loop() {
		for _, o := range page {
			m.Observe(o)
		}
	}
}

func TestUnsafeSettings(t *testing.T) {
	t.Parallel()
	m := newMetrics(bridge.Status{})
	if strings.Contains(exposed(m), "unsafe_setting{") {
		t.Error("a setting is unsafe before anybody said so")
	}
	m.Unsafe("events", "KAFKA_TLS_SKIP_VERIFY")
	wantLines(t, m, `unsafe_setting{setting="KAFKA_TLS_SKIP_VERIFY",stream="events"} 1`)
}

func TestObserveAllocatesNothing(t *testing.T) {
	m, page := newMetrics(bridge.Status{}), observations()
	// A histogram creates its native buckets at the first values.
	if allocs := testing.AllocsPerRun(100, func() {
		for _, o := range page {
			m.Observe(o)
		}
	}); allocs > 1 {
		t.Errorf("a page costs %v allocations", allocs)
	}
}

func TestObservedInto(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		o    bridge.Observation
		want string
	}{
		{bridge.Observation{What: bridge.ObserveDecode, Code: "empty"},
			`pages_fetched_total{kind="empty",stream="events"} 1`},
		{bridge.Observation{What: bridge.ObserveDecode, Code: "full"},
			`pages_fetched_total{kind="partial",stream="events"} 0`},
		{bridge.Observation{What: bridge.ObserveRetry, Code: "429", Took: 1500 * time.Millisecond},
			`source_throttled_seconds_total{stream="events"} 1.5`},
		{bridge.Observation{What: bridge.ObserveRetry, Code: "500", Took: time.Second},
			`source_throttled_seconds_total{stream="events"} 0`},
		{bridge.Observation{What: bridge.ObservePublish, Code: "not_enough_replicas"},
			`produce_errors_total{error="not_enough_replicas",stream="events"} 0`},
		{bridge.Observation{What: bridge.ObservePublish, Code: "ok"},
			`produce_errors_total{error="network",stream="events"} 0`},
		{bridge.Observation{What: bridge.ObserveRejected, Code: "kafka"},
			`fencing_rejections_total{layer="kafka",stream="events"} 1`},
		{bridge.Observation{What: bridge.ObserveOwner, Code: "owner"},
			`owner_transitions_total{stream="events",to="owner"} 1`},
		{bridge.Observation{What: bridge.ObserveCommit, Late: []time.Duration{time.Hour}},
			`late_event_seconds_sum{stream="events"} 3600`},
		{bridge.Observation{What: bridge.ObserveCommit, Receipt: bridge.Receipt{Dropped: 3}},
			`events_dropped_by_route_total{stream="events"} 3`},
		{bridge.Observation{What: bridge.ObserveCommit, AtBorder: 3}, `border_repeats_total{stream="events"} 3`},
		{bridge.Observation{What: bridge.ObserveCommit, Times: []int64{time.Now().UnixMilli() - 7000}},
			`event_end_to_end_latency_seconds_bucket{stream="events",le="5"} 0`},
		{bridge.Observation{What: bridge.ObserveCommit, Times: []int64{time.Now().UnixMilli() - 7000}},
			`event_end_to_end_latency_seconds_bucket{stream="events",le="10"} 1`},
		{bridge.Observation{What: bridge.ObserveCommit, Times: []int64{time.Now().Add(time.Hour).UnixMilli()}},
			`event_end_to_end_latency_seconds_bucket{stream="events",le="0.1"} 1`},
	} {
		m := newMetrics(bridge.Status{})
		tc.o.Stream = "events"
		m.Observe(tc.o)
		wantLines(t, m, tc.want)
	}
}

func TestWindows(t *testing.T) {
	t.Parallel()
	m := newMetrics(bridge.Status{})
	count := func() int { return strings.Count(exposed(m), "exportbridge_backfill_windows{") }
	if n := count(); n != 0 {
		t.Errorf("%d series before anything is known", n)
	}
	m.Windows("events", map[string]int{"interrupted": 3, "lost": 1})
	wantLines(t, m, `backfill_windows{state="interrupted",stream="events"} 3`,
		`backfill_windows{state="running",stream="events"} 0`)
	if n := count(); n != len(metrics.WindowStates) {
		t.Errorf("%d series, want %d", n, len(metrics.WindowStates))
	}
	m.Windows("events", nil)
	if n := count(); n != 0 {
		t.Errorf("%d series after nothing is known any more", n)
	}
}

// Label values that a server or a foreign source chooses cannot grow the number of series
// without bound.
func TestLabelValuesAreBounded(t *testing.T) {
	t.Parallel()
	m := newMetrics(bridge.Status{})
	for i := range 2000 {
		weird := fmt.Sprintf("weird-%d", i)
		for _, code := range []string{weird, strings.Repeat("x", i), "two words", "tab\t", "\xff", "", fmt.Sprint(i % 1000)} {
			for _, what := range []bridge.What{
				bridge.ObserveFetch, bridge.ObserveDecode, bridge.ObservePublish, bridge.ObserveTransaction,
				bridge.ObserveCheckpoint,
				bridge.ObserveRetry, bridge.ObserveReset, bridge.ObserveOwner, bridge.ObserveRejected, bridge.ObserveStuck,
				bridge.ObserveState, bridge.What(weird),
			} {
				m.Observe(bridge.Observation{Stream: "events", What: what, Code: code})
			}
			m.Observe(bridge.Observation{Stream: "events", What: bridge.ObserveCommit,
				Receipt: bridge.Receipt{DeadLettered: map[bridge.Defect]int{bridge.Defect(code): 1}}})
		}
	}
	families := must.Get(m.Gather())(t)
	for _, f := range families {
		if n := len(f.GetMetric()); n > 40 {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
	}
	body := exposed(m)
	for _, series := range []string{`source_requests_total{code="other",stream="events"}`,
		`source_requests_total{code="429",stream="events"}`} {
		if !strings.Contains(body, "exportbridge_"+series) {
			t.Errorf("metrics lack %s", series)
		}
	}
}

// A series that appears with its first increment hides that increment from
// rate and increase.
func TestSeriesExistFromTheStart(t *testing.T) {
	t.Parallel()
	m := newMetrics(bridge.Status{Stream: "events", Leader: true})
	m.CountLosses("events", func() int64 { return 0 })
	m.CountRefused("events", func() int64 { return 0 })
	before := count(t, m)
	for _, o := range observations() {
		m.Observe(o)
	}
	for what, codes := range map[bridge.What][]string{
		bridge.ObserveFetch: {"429", "timeout", "network", "decode", "503"}, bridge.ObserveRetry: {"429", "500", "network"},
		bridge.ObservePublish: {"network", "timeout", "error"}, bridge.ObserveTransaction: {"fenced", "unknown"},
		bridge.ObserveCheckpoint: {"error", "conflict"}, bridge.ObserveOwner: {"owner", "standby"},
		bridge.ObserveReset:    {"reset", "pause", "resume", "refused-cursor"},
		bridge.ObserveStuck:    {"cycle", "full-tail", bridge.StuckFullPage, bridge.StuckOlder, bridge.StuckBorder},
		bridge.ObserveRejected: {"kafka", "redis"},
	} {
		for _, code := range codes {
			m.Observe(bridge.Observation{Stream: "events", What: what, Code: code})
		}
	}
	slog.New(m.CountLogs(slog.DiscardHandler)).Error("nobody hears this")
	if after := count(t, m); after != before {
		t.Errorf("%d series at the start, %d later", before, after)
	}
}

func TestCountLogs(t *testing.T) {
	t.Parallel()
	m := newMetrics(bridge.Status{})
	var out bytes.Buffer
	log := slog.New(m.CountLogs(slog.NewTextHandler(&out, nil))).With("stream", "events").WithGroup("g")
	log.Debug("not logged, not counted")
	log.Info("one")
	log.Warn("two", "a", 1)
	log.Warn("three")
	log.Log(t.Context(), slog.LevelError+4, "above all levels")
	wantLines(t, m, `log_messages_total{level="debug"} 0`, `log_messages_total{level="info"} 1`,
		`log_messages_total{level="warn"} 2`, `log_messages_total{level="error"} 1`)
	if !strings.Contains(out.String(), "msg=two stream=events g.a=1\n") {
		t.Errorf("the log is\n%s", &out)
	}
}

func TestCountLosses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(bridge.Status{})
		bridge.Sleep(t.Context(), time.Nanosecond) // streams begin after the process
		m.CountLosses("events", func() int64 { return 2 })
		m.CountLosses("users", func() int64 { return 0 })
		m.CountRefused("events", func() int64 { return 3 })
		m.Throttled("events")(2 * time.Second)
		m.Observe(bridge.Observation{Stream: "events", What: bridge.ObserveTopic, Code: bridge.TopicLost})
		m.Observe(bridge.Observation{Stream: "events", What: bridge.ObserveTopic, Code: bridge.TopicGrew})
		// The first session finds most losses before the first scrape, and increase misses the value
		// that a series begins with.
		wantLines(t, m, `broker_data_losses_total{stream="events"} 0`, `checkpoints_refused_total{stream="events"} 0`)
		bridge.Sleep(t.Context(), time.Minute)
		want := []string{
			`broker_data_losses_total{stream="events"} 3`, `topic_partition_changes_total{stream="events"} 1`,
			`broker_data_losses_total{stream="users"} 0`, `checkpoints_refused_total{stream="events"} 3`,
			`source_throttled_seconds_total{stream="events"} 2`,
		}
		wantLines(t, m, want...)
		m.CountLosses("events", func() int64 { return 2 }) // the stream was restarted
		m.CountRefused("events", func() int64 { return 3 })
		wantLines(t, m, want...) // a fall to 0 would count them again
	})
}

func TestStatus(t *testing.T) { synctest.Test(t, showsStatus) }

func showsStatus(t *testing.T) {
	m := newMetrics(bridge.Status{
		Stream: "events", Leader: true, State: bridge.StateBlocked, Reason: bridge.ReasonAuth, Version: bridge.Version{Epoch: 3},
		Position: time.UnixMilli(1_700_000_000_500), Dependencies: map[string]bridge.Dependency{"kafka": {Up: true}},
	})
	m.Observe(bridge.Observation{Stream: "events", What: bridge.ObserveFetch, Code: "429", Took: time.Second})
	for _, code := range []string{"cycle", bridge.StuckFullPage} {
		m.Observe(bridge.Observation{Stream: "events", What: bridge.ObserveStuck, Code: code})
	}
	m.Observe(bridge.Observation{
		Stream: "events", What: bridge.ObserveCommit, Pages: 2, Events: 7, Vanished: 1, Unaccounted: 3,
		Receipt: bridge.Receipt{Bytes: 70, Mismatched: 2, DeadLettered: map[bridge.Defect]int{bridge.DefectTooLarge: 1}},
	})
	bridge.Sleep(t.Context(), time.Minute) // alarming counters are 0 before
	wantLines(t, m,
		`source_requests_total{code="429",stream="events"} 1`,
		`source_requests_total{code="200",stream="events"} 0`,
		`events_published_total{stream="events"} 7`,
		`pages_committed_total{stream="events"} 2`,
		`events_dead_lettered_total{reason="too-large",stream="events"} 1`,
		`events_schema_mismatched_total{stream="events"} 2`,
		`events_unaccounted_total{reason="unaccounted",stream="events"} 3`,
		`cursor_no_progress_total{kind="cycle",stream="events"} 1`,
		`cursor_no_progress_total{kind="full_page_without_next",stream="events"} 1`,
		`tail_items_changed_total{change="vanished",stream="events"} 1`,
		`state{state="blocked",stream="events"} 1`,
		`state{state="idle",stream="events"} 0`,
		`stream_blocked{reason="auth",stream="events"} 1`,
		`epoch{stream="events"} 3`,
		`dependency_up{dependency="kafka",stream="events"} 1`,
		`source_position_timestamp_seconds{stream="events"} 1.7000000005e+09`,
		`stream_owned{stream="events"} 1`)
}

// A position that is unknown though events have passed is absent, and so is that of a standby:
// an alert on its age would never end. That of a stream which has no events yet is 0.
func TestPosition(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status bridge.Status
		shown  bool
	}{
		{bridge.Status{Leader: true, State: bridge.StateRunning}, true},
		{bridge.Status{Leader: true, State: bridge.StateRunning, Events: 7}, false},
		{bridge.Status{State: bridge.StateStandby}, false},
	} {
		tc.status.Stream = "events"
		m, owned := newMetrics(tc.status), 0
		if got := strings.Contains(exposed(m), `source_position_timestamp_seconds{stream="events"} 0`); got != tc.shown {
			t.Errorf("%+v: a position of 0 is shown: %t, want %t", tc.status, got, tc.shown)
		}
		if tc.status.Leader {
			owned = 1
		} else if strings.Contains(exposed(m), "_timestamp_seconds{") {
			t.Error("a standby has a time")
		}
		wantLines(t, m, fmt.Sprintf(`stream_owned{stream="events"} %d`, owned))
	}
}

// A stream that has ended needs no owner. One that stopped for another reason does.
func TestEnded(t *testing.T) {
	t.Parallel()
	for ended, shown := range map[string]bool{"the window ended": true, "": false} {
		m := newMetrics(bridge.Status{Stream: "events", State: bridge.StateStopped, Ended: ended})
		if got := strings.Contains(exposed(m), `stream_ended{stream="events"} 1`); got != shown {
			t.Errorf("ended %q: stream_ended is shown: %t, want %t", ended, got, shown)
		}
	}
}

func newMetrics(status bridge.Status) *metrics.Metrics {
	return metrics.New(metrics.Build{Version: "1"}, metrics.DetailAuto, []string{"events"},
		func() []bridge.Status { return []bridge.Status{status} })
}

// count is the number of series.
func count(t *testing.T, m *metrics.Metrics) int {
	t.Helper()
	n := must.Get(testutil.GatherAndCount(m))(t)
	return n
}

// exposed is the text of a scrape.
func exposed(m *metrics.Metrics) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(m, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// wantLines checks that a scrape follows the rules of Prometheus and has the lines, which are
// without the prefix of their metrics.
func wantLines(t *testing.T, m *metrics.Metrics, lines ...string) {
	t.Helper()
	if problems, err := testutil.GatherAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	body := exposed(m)
	for _, line := range lines {
		if !strings.Contains(body, "exportbridge_"+line+"\n") {
			t.Errorf("metrics lack %s", line)
		}
	}
}

// TestStreamsComeAndGo: a removed stream has no series, and another one all of its own
// from the start.
func TestStreamsComeAndGo(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Build{}, metrics.DetailAuto, []string{"events"}, func() []bridge.Status { return nil })
	of := func(stream string) (n int) {
		families := must.Get(m.Gather())(t)
		for _, f := range families {
			for _, series := range f.GetMetric() {
				for _, label := range series.GetLabel() {
					if label.GetName() == "stream" && label.GetValue() == stream {
						n++
					}
				}
			}
		}
		return n
	}
	use := func(stream string) {
		m.CountLosses(stream, func() int64 { return 1 })
		m.CountRefused(stream, func() int64 { return 1 })
		m.Unsafe(stream, "EXPORT_INSECURE_HTTP")
		m.Windows(stream, map[string]int{"done": 1})
		m.Observe(bridge.Observation{Stream: stream, What: bridge.ObserveRetry, Code: "strange"})
	}
	use("events")
	m.AddStream("users")
	use("users")
	if of("users") != of("events") || of("users") < 50 {
		t.Errorf("%d series of an added stream, %d of the first one", of("users"), of("events"))
	}
	m.RemoveStream("users")
	m.Windows("users", map[string]int{"done": 1}) // an answer that comes late
	if n := of("users"); n > 0 {
		t.Errorf("%d series of a removed stream", n)
	}
	m.AddStream("users")
	use("users")
	if of("users") != of("events") {
		t.Errorf("%d series of a stream that is back, %d of the first one", of("users"), of("events"))
	}
}
