package bench

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/cli"
)

func testPlanner() *planner {
	return &planner{pages: 100, brokers: 1}
}

func names(rows []row) []string {
	var all []string
	for _, r := range rows {
		all = append(all, r.name)
	}
	return all
}

// rowNamed returns a row of the table.
func rowNamed(t *testing.T, name string) row {
	t.Helper()
	for _, r := range testPlanner().rows() {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("no row %s", name)
	return row{}
}

func TestRowsAreComplete(t *testing.T) {
	t.Parallel()
	for _, r := range testPlanner().rows() {
		if r.about == "" || len(r.cells) == 0 || r.value == nil || r.unit == "" {
			t.Errorf("row %+v is not complete", r)
		}
	}
	cluster := testPlanner()
	cluster.brokers = 3
	for _, r := range cluster.freshnessRows() {
		if r.goal != 150 {
			t.Errorf("%s on three brokers: goal %v, want 150", r.name, r.goal)
		}
	}
}

func TestBenchValues(t *testing.T) {
	t.Parallel()
	wall := func(seconds ...float64) []measurement {
		var all []measurement
		for _, s := range seconds {
			all = append(all, measurement{Seconds: s, Events: 1000, Requests: 101})
		}
		return all
	}
	for name, c := range map[string]struct {
		of   []measurement
		want float64
	}{
		"serial_fraction_20":             {wall(2, 2.5), 0.8},
		"ideal_fraction_50":              {wall(10.1), 0.5},
		"serial_fraction_20_slow_commit": {wall(2, 4), 0.5},
		"raw_fraction_zstd":              {[]measurement{{Seconds: 2, Events: 300}, {Seconds: 1, Events: 200}}, 0.75},
		"eos_overhead_20":                {wall(2.1, 2), 0.05},
		"eos_overhead_0":                 {wall(1.8, 2), -0.1},
		"commit_overhead":                {wall(3, 2), 0.5},
		"commit_overhead_far":            {wall(3, 2), 0.5},
		"metrics_overhead":               {wall(3, 2), 0.5},
		"naive_speedup_5":                {wall(9, 2), 4.5},
		"seq_speedup_20":                 {wall(3, 2), 1.5},
		"fleet_scaling_3":                {wall(6, 2), 3},
		"allocs_per_event": {[]measurement{{Mallocs: 90_100, Events: 1000}, {Mallocs: 90_010, Events: 100}},
			0.1},
		"cpu_ratio":                   {[]measurement{{CPUSeconds: 3, Events: 300}, {CPUSeconds: 1, Events: 200}}, 2},
		"cpu_per_million":             {[]measurement{{CPUSeconds: 3, Events: 300_000}}, 10},
		"routes_overhead":             {[]measurement{{CPUSeconds: 3, Events: 300}, {CPUSeconds: 1, Events: 200}}, 1},
		"private_overhead":            {[]measurement{{CPUSeconds: 3, Events: 300}, {CPUSeconds: 1, Events: 200}}, 1},
		"raw_fraction_exactly_once":   {[]measurement{{Seconds: 2, Events: 300}, {Seconds: 1, Events: 200}}, 0.75},
		"transactions_per_million_20": {[]measurement{{Transactions: 40}}, 100},
		"bridge_cpu_per_million_0":    {[]measurement{{CPUSeconds: 3, Events: 1_000_000}}, 3},
		"broker_cpu_per_million_20":   {[]measurement{{BrokerCPUSeconds: 4}}, 10},
		"refetch_after_kill_p99":      {[]measurement{{RefetchedP99: 200}}, 200},
		"rss_latency_bound":           {[]measurement{{PeakRSS: 5}}, 5},
		"rss_flat":                    {[]measurement{{PeakRSS: 6}, {PeakRSS: 5}}, 1.2},
		"tail_freshness_p99":          {[]measurement{{AgeP99: 5}}, 5},
		"gzip_gain_100mbit_20":        {wall(6, 2), 3},
	} {
		r := rowNamed(t, name)
		if got := r.value(c.of); math.Abs(got-c.want) > 1e-9 || len(c.of) != len(r.cells) {
			t.Errorf("%s of %d cells is %v, want %v", name, len(r.cells), got, c.want)
		}
	}
}

// The cells are what the names of the rows say.
func TestBenchCells(t *testing.T) {
	t.Parallel()
	slow := rowNamed(t, "serial_fraction_20_slow_commit").cells[1]
	if slow.kafka != pathSlowCommit || slow.api.Latency != 20*time.Millisecond || slow.mode != bridge.ExactlyOnce {
		t.Errorf("%+v", slow)
	}
	for _, codec := range []string{"none", "snappy", "lz4", "zstd"} {
		pipeline, memory := rowNamed(t, "raw_fraction_"+codec).cells[0], rowNamed(t, "raw_fraction_"+codec).cells[1]
		if pipeline.mode != bridge.AtLeastOnce || pipeline.codec != codec || memory.codec != codec ||
			memory.work != workMemory || pipeline.pages != memory.pages {
			t.Errorf("%+v %+v", pipeline, memory)
		}
	}
	for _, name := range []string{"eos_overhead_20", "eos_overhead_0"} {
		once, least := rowNamed(t, name).cells[0], rowNamed(t, name).cells[1]
		if once.mode != bridge.ExactlyOnce || least.mode != bridge.AtLeastOnce {
			t.Errorf("%+v %+v", once, least)
		}
		if once.mode = least.mode; once != least {
			t.Errorf("%+v %+v differ in more than the delivery", once, least)
		}
	}
	for name, isFar := range map[string]bool{"commit_overhead": false, "commit_overhead_far": true} {
		on, off := rowNamed(t, name).cells[0], rowNamed(t, name).cells[1]
		if on.without.Store || !off.without.Store || on.redisFar != isFar || off.redisFar {
			t.Errorf("%+v %+v", on, off)
		}
	}
	with, without := rowNamed(t, "metrics_overhead").cells[0], rowNamed(t, "metrics_overhead").cells[1]
	if with.without.Observer || !without.without.Observer {
		t.Errorf("%+v %+v", with, without)
	}
	if without.without.Observer = false; with != without {
		t.Errorf("%+v %+v differ in more than the metrics", with, without)
	}
	for _, name := range []string{"naive_speedup_5", "naive_speedup_20", "seq_speedup_5", "seq_speedup_20"} {
		for _, c := range rowNamed(t, name).cells {
			if c.kafka != pathFar {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
	long, short := rowNamed(t, "rss_flat").cells[0], rowNamed(t, "rss_flat").cells[1]
	if long.pages != 10*short.pages {
		t.Errorf("%+v %+v", long, short)
	}
	for name, latencies := range map[string][]int{"transactions": {20}, "bridge_cpu": {0, 5, 20},
		"broker_cpu": {0, 5, 20}} {
		for _, latency := range latencies {
			c := rowNamed(t, fmt.Sprintf("%s_per_million_%d", name, latency)).cells[0]
			if c != testPlanner().catchUp(latency) || c.api != ms(latency) || c.mode != bridge.ExactlyOnce ||
				c.codec != "" || c.without != (omitted{}) {
				t.Errorf("%s, %d ms: %+v", name, latency, c)
			}
		}
	}
	plain, zipped := rowNamed(t, "gzip_gain_100mbit_20").cells[0], rowNamed(t, "gzip_gain_100mbit_20").cells[1]
	if plain.api.Gzip || !zipped.api.Gzip || plain.api.Mbit != 100 || plain.api.Latency != 20*time.Millisecond {
		t.Errorf("%+v %+v", plain, zipped)
	}
	if zipped.api.Gzip = false; plain != zipped {
		t.Errorf("%+v %+v differ in more than the compression", plain, zipped)
	}
}

func TestCellsAreSharedAndNamed(t *testing.T) {
	t.Parallel()
	p := testPlanner()
	cells := cellsOf(p.rows())
	seen := make(map[string]bool)
	wanted := 0
	for _, r := range p.rows() {
		wanted += len(r.cells)
		for _, c := range r.cells {
			if !slices.Contains(cells, c) {
				t.Errorf("%s: cell %s is not run", r.name, c)
			}
		}
	}
	for i, c := range cells {
		if seen[c.String()] {
			t.Errorf("two cells are called %s", c)
		}
		seen[c.String()] = true
		if i > 0 && c.api.Latency < cells[i-1].api.Latency {
			t.Errorf("%s comes after %s: what is compared should run close in time", c, cells[i-1])
		}
	}
	if len(cells) >= wanted*2/3 {
		t.Errorf("%d cells for %d places in rows: too few are shared", len(cells), wanted)
	}
	if c := p.bridge(20).warmUp(); c.pages != 10 {
		t.Errorf("the warm-up has %d pages", c.pages)
	}
	if c := (cell{pages: 5}).warmUp(); c.pages != 1 {
		t.Errorf("the warm-up has %d pages", c.pages)
	}
}

// The longest run may take as long as its pages need on a slow machine.
func TestLimitOfARun(t *testing.T) {
	t.Parallel()
	for _, c := range cellsOf((&planner{pages: 10_000}).rows()) {
		if c.limit() < time.Duration(c.pages)*20*time.Millisecond {
			t.Errorf("%s may take %s", c, c.limit())
		}
	}
}

func TestChooseRows(t *testing.T) {
	t.Parallel()
	all := testPlanner().rows()
	for _, c := range []struct {
		ask   []string
		quick bool
		want  []string
	}{
		{[]string{"seq_speedup_5", "raw_fraction"}, false, []string{"raw_fraction_none", "raw_fraction_snappy",
			"raw_fraction_lz4", "raw_fraction_zstd", "raw_fraction_exactly_once", "seq_speedup_5"}},
		{[]string{"raw_fraction_zstd", "raw_fraction_z"}, false, []string{"raw_fraction_zstd"}},
		{[]string{"serial_fraction_20"}, true, []string{"serial_fraction_20"}},
		{[]string{"serial_fraction_20_"}, true, []string{"serial_fraction_20_slow_commit"}},
		{nil, false, names(all)},
	} {
		got, err := choose(all, c.ask, c.quick)
		if diff := cmp.Diff(c.want, names(got)); diff != "" || err != nil {
			t.Errorf("%q: %v %s", c.ask, err, diff)
		}
	}
	quick, err := choose(all, nil, true)
	if err != nil || len(quick) == 0 || len(quick) >= len(all)*2/3 {
		t.Errorf("quick has %d of %d rows, %v", len(quick), len(all), err)
	}
	for _, unknown := range []string{"cooked", "fraction"} {
		_, err = choose(all, []string{"raw", unknown}, false)
		if exit, ok := errors.AsType[*cli.Error](err); !ok || exit.Code != cli.ExitUsage ||
			exit.Hint != "exportbridge-dev bench --list" {
			t.Errorf("an unknown row: %v", err)
		}
	}
}

// rounds makes one round of two cells for each ratio.
func rounds(r row, ratios ...float64) []map[cell]measurement {
	var all []map[cell]measurement
	for i, ratio := range ratios {
		// The rounds differ in speed: only the ratio counts.
		base := float64(int(1) << i)
		all = append(all, map[cell]measurement{r.cells[0]: {Seconds: base * ratio, Events: 1},
			r.cells[1]: {Seconds: base, Events: 1}})
	}
	return all
}

func TestRowResult(t *testing.T) {
	t.Parallel()
	serial, speed, eos := rowNamed(t, "serial_fraction_20"), rowNamed(t, "naive_speedup_20"),
		rowNamed(t, "eos_overhead_20")
	for _, c := range []struct {
		row             row
		ratios          []float64
		busy            bool
		value, low, top float64
		want            verdict
	}{
		{serial, []float64{0.9, 0.99, 0.995}, false, 0.99, 0.9, 0.995, verdictMet},
		{serial, []float64{0.9, 0.9899, 0.995}, false, 0.9899, 0.9, 0.995, verdictShort},
		{serial, []float64{0.9, 0.99, 0.995}, true, 0.99, 0.9, 0.995, verdictBusy},
		{speed, []float64{2.5, 2.2}, false, 2.35, 2.2, 2.5, verdictMet},
		{eos, []float64{1.0625, 1.015625, 1}, false, 0.015625, 0, 0.0625, verdictMet},
		{eos, []float64{1.0625, 1.03125, 1}, false, 0.03125, 0, 0.0625, verdictShort},
		{eos, []float64{1.0625, 1.03125, 1}, true, 0.03125, 0, 0.0625, verdictBusy},
	} {
		got, ok := c.row.result(rounds(c.row, c.ratios...), c.busy)
		if !ok || got.Value != c.value || got.Low != c.low || got.High != c.top || got.Verdict != c.want {
			t.Errorf("%s of %v: %+v", c.row.name, c.ratios, got)
		}
	}
	objects := rowNamed(t, "allocs_per_event")
	for mallocs, want := range map[uint64]verdict{0: verdictMet, 100: verdictShort} {
		got, ok := objects.result([]map[cell]measurement{{objects.cells[0]: {Mallocs: mallocs, Events: 100}}}, true)
		if !ok || got.Verdict != want {
			t.Errorf("%d allocations on a busy machine: %q, want %q", mallocs, got.Verdict, want)
		}
	}
	flat := rowNamed(t, "rss_flat")
	if got, ok := flat.result([]map[cell]measurement{{}}, false); ok {
		t.Errorf("memory that the system does not tell: %+v", got)
	}
	for _, name := range []string{"transactions_per_million_20", "broker_cpu_per_million_5"} {
		unread := rowNamed(t, name)
		if got, ok := unread.result([]map[cell]measurement{{}}, false); ok {
			t.Errorf("%s that cannot be read: %+v", name, got)
		}
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

func TestQuantile(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if got := quantile([]time.Duration{7}, 0.99); got != 7 {
		t.Errorf("of one value it is %d", got)
	}
}

// docs/performance.md explains every row, with its goal.
func TestDocumentExplainsRows(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile(filepath.Join("..", "..", "..", "exportbridge", "docs", "performance.md")))(t)
	for _, r := range testPlanner().rows() {
		shown := r.unmeasured()
		goal := strings.Trim(shown.goalText(), "<>= %xsmMB")
		explained := false
		for line := range strings.Lines(string(page)) {
			name, text, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
			explained = explained || strings.Contains(name, "`"+r.name+"`") && strings.Contains(text, goal)
		}
		if !explained {
			t.Errorf("row %s with its goal %q is not in a table of docs/performance.md", r.name, goal)
		}
	}
}

func TestMeasured(t *testing.T) {
	t.Parallel()
	at := time.Now()
	c, clock := cell{pages: 2}, apiClock{First: at, Requests: 3}
	end := partEnd{Ended: at.Add(4 * time.Second), Mallocs: 6, PeakRSS: 7}
	want := measurement{Seconds: 4, Requests: 3, Events: 2000, CPUSeconds: 5, Mallocs: 6, PeakRSS: 7}
	if diff := cmp.Diff(want, c.measured(end, clock, 5)); diff != "" {
		t.Error(diff)
	}
	// Producing from memory has a clock of its own.
	end.Began, end.Events, end.CPUSeconds = at.Add(3*time.Second), 1000, 2
	want.Seconds, want.Events, want.CPUSeconds = 1, 1000, 2
	if diff := cmp.Diff(want, c.measured(end, clock, 5)); diff != "" {
		t.Error(diff)
	}
}
