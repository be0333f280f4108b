package metrics_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/ops/metrics"
)

// fleet returns the metrics of n streams that have published, and are caught up.
func fleet(detail metrics.Detail, n int) *metrics.Metrics {
	names, statuses := make([]string, n), make([]bridge.Status, n)
	for i := range n {
		names[i] = fmt.Sprintf("s%d", i)
		statuses[i] = bridge.Status{
			Stream: names[i], Leader: true, State: bridge.StateIdle, CaughtUp: true, Position: time.Now(), PrefetchedBytes: 10,
			Dependencies: map[string]bridge.Dependency{
				bridge.DependencySource: {Up: true}, bridge.DependencySink: {Up: true}, bridge.DependencyStore: {Up: true},
			},
		}
	}
	m := metrics.New(metrics.Build{Version: "1"}, detail, names, func() []bridge.Status { return statuses })
	for _, name := range names {
		m.CountLosses(name, func() int64 { return 0 })
		m.CountRefused(name, func() int64 { return 0 })
		m.Throttled(name)
		m.Windows(name, map[string]int{})
		m.Observe(bridge.Observation{Stream: name, What: bridge.ObserveOwner, Code: "owner"})
		for _, o := range observations() {
			o.Stream = name
			m.Observe(o)
		}
	}
	return m
}

// TestDetail: up to ten streams have every series by default; of more, each has about 20.
func TestDetail(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		detail      metrics.Detail
		streams     int
		least, most int // series that one stream more has
	}{
		{metrics.DetailAuto, 10, 250, 275},
		{metrics.DetailAuto, 11, 15, 22},
		{metrics.DetailStream, 11, 250, 275},
		{metrics.DetailProcess, 1, 15, 22},
	} {
		each := series(fleet(tc.detail, tc.streams)) - series(fleet(forced(tc.detail, tc.streams), tc.streams-1))
		if each < tc.least || each > tc.most {
			t.Errorf("%s: stream %d has %d series, want %d to %d", tc.detail, tc.streams, each, tc.least, tc.most)
		}
	}
}

// forced is the detail that auto stands for.
func forced(detail metrics.Detail, streams int) metrics.Detail {
	switch {
	case detail != metrics.DetailAuto:
		return detail
	case streams <= 10:
		return metrics.DetailStream
	}
	return metrics.DetailProcess
}

// series counts the series of a scrape, including each bucket of a histogram.
func series(m *metrics.Metrics) int { return strings.Count(exposed(m), "\nexportbridge_") }

// TestDetailProcess: a series of all streams together is their sum; a rare event has no series
// before it happens.
func TestDetailProcess(t *testing.T) {
	t.Parallel()
	m := fleet(metrics.DetailProcess, 20)
	wantLines(t, m,
		`source_request_duration_seconds_count{stream=""} 20`,
		`stage_duration_seconds_count{stage="fetch",stream=""} 20`,
		`event_end_to_end_latency_seconds_count{stream=""} 160`,
		`pages_committed_total{stream=""} 20`,
		`source_retries_total{reason="429",stream=""} 0`,
		`prefetched_bytes{stream=""} 200`,
		`events_published_total{stream="s7"} 1000`,
		`source_requests_total{code="200",stream="s7"} 1`,
		`events_unaccounted_total{reason="unaccounted",stream="s7"} 0`,
		`broker_data_losses_total{stream="s7"} 0`,
		`state{state="idle",stream="s7"} 1`,
		`dependency_up{dependency="redis",stream="s7"} 1`)
	body := exposed(m)
	for _, series := range []string{
		`_count{stream="s`, `state{state="blocked"`, `code="429"`, "events_dead_lettered_total{", "backfill_windows{",
		"throttled_seconds_total{", "border_repeats_total{",
	} {
		if strings.Contains(body, series) {
			t.Errorf("metrics have series %s", series)
		}
	}
	m.Windows("s7", map[string]int{"interrupted": 2, "done": 1})
	wantLines(t, m, `backfill_windows{state="interrupted",stream="s7"} 2`)
	if n := strings.Count(exposed(m), "exportbridge_backfill_windows{"); n != 2 {
		t.Errorf("%d windows, want 2", n)
	}
}

// TestNewSeriesIsZero: increase misses the value that a series begins with.
func TestNewSeriesIsZero(t *testing.T) {
	t.Parallel()
	for _, detail := range []metrics.Detail{metrics.DetailStream, metrics.DetailProcess} {
		synctest.Test(t, func(t *testing.T) {
			m := fleet(detail, 1)
			bridge.Sleep(t.Context(), time.Hour)
			m.Observe(bridge.Observation{
				Stream: "s0", What: bridge.ObserveCommit, Events: 2,
				Receipt: bridge.Receipt{DeadLettered: map[bridge.Defect]int{"unforeseen": 3}},
			})
			shows := func(n int) bool {
				return strings.Contains(exposed(m), fmt.Sprintf("dead_lettered_total{reason=\"unforeseen\",stream=\"s0\"} %d\n", n))
			}
			if !shows(0) {
				t.Errorf("%s: a new series does not begin with 0", detail)
			}
			if !strings.Contains(exposed(m), `events_published_total{stream="s0"} 1002`) {
				t.Errorf("%s: a series of the start is not up to date", detail)
			}
			bridge.Sleep(t.Context(), time.Minute)
			if !shows(3) {
				t.Errorf("%s: a new series does not show its value after a minute", detail)
			}
		})
	}
}

// BenchmarkScrape is a scrape of 1,000 quiet streams.
func BenchmarkScrape(b *testing.B) {
	m := fleet(metrics.DetailAuto, 1000)
	b.ReportAllocs()
	bytes := 0
	for b.Loop() {
		bytes = len(exposed(m))
	}
	b.ReportMetric(float64(bytes), "B/scrape")
}
