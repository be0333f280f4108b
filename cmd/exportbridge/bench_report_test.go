package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// measured makes a measurement of 100 requests.
func measured(round int, latencyMS, fetch, pipeline float64) measurement {
	return measurement{
		Round: round, LatencyMS: latencyMS,
		Fetch:    stretch{Seconds: fetch, Requests: 100, Use: processUse{CPUSeconds: fetch / 10, PeakRSS: 10 << 20}},
		Pipeline: stretch{Seconds: pipeline, Requests: 100, Use: processUse{CPUSeconds: pipeline / 5, PeakRSS: int64(round) * 20 << 20}},
	}
}

func exampleReport() *benchReport {
	r := &benchReport{
		Version: "v1.2.3", Go: "go1.26", Platform: "linux/amd64", Cores: 2, LoadBefore: 0.5, LoadAfter: 2.25,
		Kafka: "embedded", Redis: "embedded", Pages: 99, Rounds: 3,
	}
	r.summarise([]measurement{
		measured(1, 20, 2.0, 2.5), measured(1, 1.5, 0.2, 0.4),
		// A slow round: both take three times as long, and the ratio stays.
		measured(2, 20, 6.0, 6.25), measured(2, 1.5, 0.2, 0.25),
		measured(3, 20, 2.5, 2.5), measured(3, 1.5, 0.2, 0.2),
	}, []processUse{{Name: "kafka", CPUSeconds: 1.5}})
	return r
}

func TestBenchReportPrints(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := exampleReport().print(&out); err != nil {
		t.Fatal(err)
	}
	want := `exportbridge v1.2.3, go1.26, linux/amd64, 2 cores, load average 0.50 before, 2.25 after
Kafka embedded, Redis embedded, 3 rounds of 99 pages with 1000 events

ROW                  VALUE  LOW    HIGH   GOAL   VERDICT
fetch_only_20        0.800  0.333  1.000  -      -
serial_fraction_20   0.960  0.800  1.000  0.985  short
fetch_only_1.5       0.750  0.750  0.750  -      -
serial_fraction_1.5  0.800  0.500  1.000  -      -

PROCESS           CPU    PEAK RSS
fetch only 20ms   0.25s  10 MiB
pipeline 20ms     0.50s  40 MiB
fetch only 1.5ms  0.02s  10 MiB
pipeline 1.5ms    0.05s  40 MiB
kafka             1.50s  -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestBenchReportJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := printJSON(&out, exampleReport()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Cores     int              `json:"cores"`
		Rows      []map[string]any `json:"rows"`
		Processes []map[string]any `json:"processes"`
		Rounds    []map[string]any `json:"measurements"`
		Warnings  []string         `json:"warnings"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{
		"name": "serial_fraction_20", "value": 0.96, "low": 0.8, "high": 1.0, "goal": 0.985, "verdict": "short",
	}, got.Rows[1]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"name": "serial_fraction_1.5", "value": 0.8, "low": 0.5, "high": 1.0}, got.Rows[3]); diff != "" {
		t.Error(diff)
	}
	if len(got.Rows) != 4 || len(got.Processes) != 5 || len(got.Rounds) != 6 {
		t.Errorf("%d rows, %d processes, %d measurements", len(got.Rows), len(got.Processes), len(got.Rounds))
	}
	if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], "load average 2.2 on 2 cores") {
		t.Errorf("warnings %q", got.Warnings)
	}
}

func TestBenchVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		latency, fetch float64
		want           verdict
	}{
		{5, 0.93, verdictMet}, {5, 0.9299, verdictShort},
		{20, 0.985, verdictMet}, {20, 0.9849, verdictShort},
		{50, 0.995, verdictMet}, {50, 0.9949, verdictShort},
		{10, 0.1, verdictNone},
	} {
		r := &benchReport{Cores: 2, LoadBefore: 2}
		r.summarise([]measurement{measured(1, c.latency, c.fetch, 1)}, nil)
		if got := r.Rows[1].Verdict; got != c.want {
			t.Errorf("ratio %v at %v ms: %q, want %q", c.fetch, c.latency, got, c.want)
		}
		if len(r.Warnings) > 0 {
			t.Errorf("warnings %q although there are as many cores as load", r.Warnings)
		}
	}
}

func TestRatioRoundsDown(t *testing.T) {
	t.Parallel()
	if got := ratio(0.98499); got != "0.984" {
		t.Errorf("0.98499 is shown as %s", got)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {[]float64{8, 1, 4, 2}, 3},
	} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}
