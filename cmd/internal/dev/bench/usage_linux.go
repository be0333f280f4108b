package bench

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processCPU is the CPU time of a process and its threads, in seconds. Its clock
// is exact, while /proc/PID/stat counts ticks of 10 ms.
func processCPU(pid int) (float64, error) {
	const cpuClock = 2 // CPUCLOCK_SCHED: see clock_getcpuclockid(3)
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClock), &at); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return float64(at.Nano()) / 1e9, nil
}

// listener returns the process that listens at a TCP port, and the name of its
// program, 0 unless there is exactly one that this user may look into.
func listener(port uint16) (pid int, program string) {
	var sockets []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		sockets = append(sockets, listening(table, port)...)
	}
	for _, socket := range sockets {
		owner := ownerOf("socket:[" + socket + "]")
		if owner == 0 || pid != 0 && owner != pid {
			return 0, ""
		}
		pid = owner
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return 0, ""
	}
	return pid, filepath.Base(exe)
}

// listening returns the inodes of the sockets that listen at a port.
func listening(table string, port uint16) (inodes []string) {
	file, err := os.Open(table)
	if err != nil {
		return nil
	}
	defer file.Close()
	at := fmt.Sprintf(":%04X", port)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		// sl local_address rem_address st queues timer retrnsmt uid timeout inode
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && strings.HasSuffix(fields[1], at) && fields[3] == "0A" {
			inodes = append(inodes, fields[9])
		}
	}
	return inodes
}

// ownerOf returns the process that has a socket open, 0 if none is found.
func ownerOf(socket string) int {
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && to == socket {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			return pid
		}
	}
	return 0
}
