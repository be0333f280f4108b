package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"exportbridge/cmd/internal/cli"
)

// report is what bench --json prints.
type report struct {
	Version  string    `json:"version"`
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
	Cores    int       `json:"cores"`
	Date     time.Time `json:"date"`
	// Others is how many cores other processes took, 0 where the system does not
	// report it. With a real Kafka, it is the load between rounds alone.
	Others  float64 `json:"others"`
	Busy    bool    `json:"busy"` // other processes took too many cores for a verdict
	Kafka   string  `json:"kafka"`
	Redis   string  `json:"redis"`
	Brokers int     `json:"brokers"`
	Pages   int     `json:"pages"`
	Rounds  int     `json:"rounds"`

	Rows         []result      `json:"rows"`
	Measurements []measurement `json:"measurements"`
	Warnings     []string      `json:"warnings,omitempty"`
}

// summarize fills the report from what was measured.
func (r *report) summarize(rows []row, rounds []map[cell]measurement) {
	warn := func(format string, args ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...)) }
	if r.Busy = r.Others > othersLimit; r.Busy {
		warn("other processes took %.1f of %s during the benchmark: no verdict", r.Others, cli.Counted(r.Cores, "core"))
	}
	for i := range rows {
		if result, ok := rows[i].result(rounds, r.Busy); ok {
			r.Rows = append(r.Rows, result)
		} else {
			warn("%s cannot be measured: it needs %s", rows[i].name, cmp.Or(rows[i].needs, "Linux"))
		}
	}
	for _, c := range cellsOf(rows) {
		for _, round := range rounds {
			r.Measurements = append(r.Measurements, round[c])
		}
	}
}

// print prints the report as a table.
func (r *report) print(w io.Writer) error {
	kafka := r.Kafka
	if r.Brokers > 1 {
		kafka += " (" + cli.Counted(r.Brokers, "broker") + ")"
	}
	fmt.Fprintf(w, "exportbridge %s, %s, %s, %s, %s\n", r.Version, r.Go, r.Platform, cli.Counted(r.Cores, "core"),
		r.Date.Format(time.RFC3339))
	fmt.Fprintf(w, "Kafka %s, Redis %s\n%s, %s of %d events, others took %.2f cores\n\n",
		kafka, r.Redis, cli.Counted(r.Rounds, "round"), cli.Counted(r.Pages, "page"), pageEvents, r.Others)
	rows := [][]string{{"ROW", "VALUE", "LOW", "HIGH", "GOAL", "VERDICT"}}
	for _, row := range r.Rows {
		name := row.Name
		if row.Absolute {
			name += " *"
		}
		rows = append(rows, []string{name, row.text(row.Value), row.text(row.Low), row.text(row.High), row.goalText(),
			string(row.Verdict)})
	}
	if _, err := cli.PrintTable(w, rows, 0); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "\n* specific to this machine. Definitions: exportbridge-dev bench --list\n")
	return err
}

// goalText shows the goal with its direction.
func (r *result) goalText() string {
	sign := map[direction]string{atLeast: ">= ", atMost: "<= "}[r.Direction]
	return sign + r.unitText(strconv.FormatFloat(r.scaled(r.Goal), 'f', -1, 64))
}

// digits are the decimal places of each unit.
var digits = map[unit]int{
	unitRatio: 3, unitTimes: 2, unitPercent: 1, unitCount: 3, unitSeconds: 2, unitMillis: 1, unitBytes: 1,
	unitPerMillion: 0,
}

// text shows a value. It is rounded away from the goal: a value that missed the goal
// must not look like one that reached it.
func (r *result) text(v float64) string {
	scale := math.Pow10(digits[r.Unit])
	v = r.scaled(v) * scale
	if r.Direction == atMost {
		v = math.Ceil(v - 1e-6) // ignores the error of floating-point numbers
	} else {
		v = math.Floor(v + 1e-6)
	}
	return r.unitText(strconv.FormatFloat(v/scale+0, 'f', digits[r.Unit], 64)) // + 0: no -0
}

// scaled is the value as it is shown: percent, or megabytes of a million bytes.
func (r *result) scaled(v float64) float64 {
	switch r.Unit {
	case unitPercent:
		return math.Round(v*1e8) / 1e6
	case unitBytes:
		return v / 1e6
	}
	return v
}

func (r *result) unitText(number string) string {
	suffixes := map[unit]string{unitTimes: "x", unitPercent: "%", unitSeconds: " s", unitMillis: " ms", unitBytes: " MB"}
	return number + suffixes[r.Unit]
}
