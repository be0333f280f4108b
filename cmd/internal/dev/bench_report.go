package dev

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"exportbridge/cmd/internal/cli"
)

// benchReport is what a bench found. Its JSON form is what bench --json prints.
type benchReport struct {
	Version    string    `json:"version"`
	Go         string    `json:"go"`
	Platform   string    `json:"platform"`
	Cores      int       `json:"cores"`
	Date       time.Time `json:"date"`
	LoadBefore float64   `json:"load_before"` // 0 where the system does not tell
	LoadAfter  float64   `json:"load_after"`
	// Others is how many processors others took, and right before the bench,
	// 0 where the system does not tell. Of a Kafka or Redis of the user's it
	// shows only what they take when nobody uses them.
	Others       float64 `json:"others"`
	OthersBefore float64 `json:"others_before"`
	Busy         bool    `json:"busy"` // too much of it for a verdict
	Kafka        string  `json:"kafka"`
	Brokers      int     `json:"brokers"`
	Redis        string  `json:"redis"`
	Against      string  `json:"against,omitempty"`
	Pages        int     `json:"pages"`
	Rounds       int     `json:"rounds"`

	Rows []benchRow `json:"rows"`
	// Servers are totals of the whole bench, for information.
	Servers      []processUse `json:"servers"`
	Measurements []benchRun   `json:"measurements"`
	Warnings     []string     `json:"warnings,omitempty"`
}

// summarise fills the report from what was measured.
func (r *benchReport) summarise(rows []row, rounds []map[cell]benchRun) {
	warn := func(format string, args ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...)) }
	if r.LoadBefore > float64(r.Cores) && r.OthersBefore > calmLimit {
		warn("load average %.1f on %s before the bench: the machine has other work, so there is no verdict", r.LoadBefore, cores(r.Cores))
		r.Busy = true
	}
	if r.Others > othersLimit {
		warn("others took %.1f of %s during the bench, so there is no verdict", r.Others, cores(r.Cores))
		r.Busy = true
	}
	for i := range rows {
		if result, ok := rows[i].result(rounds, r.Busy); ok {
			r.Rows = append(r.Rows, result)
		} else {
			warn("%s cannot be measured on this system", rows[i].name)
		}
	}
	for _, c := range cellsOf(rows) {
		for _, round := range rounds {
			r.Measurements = append(r.Measurements, round[c])
		}
	}
	if room := headroom(rounds); room < wantHeadroom {
		warn("without latency the API serves only %.1f times as fast as the bridge takes: it, not the bridge, may be what those rows show", room)
	}
}

// wantHeadroom is how many times as fast as the bridge an API without latency
// must be.
const wantHeadroom = 2

// withHeadroom adds the cell that tells how fast the API is, if it matters.
func withHeadroom(cells []cell, pages int) []cell {
	for _, c := range cells {
		if c.work == workBridge && c.api == (apiKind{}) && !c.growing {
			fetch := cell{work: workFetch, pages: flatOut * pages}
			return append([]cell{fetch}, cells...)
		}
	}
	return cells
}

// headroom is how many times as fast as the fastest bridge the API is, the
// median over the rounds, +Inf where that was not measured.
func headroom(rounds []map[cell]benchRun) float64 {
	var values []float64
	for _, round := range rounds {
		fetch, fastest := math.Inf(1), 0.0
		for c, s := range round {
			switch {
			case c.api != (apiKind{}) || c.growing:
			case c.work == workFetch:
				fetch = float64(c.pages*pageEvents) / s.Seconds
			case c.work == workBridge:
				fastest = max(fastest, s.rate())
			}
		}
		values = append(values, fetch/fastest)
	}
	return median(values)
}

// print shows the report to people.
func (r *benchReport) print(w io.Writer) error {
	load := "unknown"
	if r.LoadBefore > 0 || r.LoadAfter > 0 {
		load = fmt.Sprintf("%.2f before, %.2f after", r.LoadBefore, r.LoadAfter)
	}
	fmt.Fprintf(w, "exportbridge %s, %s, %s, %s, %s\n", r.Version, r.Go, r.Platform, cores(r.Cores), r.Date.Format(time.RFC3339))
	kafka := r.Kafka
	if r.Brokers > 1 {
		kafka += " of " + count(r.Brokers, "broker")
	}
	fmt.Fprintf(w, "Kafka %s, Redis %s, %s of %d pages with %d events, load average %s, others took %.2f cores\n\n",
		kafka, r.Redis, count(r.Rounds, "round"), r.Pages, pageEvents, load, r.Others)
	rows := [][]string{{"ROW", "COMPARED", "VALUE", "LOW", "HIGH", "GOAL", "VERDICT"}}
	for _, row := range r.Rows {
		name, verdict := row.Name, string(row.Verdict)
		if row.Absolute {
			name += " *"
		}
		if verdict == "" {
			verdict = "-"
		}
		rows = append(rows, []string{name, row.comparedText(), row.text(row.Value), row.text(row.Low), row.text(row.High), row.goalText(), verdict})
	}
	if err := cli.PrintTable(w, rows, 0); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "\n* no ratio: holds for this machine. What each row is: exportbridge-dev bench --list\n")
	return err
}

// comparedText shows the two sides of a ratio.
func (r *benchRow) comparedText() string {
	if len(r.Compared) == 0 {
		return "-"
	}
	parts := make([]string, len(r.Compared))
	for i, v := range r.Compared {
		parts[i] = strconv.FormatFloat(v, 'f', comparedDigits[r.Of], 64)
	}
	return strings.Join(parts, " : ") + " " + string(r.Of)
}

// goalText shows the goal with its direction.
func (r *benchRow) goalText() string {
	switch r.Direction {
	case atLeast:
		return ">= " + r.unitText(strconv.FormatFloat(r.scaled(*r.Goal), 'f', -1, 64))
	case atMost:
		return "<= " + r.unitText(strconv.FormatFloat(r.scaled(*r.Goal), 'f', -1, 64))
	}
	return "-"
}

// comparedDigits are the decimal places of each quantity.
var comparedDigits = map[quantity]int{ofSeconds: 3, ofCPU: 2}

// digits are the decimal places of each unit.
var digits = map[unit]int{
	unitRatio: 3, unitTimes: 2, unitPercent: 1, unitCount: 3, unitSeconds: 2, unitMillis: 1, unitBytes: 1,
}

// text shows a value. It is rounded to its bad side, so that none looks like a
// goal that it did not reach; but not for what is off by the last bits.
func (r *benchRow) text(v float64) string {
	scale := math.Pow10(digits[r.Unit])
	v = r.scaled(v) * scale
	if r.Direction == atMost {
		v = math.Ceil(v - 1e-6)
	} else {
		v = math.Floor(v + 1e-6)
	}
	return r.unitText(strconv.FormatFloat(v/scale+0, 'f', digits[r.Unit], 64)) // + 0: no -0
}

// scaled is the value as it is shown: percent, or megabytes of a million bytes.
func (r *benchRow) scaled(v float64) float64 {
	switch r.Unit {
	case unitPercent:
		return math.Round(v*1e8) / 1e6
	case unitBytes:
		return v / 1e6
	}
	return v
}

func (r *benchRow) unitText(number string) string {
	suffixes := map[unit]string{unitTimes: "x", unitPercent: "%", unitSeconds: " s", unitMillis: " ms", unitBytes: " MB"}
	return number + suffixes[r.Unit]
}

func cores(n int) string { return count(n, "core") }

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
