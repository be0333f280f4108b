package dev

import (
	"math"
	"slices"
)

// benchRow is one result: the median over the rounds, and their extremes.
type benchRow struct {
	Name     string  `json:"name"`
	About    string  `json:"about"`
	Unit     unit    `json:"unit"`
	Absolute bool    `json:"absolute,omitempty"`
	Value    float64 `json:"value"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	// Compared are the medians of the two sides, in the order of About.
	Compared  []float64 `json:"compared,omitempty"`
	Of        quantity  `json:"compared_unit,omitempty"`
	Direction direction `json:"direction,omitempty"`
	Goal      *float64  `json:"goal,omitempty"`
	Verdict   verdict   `json:"verdict,omitempty"`
}

// verdict says whether a row reached its goal.
type verdict string

const (
	verdictNone  verdict = "" // the row has no goal
	verdictMet   verdict = "met"
	verdictShort verdict = "short"
	verdictBusy  verdict = "busy" // the machine had other work
)

// result is what the rounds say about a row, and whether they say anything.
func (r *row) result(rounds []map[cell]benchRun, busy bool) (benchRow, bool) {
	var values []float64
	for _, round := range rounds {
		of := make([]benchRun, len(r.cells))
		for i, c := range r.cells {
			of[i] = round[c]
		}
		v := r.value(of)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return benchRow{}, false // what the system does not tell
		}
		values = append(values, v)
	}
	out := benchRow{
		Name: r.name, About: r.about, Unit: r.unit, Absolute: r.absolute,
		Value: median(values), Low: slices.Min(values), High: slices.Max(values),
	}
	if r.of != "" {
		out.Of, out.Compared = r.of, r.compared(rounds)
	}
	if r.direction == noGoal {
		return out, true
	}
	out.Direction, out.Goal = r.direction, &r.goal
	switch {
	case busy && !r.steady:
		out.Verdict = verdictBusy
	case r.direction == atLeast && out.Value >= r.goal, r.direction == atMost && out.Value <= r.goal:
		out.Verdict = verdictMet
	default:
		out.Verdict = verdictShort
	}
	return out, true
}

// compared returns the median of each cell.
func (r *row) compared(rounds []map[cell]benchRun) []float64 {
	medians := make([]float64, len(r.cells))
	for i, c := range r.cells {
		values := make([]float64, len(rounds))
		for j, round := range rounds {
			values[j] = r.of.of(round[c])
		}
		medians[i] = median(values)
	}
	return medians
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
