package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
)

func newRunCommand(a *app) *cobra.Command {
	var limits bridge.Limits
	var until string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Move the export into Kafka",
		Long: `Follow the cursor of the export API, publish every event to Kafka, and keep the
committed cursor in Redis. It runs until it is stopped, and goes on where it was
when it is started again. A server that is away is waited for.

The first SIGTERM or Ctrl-C finishes and commits what is in flight, within
BRIDGE_SHUTDOWN_TIMEOUT; the second ends the process at once.`,
		Example: `  EXPORT_API_KEY_FILE=key exportbridge run
  exportbridge run --once            # drain the export, commit, exit: for cron
  exportbridge run --max-events 10000`,
		GroupID: groupRun,
		Args:    noArgs,
	}
	a.takeSettings(cmd)
	cmd.Flags().BoolVar(&limits.Once, "once", false, "end when the export is drained")
	cmd.Flags().Int64Var(&limits.MaxEvents, "max-events", 0, "end at the first page boundary at or after `N` events")
	cmd.Flags().StringVar(&until, "until", "", "end at the first page boundary at or after an event of this `TIME`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("max-events") && limits.MaxEvents < 1 {
			return &exitError{code: exitUsage, err: fmt.Errorf("--max-events %d is below 1", limits.MaxEvents), hint: "--max-events 10000"}
		}
		if until != "" {
			ms, err := config.ParseInstant(until, time.Now())
			if err != nil {
				return &exitError{code: exitUsage, err: fmt.Errorf("--until: %w", err), hint: "--until 2026-11-02T00:00:00Z"}
			}
			limits.Until = ms
		}
		s, err := a.settings(cmd.Context(), config.UsesAll, nil)
		if err != nil {
			return err
		}
		a.warn(s)
		return a.bridge(cmd.Context(), s, limits)
	}
	return cmd
}

// bridge runs the process that the settings describe.
func (a *app) bridge(ctx context.Context, s *config.Settings, limits bridge.Limits) (err error) {
	tuneMemory(a.environ)
	line := newStatusLine(a.stderr)
	log := newLogger(line, &s.Process, a.environ)
	defer flushLog(log)
	p, err := assemble(ctx, s, limits, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for i := range s.Streams {
		p.announce(&s.Streams[i], s)
	}
	show := func(ctx context.Context) error { return p.runShown(ctx, line) }
	return p.notified(ctx, newNotifier(ctx, a.environ, log), show)
}

// announce says once, at the start, what a stream does and which of its
// settings deserve attention.
func (p *process) announce(st *config.Stream, s *config.Settings) {
	from := st.Export.URL
	p.log.Info("stream starts", logStream, st.Name, "version", readBuildInfo().Version, "delivery", string(st.Engine.Mode),
		"api", from, "resource", st.Export.Resource, "topic", st.Kafka.Topic, "owner", st.Engine.Owner)
	for _, unsafe := range st.Unsafe() {
		p.log.Warn("unsafe setting", logStream, st.Name, "setting", unsafe)
		p.metrics.Unsafe(st.Name, unsafe)
	}
}

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }
