package bench

import (
	"context"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// othersLimit is how many cores others may take, on average or between two
	// rounds, before there is no verdict.
	othersLimit = 0.25
	// Between rounds the machine is observed until it is calm, but no more than
	// so many times: servers may still process the last round.
	calmLimit  = 0.1
	loadPause  = 500 * time.Millisecond
	loadPauses = 6
)

// loadWatch observes what else the machine does.
type loadWatch struct {
	start cpuReading
	most  float64 // cores that others took before the busiest round
}

// cpuReading is the CPU time up to a moment.
type cpuReading struct {
	at   time.Time
	busy float64 // of the machine, in seconds
	own  float64 // of this process and its children that have ended
}

func readCPU() cpuReading {
	return cpuReading{at: time.Now(), busy: machineCPU(), own: ownCPU()}
}

// clockTicks is the number of ticks in a second of CPU time, the same on all
// platforms that Go knows.
const clockTicks = 100

// machineCPU is the CPU time that everything on the machine has used, in
// seconds, 0 where the system does not report it.
func machineCPU() float64 {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	// cpu user nice system idle iowait irq softirq steal guest guest_nice;
	// guests are part of user and nice.
	fields := strings.Fields(first)
	var ticks float64
	for i, field := range fields {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return ticks / clockTicks
}

// othersSince is how many cores others took on average since a reading.
func (r cpuReading) othersSince(from cpuReading) float64 {
	return max(0, (r.busy-from.busy)-(r.own-from.own)) / r.at.Sub(from.at).Seconds()
}

// sample observes the machine while only idle servers of the benchmark run.
func (l *loadWatch) sample(ctx context.Context) error {
	least := math.Inf(1)
	for range loadPauses {
		from := readCPU()
		if err := pause(ctx, loadPause); err != nil {
			return err
		}
		if least = min(least, readCPU().othersSince(from)); least <= calmLimit {
			break
		}
	}
	l.most = max(l.most, least)
	return nil
}

// others is how many cores others took: before the busiest round, and if all
// servers were ours and have ended, on average.
func (l *loadWatch) others(alone bool) float64 {
	if !alone {
		return l.most
	}
	return max(l.most, readCPU().othersSince(l.start))
}
