package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/cli"
)

func exampleReport(t *testing.T) *report {
	r := &report{
		Version: "v1.2.3", Go: "go1.26", Platform: "linux/amd64", Cores: 2,
		Date:   time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
		Others: 0.13, Kafka: "k:9092", Redis: "r:6379", Brokers: 3, Pages: 99, Rounds: 3,
	}
	serial, eos := rowNamed(t, "serial_fraction_20"), rowNamed(t, "eos_overhead_20")
	rss, allocs, age := rowNamed(t, "rss_latency_bound"), rowNamed(t, "allocs_per_event"),
		rowNamed(t, "tail_freshness_p99")
	var measured []map[cell]measurement
	for _, slower := range []float64{1, 3, 1} { // a slow round: all takes three times as long, and the ratios stay
		measured = append(measured, map[cell]measurement{
			serial.cells[0]: {Cell: "a", Seconds: 2 * slower, Requests: 80},
			serial.cells[1]: {Cell: "b", Seconds: 2.5 * slower, PeakRSS: 39_950_001},
			eos.cells[1]:    {Cell: "c", Seconds: 2.45 * slower},
			allocs.cells[0]: {Cell: "d", Events: 1000, Mallocs: 200},
			allocs.cells[1]: {Cell: "e", Events: 100, Mallocs: 100},
			age.cells[0]:    {Cell: "f", AgeP99: 112.01},
		})
	}
	r.summarize([]row{serial, eos, allocs, rss, age}, measured)
	return r
}

func TestBenchReportPrints(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	must.Do(t, exampleReport(t).print(&out))
	want := `exportbridge v1.2.3, go1.26, linux/amd64, 2 cores, 2026-11-01T12:00:00Z
Kafka k:9092 (3 brokers), Redis r:6379
3 rounds, 99 pages of 1000 events, others took 0.13 cores

ROW                   VALUE     LOW       HIGH      GOAL       VERDICT
serial_fraction_20    0.800     0.800     0.800     >= 0.99    short
eos_overhead_20       2.1%      2.1%      2.1%      <= 2%      short
allocs_per_event      0.112     0.112     0.112     <= 0.09    short
rss_latency_bound *   40.0 MB   40.0 MB   40.0 MB   <= 40 MB   met
tail_freshness_p99 *  112.1 ms  112.1 ms  112.1 ms  <= 112 ms  short

* specific to this machine. Definitions: exportbridge-dev bench --list
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestBenchReportJSON(t *testing.T) {
	t.Parallel()
	report := exampleReport(t)
	var out bytes.Buffer
	must.Do(t, cli.PrintJSON(&out, report))
	var got struct {
		Rows   []map[string]any `json:"rows"`
		Rounds []map[string]any `json:"measurements"`
	}
	must.Do(t, json.Unmarshal(out.Bytes(), &got))
	if diff := cmp.Diff(map[string]any{
		"name": "serial_fraction_20", "about": "time of a loop that only fetches / of the bridge, API latency 20 ms",
		"unit": "ratio", "value": 0.8, "low": 0.8, "high": 0.8, "direction": "at least", "goal": 0.99, "verdict": "short",
	}, got.Rows[0]); diff != "" {
		t.Error(diff)
	}
	if got.Rows[3]["absolute"] != true {
		t.Errorf("row %v", got.Rows[3])
	}
	if len(got.Rows) != 5 || len(got.Rounds) != 3*6 {
		t.Errorf("%d rows, %d measurements", len(got.Rows), len(got.Rounds))
	}
	if len(report.Warnings) > 0 || report.Busy {
		t.Errorf("warnings %q", report.Warnings)
	}
}

// A warning names the requirement of a row that cannot be measured.
func TestRowsThatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	for name, needs := range map[string]string{
		"broker_cpu_per_million_20": "it needs Linux, and brokers run by this user on this machine",
		"rss_flat":                  "it needs Linux",
		"rss_flat_out":              "it needs Linux",
		"rss_latency_bound":         "it needs Linux",
	} {
		r := new(report)
		r.summarize([]row{rowNamed(t, name)}, []map[cell]measurement{{}})
		if len(r.Rows) > 0 || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], name) ||
			!strings.HasSuffix(r.Warnings[0], needs) {
			t.Errorf("%+v, %q", r.Rows, r.Warnings)
		}
	}
}

func TestBusyMachine(t *testing.T) {
	t.Parallel()
	for others, busy := range map[float64]bool{othersLimit: false, othersLimit + 0.1: true} {
		serial := rowNamed(t, "serial_fraction_20")
		r := &report{Cores: 2, Others: others}
		r.summarize([]row{serial}, rounds(serial, 1))
		said := strings.Join(r.Warnings, "\n")
		if r.Busy != busy || (r.Rows[0].Verdict == verdictBusy) != busy ||
			busy != strings.Contains(said, "took 0.3 of 2 cores") {
			t.Errorf("others %v: %+v %q", others, r.Rows[0], said)
		}
	}
}

func TestValuesAreRoundedToTheirBadSide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row   result
		value float64
		want  string
	}{
		{result{Unit: unitRatio, Direction: atLeast}, 0.98499, "0.984"},
		{result{Unit: unitRatio}, 0.98499, "0.984"},
		{result{Unit: unitRatio, Direction: atMost}, 1.1001, "1.101"},
		{result{Unit: unitRatio, Direction: atLeast}, 0.985, "0.985"},
		{result{Unit: unitPercent, Direction: atMost}, 0.0201, "2.1%"},
		{result{Unit: unitPercent, Direction: atMost}, 0.02, "2.0%"},
		{result{Unit: unitPercent, Direction: atMost}, -0.0151, "-1.5%"},
		{result{Unit: unitPercent, Direction: atMost}, -0.0001, "0.0%"},
		{result{Unit: unitTimes, Direction: atLeast}, 4.499, "4.49x"},
		{result{Unit: unitBytes, Direction: atMost}, 40_000_001, "40.1 MB"},
		{result{Unit: unitSeconds, Direction: atMost}, 2.999, "3.00 s"},
		{result{Unit: unitMillis, Direction: atMost}, 115, "115.0 ms"},
		{result{Unit: unitCount, Direction: atMost}, 0, "0.000"},
		{result{Unit: unitPerMillion, Direction: atMost}, 120.2, "121"},
	} {
		if got := c.row.text(c.value); got != c.want {
			t.Errorf("%v as %s, %s, is shown as %s, want %s", c.value, c.row.Unit, c.row.Direction, got, c.want)
		}
	}
}

func TestOthersOnTheMachine(t *testing.T) {
	t.Parallel()
	at := time.Now()
	from := cpuReading{at: at, busy: 100, own: 10}
	for _, c := range []struct{ busy, own, want float64 }{{106, 12, 2}, {102, 12, 0}, {101, 12, 0}} {
		if got := (cpuReading{at.Add(2 * time.Second), c.busy, c.own}).othersSince(from); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	now := readCPU()
	l := &loadWatch{start: cpuReading{now.at.Add(-time.Second), now.busy - 5, now.own}, most: 1.5}
	if got := l.others(false); got != 1.5 {
		t.Errorf("beside foreign servers others took %v, want what the pauses saw", got)
	}
	if got := l.others(true); got < 2 {
		t.Errorf("others took %v, want some 5", got)
	}
	l.start = now
	if got := l.others(true); got < 1.5 {
		t.Errorf("others took %v, less than in a pause", got)
	}
}
