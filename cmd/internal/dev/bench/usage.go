package bench

import (
	"context"
	"net"
	"slices"
	"strconv"
)

// brokerCPU is the CPU time of all brokers since they were started, in seconds,
// 0 if it is not known. Rows that need it are left out then.
func (b *bench) brokerCPU() (seconds float64) {
	for _, pid := range b.brokerPIDs {
		of, err := processCPU(pid)
		if err != nil {
			return 0
		}
		seconds += of
	}
	return seconds
}

// brokerPrograms are the programs of brokers. Another one that listens, such as
// docker-proxy or ssh, only forwards to a broker.
var brokerPrograms = []string{"java", "redpanda"}

// findBrokers returns the ids of the brokers' processes, none unless all are found
// on this machine.
func findBrokers(ctx context.Context, addrs []string) []int {
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
		if !slices.Contains(brokerPrograms, program) {
			return nil
		}
		if !slices.Contains(pids, pid) { // it may listen at several ports
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
