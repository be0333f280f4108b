package dev

import (
	"context"
	"math"
	"time"
)

// How much of a processor others may take before a verdict is worth nothing,
// on average over the bench or in the pauses before its rounds.
const (
	othersLimit = 0.25
	// calmLimit is how much they may take right before the bench so that a high
	// load average is taken for what is over, another bench for example.
	calmLimit = 0.1
	loadPause = 500 * time.Millisecond
	// loadPauses is how often it is looked again: servers may still have to do
	// with what the last round left.
	loadPauses = 6
)

// loadWatch finds out what else the machine does.
type loadWatch struct {
	before float64 // load average
	start  cpuReading
	first  float64 // processors that others took before the first round
	most   float64 // the same before the busiest round
}

// cpuReading is the CPU time up to a moment.
type cpuReading struct {
	at   time.Time
	busy float64 // of the machine, in seconds
	own  float64 // of this process and of those of its that have ended
}

func watchLoad() *loadWatch {
	return &loadWatch{before: loadAverage(), start: readCPU(), first: math.NaN()}
}

func readCPU() cpuReading {
	return cpuReading{at: time.Now(), busy: machineCPU(), own: ownCPU()}
}

// othersSince is how many processors others took on average since a reading.
func (r cpuReading) othersSince(from cpuReading) float64 {
	return max(0, (r.busy-from.busy)-(r.own-from.own)) / r.at.Sub(from.at).Seconds()
}

// sample looks at the machine while nothing of the bench runs but idle servers.
func (l *loadWatch) sample(ctx context.Context) error {
	least := math.Inf(1)
	for range loadPauses {
		from := readCPU()
		pause := time.NewTimer(loadPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
		if least = min(least, readCPU().othersSince(from)); least <= calmLimit {
			break
		}
	}
	if math.IsNaN(l.first) {
		l.first = least
	}
	l.most = max(l.most, least)
	return nil
}

// others is how many processors others took: before the busiest round, and if
// all servers were ours and have ended, on average.
func (l *loadWatch) others(alone bool) float64 {
	if !alone {
		return l.most
	}
	return max(l.most, readCPU().othersSince(l.start))
}
