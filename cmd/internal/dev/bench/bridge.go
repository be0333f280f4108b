package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"exportbridge/bridge/engine"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// partEnd is the report that a measured process prints at its end.
type partEnd struct {
	// Began is zero if the clock of the API has the beginning. CPUSeconds, of this
	// process, and Events count from Began on.
	Began      time.Time `json:"began,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
	CPUSeconds float64   `json:"cpu_seconds,omitempty"`
	Events     int       `json:"events,omitempty"`
	Mallocs    uint64    `json:"mallocs"`
	PeakRSS    int64     `json:"peak_rss_bytes"`
	// Transactions counts the requests to Kafka that end one.
	Transactions int64 `json:"transactions,omitempty"`
}

// transactionCount counts the requests that end a transaction. It is a hook of a
// Kafka client, which calls it for each request that was answered or has failed.
type transactionCount struct{ atomic.Int64 }

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (t *transactionCount) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, request kgo.BrokerE2E) {
	if key == kmsg.EndTxn.Int16() && request.WriteErr == nil {
		t.Add(1)
	}
}

// printEnd prints the end with the memory that the process has used by now.
func printEnd(a *cli.App, end partEnd) error {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	end.Mallocs, end.PeakRSS = memory.Mallocs, peakRSS()
	return cli.PrintJSON(a.Stdout, end)
}

// peakRSS returns the peak memory of this process in bytes, 0 where the system does
// not report it. The figure that a parent gets at the end of a process includes the
// fork: it is never below the parent's own.
func peakRSS() int64 { return memoryOf("self", "VmHWM") }

// memoryOf returns a figure of /proc/PID/status in bytes, 0 where the system has none.
func memoryOf(pid, figure string) int64 {
	raw, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(raw), "\n"+figure+":")
	line, _, _ := strings.Cut(rest, "\n")
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64)
	if err != nil {
		return 0
	}
	return kib * 1024
}

func runBridge(ctx context.Context, a *cli.App, p *part) error {
	s, err := a.Settings(config.UsesAll, nil)
	if err != nil {
		return err
	}
	var ended transactionCount
	for i := range s.Streams {
		s.Streams[i].Kafka.Hooks = []kgo.Hook{&ended}
	}
	stop, err := profile(p.CPUFile, p.AllocsFile)
	if err != nil {
		return err
	}
	err = measuredBridge(ctx, a, s, engine.Limits{Once: !p.Follow}, p.Without)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	return printEnd(a, partEnd{Transactions: ended.Load()})
}

// runBackfill runs the command backfill of exportbridge, which prints its report.
func runBackfill(ctx context.Context, a *cli.App, p *part) error {
	if code := command.Program.Run(ctx, append([]string{"backfill"}, p.Backfill...), a.Environ,
		a.Stdio); code != cli.ExitOK {
		return &cli.Error{Code: code, Err: errors.New("the backfill failed")}
	}
	return nil
}

// of removes the omitted ports.
func (o omitted) of(p engine.Ports) engine.Ports {
	if o.Store {
		p.Store = nil
	}
	if o.Observer {
		p.Observer = nil
	}
	return p
}

// measuredBridge runs the bridge as the command run does, without the omitted ports.
func measuredBridge(
	ctx context.Context, a *cli.App, s *config.Settings, limits engine.Limits, without omitted,
) (err error) {
	if without == (omitted{}) {
		return command.RunBridge(ctx, a, s, limits)
	}
	process.TuneMemory(a.Environ)
	line := process.NewStatusLine(a.Stderr)
	o := command.ProcessOptions(a, limits, process.NewLogger(line, &s.Process, a.Environ))
	o.Environ, o.Ports = nil, without.of
	p, err := process.New(ctx, s, o)
	if err != nil {
		return command.RunError(err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return command.RunError(p.Run(ctx, line))
}

// allocProfileRate is the mean number of bytes between two sampled allocations. It
// is small because the hot path allocates little.
const allocProfileRate = 4096

// profile starts the profiles that have a file. The function that it returns
// stops and writes them.
func profile(cpu, allocs string) (stop func() error, err error) {
	stops := make([]func() error, 0, 2)
	stop = func() error {
		var errs []error
		for _, s := range stops {
			errs = append(errs, s())
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("write profile: %w", err)
		}
		return nil
	}
	if allocs != "" {
		runtime.MemProfileRate = allocProfileRate
		stops = append(stops, func() error {
			// The profile lacks the allocations since the last collection but one.
			runtime.GC()
			runtime.GC()
			file, err := os.Create(allocs)
			if err != nil {
				return err
			}
			return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
		})
	}
	if cpu != "" {
		file, err := os.Create(cpu)
		if err != nil {
			return nil, fmt.Errorf("write profile: %w", err)
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return nil, errors.Join(fmt.Errorf("write profile: %w", err), file.Close())
		}
		stops = append(stops, func() error { pprof.StopCPUProfile(); return file.Close() })
	}
	return stop, nil
}
