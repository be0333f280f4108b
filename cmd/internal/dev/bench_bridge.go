package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// partEnd is what a measured process says at its end.
type partEnd struct {
	// Began is zero where the API knows when it began. CPUSeconds, of this
	// process, and Events belong to the time from Began on.
	Began      time.Time `json:"began,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
	CPUSeconds float64   `json:"cpu_seconds,omitempty"`
	Events     int       `json:"events,omitempty"`
	Pages      int       `json:"pages,omitempty"`
	PageAllocs float64   `json:"allocs_per_page,omitempty"`
	Mallocs    uint64    `json:"mallocs"`
	PeakRSS    int64     `json:"peak_rss_bytes"`
}

// tellEnd prints the end with what the process has used by now.
func tellEnd(a *cli.App, end partEnd) error {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	end.Mallocs, end.PeakRSS = memory.Mallocs, peakRSS()
	return cli.PrintJSON(a.Stdout, end)
}

func newBenchBridgeCommand(a *cli.App) *cobra.Command {
	var without omissions
	var follow bool
	var cpu, allocs string
	cmd := &cobra.Command{
		Use:     "part-bridge",
		Short:   "Do the same as run --once, and say what it took",
		Example: "  EXPORT_URL=http://127.0.0.1:4000 KAFKA_BROKERS=127.0.0.1:9092 exportbridge-dev bench part-bridge",
		Args:    cli.NoArgs,
		Hidden:  true,
	}
	a.TakeSettings(cmd)
	cmd.Flags().BoolVar(&without.store, "forget", false, "keep no checkpoint outside Kafka")
	cmd.Flags().BoolVar(&without.observer, "unobserved", false, "keep no metrics")
	cmd.Flags().BoolVar(&follow, "follow", false, "do the same as run")
	cmd.Flags().StringVar(&cpu, "cpu-profile", "", "write a CPU profile to `FILE`")
	cmd.Flags().StringVar(&allocs, "alloc-profile", "", "write a profile of all allocations to `FILE`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := a.Settings(config.UsesAll, nil)
		if err != nil {
			return err
		}
		stop, err := profile(cpu, allocs)
		if err != nil {
			return err
		}
		err = measuredBridge(cmd.Context(), a, s, bridge.Limits{Once: !follow}, without)
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
		return tellEnd(a, partEnd{})
	}
	return cmd
}

// newBenchBackfillCommand is the command of the other program, whose flags it
// takes and whose report it prints.
func newBenchBackfillCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:                "part-backfill",
		Short:              "Do the same as exportbridge backfill",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if code := command.Program.Run(cmd.Context(), append([]string{"backfill"}, args...), a.Environ, a.Stdio); code != cli.ExitOK {
				return &cli.Error{Code: code, Err: errors.New("the backfill failed")}
			}
			return nil
		},
	}
}

// omissions are what a measured bridge does without, to show what it costs.
type omissions struct{ store, observer bool }

func (o omissions) of(p bridge.Ports) bridge.Ports {
	if o.store {
		p.Store = nil
	}
	if o.observer {
		p.Observer = nil
	}
	return p
}

// measuredBridge is what run does, but for the omissions.
func measuredBridge(ctx context.Context, a *cli.App, s *config.Settings, limits bridge.Limits, without omissions) (err error) {
	if without == (omissions{}) {
		return command.RunBridge(ctx, a, s, limits)
	}
	process.TuneMemory(a.Environ)
	line := process.NewStatusLine(a.Stderr)
	o := command.ProcessOptions(a, s, limits, process.NewLogger(line, &s.Process, a.Environ))
	o.Environ, o.Ports = nil, without.of
	p, err := process.New(ctx, s, o)
	if err != nil {
		return command.RunError(err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return command.RunError(p.Run(ctx, line))
}

// allocProfileRate is how many bytes there are between two allocations in a
// profile on average. Those of the hot path are few.
const allocProfileRate = 4096

// profile begins the profiles that have a file. The function that it returns
// ends and writes them.
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
			runtime.GC() // what was allocated since the one before the last is not
			runtime.GC() // in the profile yet
			return writeProfile(allocs, func(w io.Writer) error { return pprof.Lookup("allocs").WriteTo(w, 0) })
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

func writeProfile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
