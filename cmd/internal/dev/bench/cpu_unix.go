//go:build unix

package bench

import "golang.org/x/sys/unix"

// ownCPU is the CPU time of this process and of all of its that have ended, in
// seconds, 0 where the system does not tell.
func ownCPU() float64 {
	var sum float64
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var use unix.Rusage
		if err := unix.Getrusage(who, &use); err != nil {
			return 0
		}
		sum += float64(use.Utime.Nano()+use.Stime.Nano()) / 1e9
	}
	return sum
}
