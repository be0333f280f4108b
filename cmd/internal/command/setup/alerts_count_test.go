package setup

import (
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops/metrics"
)

// TestFirstCountRaisesAlert: increase misses the value that a series begins with. A counter whose
// first count raises an alert is 0 at first, also if its stream counted before the first scrape.
func TestFirstCountRaisesAlert(t *testing.T) {
	t.Parallel()
	text := mustAlertRules(t)
	once := regexp.MustCompile(`increase\((exportbridge_\w+)(?:\{(\w+)="([^"]*)"\})?\[\w+\]\)\) > 0\n`)
	rules := once.FindAllStringSubmatch(text, -1)
	if n := len(regexp.MustCompile(`\b(increase|rate|irate)\(.*> 0\n`).FindAllString(text, -1)); len(rules) != n || n == 0 {
		t.Fatalf("%d of %d rules are understood", len(rules), n)
	}
	for _, detail := range []metrics.Detail{metrics.DetailStream, metrics.DetailProcess} {
		synctest.Test(t, func(t *testing.T) {
			m := metrics.New(metrics.Build{}, detail, []string{"events"}, func() []bridge.Status { return nil })
			countAll(m)
			first := must.Get(m.Gather())(t)
			bridge.Sleep(t.Context(), time.Minute)
			later := must.Get(m.Gather())(t)
			for _, rule := range rules {
				metric, label, value := rule[1], rule[2], rule[3]
				if series, n := counted(first, metric, label, value); series == 0 || n != 0 {
					t.Errorf("%s: %d series of %s%s begin with %v", detail, series, metric, value, n)
				}
				if _, n := counted(later, metric, label, value); n == 0 {
					t.Errorf("%s: %s%s counted nothing: add it to countAll", detail, metric, value)
				}
			}
		})
	}
}

// countAll counts what may raise an alert at once.
func countAll(m *metrics.Metrics) {
	m.CountLosses("events", func() int64 { return 1 })
	m.CountRefused("events", func() int64 { return 1 })
	for _, code := range []string{"cycle", "full-tail", bridge.StuckFullPage, bridge.StuckOlder, bridge.StuckBorder} {
		m.Observe(bridge.Observation{Stream: "events", What: bridge.ObserveStuck, Code: code})
	}
	m.Observe(bridge.Observation{Stream: "events", What: bridge.ObserveCommit, Unaccounted: 1, Receipt: bridge.Receipt{
		Mismatched: 1, DeadLettered: map[bridge.Defect]int{bridge.DefectTooLarge: 1, bridge.DefectPrivate: 1, "unforeseen": 1},
	}})
}

// counted returns the number and the sum of a metric's series, of those with the label unless it is
// empty.
func counted(families []*dto.MetricFamily, metric, label, value string) (series int, sum float64) {
	has := func(l *dto.LabelPair) bool { return l.GetName() == label && l.GetValue() == value }
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if f.GetName() == metric && (label == "" || slices.ContainsFunc(s.GetLabel(), has)) {
				series, sum = series+1, sum+s.GetCounter().GetValue()
			}
		}
	}
	return series, sum
}
