//go:build !linux

package main

import "os"

// loadAverage is the machine's load average over the last minute, 0 where the
// system does not tell.
func loadAverage() float64 { return 0 }

// peakRSS is the most memory that a process had, in bytes, 0 where the system
// does not tell.
func peakRSS(*os.ProcessState) int64 { return 0 }
