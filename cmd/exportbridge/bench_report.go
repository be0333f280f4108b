package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize"
)

// verdict says whether a row reached its goal.
type verdict string

const (
	verdictNone  verdict = "" // the row has no goal
	verdictMet   verdict = "met"
	verdictShort verdict = "short"
)

// benchRow is one result: the median over the rounds, and their extremes.
type benchRow struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Goal    float64 `json:"goal,omitempty"`
	Verdict verdict `json:"verdict,omitempty"`
}

// benchReport is what a bench found. Its JSON form is what bench --json prints.
type benchReport struct {
	Version    string  `json:"version"`
	Go         string  `json:"go"`
	Platform   string  `json:"platform"`
	Cores      int     `json:"cores"`
	LoadBefore float64 `json:"load_before"` // 0 where the system does not tell
	LoadAfter  float64 `json:"load_after"`
	Kafka      string  `json:"kafka"`
	Redis      string  `json:"redis"`
	Pages      int     `json:"pages"`
	Rounds     int     `json:"rounds"`

	Rows []benchRow `json:"rows"`
	// Processes are medians over the rounds for what was measured, totals of
	// the whole bench for the servers. For information: they are no ratios.
	Processes    []processUse  `json:"processes"`
	Measurements []measurement `json:"measurements"`
	Warnings     []string      `json:"warnings,omitempty"`
}

// serialGoal is the goal of serial_fraction at a latency, 0 where there is
// none. The rest is what the last pages and the last commit may take when
// nothing is left to hide them behind.
func serialGoal(latencyMS float64) float64 {
	switch latencyMS {
	case 5:
		return 0.93
	case 20:
		return 0.985
	case 50:
		return 0.995
	}
	return 0
}

// summarise fills the report from what was measured.
func (r *benchReport) summarise(measured []measurement, servers []processUse) {
	r.Measurements = measured
	var order []float64
	byLatency := make(map[float64][]measurement)
	for _, m := range measured {
		if byLatency[m.LatencyMS] == nil {
			order = append(order, m.LatencyMS)
		}
		byLatency[m.LatencyMS] = append(byLatency[m.LatencyMS], m)
	}
	for _, latency := range order {
		at, rounds := strconv.FormatFloat(latency, 'g', -1, 64), byLatency[latency]
		r.Rows = append(r.Rows,
			newRow("fetch_only_"+at, 0, rounds, (*measurement).fetchOnly),
			newRow("serial_fraction_"+at, serialGoal(latency), rounds, (*measurement).serialFraction))
		r.Processes = append(r.Processes,
			medianUse("fetch only "+at+"ms", rounds, func(m *measurement) processUse { return m.Fetch.Use }),
			medianUse("pipeline "+at+"ms", rounds, func(m *measurement) processUse { return m.Pipeline.Use }))
	}
	r.Processes = append(r.Processes, servers...)
	if load := max(r.LoadBefore, r.LoadAfter); load > float64(r.Cores) {
		r.Warnings = append(r.Warnings,
			fmt.Sprintf("load average %.1f on %s: the machine has other work, and the verdicts are worth little", load, cores(r.Cores)))
	}
}

func newRow(name string, goal float64, rounds []measurement, value func(*measurement) float64) benchRow {
	values := make([]float64, len(rounds))
	for i := range rounds {
		values[i] = value(&rounds[i])
	}
	row := benchRow{Name: name, Value: median(values), Low: slices.Min(values), High: slices.Max(values), Goal: goal}
	switch {
	case goal == 0:
	case row.Value >= goal:
		row.Verdict = verdictMet
	default:
		row.Verdict = verdictShort
	}
	return row
}

func medianUse(name string, rounds []measurement, use func(*measurement) processUse) processUse {
	cpu, rss := make([]float64, len(rounds)), make([]float64, len(rounds))
	for i := range rounds {
		u := use(&rounds[i])
		cpu[i], rss[i] = u.CPUSeconds, float64(u.PeakRSS)
	}
	return processUse{Name: name, CPUSeconds: median(cpu), PeakRSS: int64(median(rss))}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// print shows the report to people.
func (r *benchReport) print(w io.Writer) error {
	load := "unknown"
	if r.LoadBefore > 0 || r.LoadAfter > 0 {
		load = fmt.Sprintf("%.2f before, %.2f after", r.LoadBefore, r.LoadAfter)
	}
	fmt.Fprintf(w, "exportbridge %s, %s, %s, %s, load average %s\n", r.Version, r.Go, r.Platform, cores(r.Cores), load)
	fmt.Fprintf(w, "Kafka %s, Redis %s, %s of %d pages with %d events\n\n", r.Kafka, r.Redis, count(r.Rounds, "round"), r.Pages, pageEvents)
	rows := [][]string{{"ROW", "VALUE", "LOW", "HIGH", "GOAL", "VERDICT"}}
	for _, row := range r.Rows {
		goal, verdict := "-", "-"
		if row.Verdict != verdictNone {
			goal, verdict = strconv.FormatFloat(row.Goal, 'f', -1, 64), string(row.Verdict)
		}
		rows = append(rows, []string{row.Name, ratio(row.Value), ratio(row.Low), ratio(row.High), goal, verdict})
	}
	if err := printTable(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	processes := [][]string{{"PROCESS", "CPU", "PEAK RSS"}}
	for _, p := range r.Processes {
		rss := "-"
		if p.PeakRSS > 0 {
			rss = humanize.IBytes(uint64(p.PeakRSS))
		}
		processes = append(processes, []string{p.Name, fmt.Sprintf("%.2fs", p.CPUSeconds), rss})
	}
	return printTable(w, processes)
}

// ratio rounds down, so that no value looks like a goal it did not reach; but
// not what is off by the last bits of a float64.
func ratio(v float64) string { return fmt.Sprintf("%.3f", math.Floor(v*1000+1e-9)/1000) }

func cores(n int) string { return count(n, "core") }

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
