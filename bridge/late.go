package bridge

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// lateSteps are the steps in which Late counts.
var lateSteps = []struct {
	upTo time.Duration
	name string
}{
	{time.Minute, "1m"}, {5 * time.Minute, "5m"}, {15 * time.Minute, "15m"}, {time.Hour, "1h"},
	{6 * time.Hour, "6h"}, {24 * time.Hour, "24h"}, {math.MaxInt64, "more"},
}

// Late counts late events by Event.Late: up to 1m, 5m, 15m, 1h, 6h, 24h, and more.
type Late map[string]int64

// Add counts an event that is late by a duration. l must not be nil.
func (l Late) Add(by time.Duration) {
	for _, step := range lateSteps {
		if by <= step.upTo {
			l[step.name]++
			return
		}
	}
}

// Text lists the counts, such as "12 up to 5m, 1 later"; it is empty without late events.
func (l Late) Text() string {
	var all []string
	for _, step := range lateSteps {
		switch n := l[step.name]; {
		case n == 0:
		case step.upTo == math.MaxInt64:
			all = append(all, fmt.Sprintf("%d later", n))
		default:
			all = append(all, fmt.Sprintf("%d up to %s", n, step.name))
		}
	}
	return strings.Join(all, ", ")
}
