package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// loadAverage is the machine's load average over the last minute, 0 where the
// system does not tell.
func loadAverage() float64 {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(raw), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}

// peakRSS is the most memory that a process had, in bytes, 0 where the system
// does not tell.
func peakRSS(state *os.ProcessState) int64 {
	if use, ok := state.SysUsage().(*syscall.Rusage); ok {
		return use.Maxrss * 1024
	}
	return 0
}
