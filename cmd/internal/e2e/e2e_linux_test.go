package e2e_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// endsWithUs makes the system end a process with the thread that started it.
func endsWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// peakMemory returns the most physical memory that the process has used so
// far, in bytes; false when it has ended.
func peakMemory(pid int) (int64, bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false // a process that is ending has no memory any more
}
