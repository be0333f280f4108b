package bench

import (
	"os"
	"strconv"
	"strings"
)

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

// peakRSS is the most memory that this process had since it was started, in
// bytes, 0 where the system does not report it. What a parent learns at the end of
// a process counts from the fork, and is never below the parent's own.
func peakRSS() int64 {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(raw), "\nVmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64)
	if err != nil {
		return 0
	}
	return kib * 1024
}
