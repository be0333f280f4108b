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
	// othersLimit is how many cores other processes may take, on average or between
	// two rounds. Above it, there is no verdict.
	othersLimit = 0.25
	// Servers may still process the last round, so each round waits for a machine
	// that is calm, for at most loadPauses times loadPause.
	calmLimit  = 0.1
	loadPause  = 500 * time.Millisecond
	loadPauses = 6
)

// loadWatch measures the load of other processes.
type loadWatch struct {
	start cpuReading
	most  float64 // maximum number of cores that other processes used before a round
}

// cpuReading is a reading of the CPU time.
type cpuReading struct {
	at   time.Time
	busy float64 // of the machine, in seconds
	own  float64 // of this process and its ended children
}

func readCPU() cpuReading {
	return cpuReading{at: time.Now(), busy: machineCPU(), own: ownCPU()}
}

// clockTicks is the number of ticks in a second of CPU time, the same on all
// platforms that Go knows.
const clockTicks = 100

// machineCPU returns the CPU time of all processes on the machine, in seconds, 0
// where the system does not report it.
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

// othersSince returns how many cores other processes took on average since a reading.
func (c cpuReading) othersSince(from cpuReading) float64 {
	return max(0, (c.busy-from.busy)-(c.own-from.own)) / c.at.Sub(from.at).Seconds()
}

// sample measures the load between two rounds, while the benchmark's servers are idle.
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

// others returns how many cores other processes took before the busiest round. If
// alone is set, all servers were started here and have ended, and the average since
// the start counts too.
func (l *loadWatch) others(alone bool) float64 {
	if !alone {
		return l.most
	}
	return max(l.most, readCPU().othersSince(l.start))
}
