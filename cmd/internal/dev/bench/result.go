package bench

import (
	"math"
	"slices"
)

// result is the result of a row over all rounds: the median and the extremes.
type result struct {
	Name      string    `json:"name"`
	About     string    `json:"about"`
	Unit      unit      `json:"unit"`
	Absolute  bool      `json:"absolute,omitempty"`
	Value     float64   `json:"value"`
	Low       float64   `json:"low"`
	High      float64   `json:"high"`
	Direction direction `json:"direction"`
	Goal      float64   `json:"goal"`
	Verdict   verdict   `json:"verdict,omitempty"`
}

// verdict says whether a row reached its goal.
type verdict string

const (
	verdictMet   verdict = "met"
	verdictShort verdict = "short"
	verdictBusy  verdict = "busy" // the machine had other work
)

// unmeasured is the result without values.
func (r *row) unmeasured() result {
	return result{
		Name: r.name, About: r.about, Unit: r.unit, Absolute: r.unit.absolute(), Direction: r.direction, Goal: r.goal,
	}
}

// result summarizes the rounds. It returns false if the system does not report the
// figures that the row needs.
func (r *row) result(rounds []map[cell]measurement, busy bool) (result, bool) {
	var values []float64
	for _, round := range rounds {
		of := make([]measurement, len(r.cells))
		for i, c := range r.cells {
			of[i] = round[c]
		}
		v := r.value(of)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return result{}, false
		}
		values = append(values, v)
	}
	out := r.unmeasured()
	out.Value, out.Low, out.High = median(values), slices.Min(values), slices.Max(values)
	switch {
	case busy && r.unit != unitCount:
		out.Verdict = verdictBusy
	case r.direction == atLeast && out.Value >= r.goal, r.direction == atMost && out.Value <= r.goal:
		out.Verdict = verdictMet
	default:
		out.Verdict = verdictShort
	}
	return out, true
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
