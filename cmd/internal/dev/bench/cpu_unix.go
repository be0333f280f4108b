//go:build unix

package bench

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ownCPU is the CPU time of this process and of its children that have ended, in
// seconds, 0 where the system does not report it.
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

// processCPU is the CPU time of a process and its threads, in seconds. Its clock
// is exact, while /proc/PID/stat counts ticks of 10 ms.
func processCPU(pid int) (float64, error) {
	if runtime.GOOS != "linux" {
		return 0, errors.ErrUnsupported // clocks of processes have other numbers there
	}
	const cpuClock = 2 // CPUCLOCK_SCHED: see clock_getcpuclockid(3)
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClock), &at); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return float64(at.Nano()) / 1e9, nil
}
