package main_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// endsWithUs makes the system end a process with the thread that started it.
func endsWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// peakMemory returns the most physical memory that the process has used so
// far, in bytes; false when it has ended.
func peakMemory(t *testing.T, pid int) (int64, bool) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	return memoryIn(string(status))
}
