package bench

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// usage is what the servers of a benchmark have done: since they were started, or
// from before a measured process started to its end. 0 is not known.
type usage struct {
	BrokerCPUSeconds float64 `json:"broker_cpu_seconds,omitempty"`
	// RedisWrites are write commands, those of scripts included.
	RedisWrites int64 `json:"redis_writes,omitempty"`
}

func (u usage) since(before usage) usage {
	return usage{max(0, u.BrokerCPUSeconds-before.BrokerCPUSeconds), max(0, u.RedisWrites-before.RedisWrites)}
}

// usage reads what the servers have done by now. Rows that need what cannot be
// read are left out.
func (b *bench) usage(ctx context.Context) usage {
	var u usage
	for _, pid := range b.brokerPIDs {
		seconds, err := processCPU(pid)
		if err != nil {
			return usage{}
		}
		u.BrokerCPUSeconds += seconds
	}
	if writes, err := b.backends.redisWrites(ctx); err == nil {
		u.RedisWrites = writes
	}
	return u
}

// redisWrites counts the write commands that Redis has executed, by its own
// statistics and its own list of commands.
func (t *backends) redisWrites(ctx context.Context) (writes int64, err error) {
	if t.writing == nil {
		commands, err := t.redis.Command(ctx).Result()
		if err != nil {
			return 0, fmt.Errorf("list the commands of Redis: %w", err)
		}
		t.writing = make(map[string]bool)
		for name, info := range commands {
			t.writing[name] = slices.Contains(info.Flags, "write")
		}
	}
	stats, err := t.redis.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("read the statistics of Redis: %w", err)
	}
	for line := range strings.Lines(stats) {
		rest, ok := strings.CutPrefix(line, "cmdstat_")
		name, values, _ := strings.Cut(rest, ":calls=")
		if !ok || !t.writing[name] {
			continue
		}
		values, _, _ = strings.Cut(strings.TrimSpace(values), ",")
		calls, err := strconv.ParseInt(values, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the statistics of Redis: %w", err)
		}
		writes += calls
	}
	return writes, nil
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
