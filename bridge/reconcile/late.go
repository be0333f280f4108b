package reconcile

import (
	"math"
	"time"

	"exportbridge/bridge"
)

// lateGrowth is the growth of the histogram's buckets: percentiles are accurate to
// 1 %.
const lateGrowth = 1.01

// Lateness is the distribution of the delay between event time and ingestion time, in
// milliseconds. Its memory is bounded.
type Lateness struct {
	// Known counts the events with an ingestion time. Events counts the late ones among
	// them.
	Known  int64 `json:"known"`
	Events int64 `json:"events"`
	P50    int64 `json:"p50_ms"`
	P99    int64 `json:"p99_ms"`
	Max    int64 `json:"max_ms"`

	steps map[int]int64
}

// note counts an event with its ingestion time, 0 if unknown. An event is late if the
// delay is above the threshold.
func (l *Lateness) note(e *bridge.Event, ingested int64, threshold time.Duration) {
	if ingested == 0 || e.Time == bridge.NoTime || e.Defect != bridge.DefectNone {
		return
	}
	l.Known++
	late := ingested - e.Time
	if late <= threshold.Milliseconds() {
		return
	}
	if l.steps == nil {
		l.steps = make(map[int]int64)
	}
	l.Events++
	l.Max = max(l.Max, late)
	l.steps[int(math.Log(float64(late))/math.Log(lateGrowth))]++
}

// add adds the lateness of a part.
func (l *Lateness) add(p *Lateness) {
	if l.steps == nil {
		l.steps = make(map[int]int64)
	}
	l.Known, l.Events, l.Max = l.Known+p.Known, l.Events+p.Events, max(l.Max, p.Max)
	for step, n := range p.steps {
		l.steps[step] += n
	}
	l.P50, l.P99 = l.percentile(50), l.percentile(99)
}

// percentile returns a percentile of the late events, 0 if there are none.
func (l *Lateness) percentile(percent int64) int64 {
	if l.Events == 0 {
		return 0
	}
	rank := (l.Events*percent + 99) / 100
	first, last := math.MaxInt, math.MinInt
	for step := range l.steps {
		first, last = min(first, step), max(last, step)
	}
	for step := first; step <= last; step++ {
		if rank -= l.steps[step]; rank <= 0 {
			return min(l.Max, int64(math.Ceil(math.Pow(lateGrowth, float64(step+1)))))
		}
	}
	return l.Max
}
