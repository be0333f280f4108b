//go:build !linux

package bench

// machineCPU is the CPU time that everything on the machine has used, in
// seconds, 0 where the system does not tell.
func machineCPU() float64 { return 0 }

// peakRSS is the most memory that this process had since it was started, in
// bytes, 0 where the system does not tell.
func peakRSS() int64 { return 0 }
