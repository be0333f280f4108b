package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// brokerCPU returns the CPU time of all brokers since they were started, in
// seconds. It is 0 if unknown: rows that need it are left out then.
func (b *bench) brokerCPU() float64 { return cpuOf(b.brokerPIDs) }

// cpuOf returns the CPU time of processes in seconds, 0 if that of one is unknown.
func cpuOf(pids []int) (seconds float64) {
	for _, pid := range pids {
		of, err := processCPU(pid)
		if err != nil {
			return 0
		}
		seconds += of
	}
	return seconds
}

// The programs of servers. Another one that listens, such as docker-proxy or ssh, only
// forwards to a server. Debian's redis-server is a link to redis-check-rdb.
var (
	brokerPrograms = []string{"java", "redpanda"}
	redisPrograms  = []string{"redis-server", "redis-check-rdb", "valkey-server", "valkey-check-rdb"}
)

// findServers counts the brokers, and finds the processes of Kafka and Redis.
func (b *bench) findServers(ctx context.Context) error {
	addrs, err := b.backend.brokers(ctx)
	if err != nil {
		return err
	}
	b.brokers = len(addrs)
	b.brokerPIDs = b.processesOf(ctx, "Kafka", addrs, brokerPrograms)
	b.redisPIDs = b.processesOf(ctx, "Redis", []string{b.redis}, redisPrograms)
	return nil
}

// processesOf returns the process of an embedded server, or those of the real one at addrs.
func (b *bench) processesOf(ctx context.Context, name string, addrs, programs []string) []int {
	for _, s := range b.servers {
		if s.name == name {
			return []int{s.cmd.Process.Pid}
		}
	}
	return findProcesses(ctx, addrs, programs)
}

// findProcesses returns the ids of the processes that listen at all addresses. It returns
// none unless it finds all of them on this machine, and each runs one of the programs.
func findProcesses(ctx context.Context, addrs, programs []string) []int {
	var pids []int
	for _, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || !onThisMachine(ctx, host) {
			return nil
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil
		}
		pid, program := listener(uint16(number))
		if !slices.Contains(programs, program) {
			return nil
		}
		if !slices.Contains(pids, pid) { // a process may listen at several ports
			pids = append(pids, pid)
		}
	}
	return pids
}

// onThisMachine reports whether all addresses of a host are of this machine.
func onThisMachine(ctx context.Context, host string) bool {
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	own, errOwn := net.InterfaceAddrs()
	if err != nil || errOwn != nil || len(found) == 0 {
		return false
	}
	return !slices.ContainsFunc(found, func(ip net.IPAddr) bool {
		return !ip.IP.IsLoopback() && !slices.ContainsFunc(own, func(a net.Addr) bool {
			network, ok := a.(*net.IPNet)
			return ok && network.IP.Equal(ip.IP)
		})
	})
}

// listener returns the process that listens at a TCP port, and the name of its
// program. It returns 0 unless this user may look into exactly one such process.
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
