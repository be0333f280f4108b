package command

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/metrics"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command/records"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
	"exportbridge/cursorstore"
)

func newRunCommand(a *cli.App) *cobra.Command {
	var limits engine.Limits
	var until string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the bridge",
		Long: `Follow the cursor of the export API and publish every event to Kafka. By
default, events and cursor are committed in one Kafka transaction; Redis keeps a
copy of the cursor. The command runs until it is stopped; the next start resumes
at the last commit. Unreachable servers are retried.

With BRIDGE_CONFIG, SIGHUP or a change of the file reloads the settings: streams
are added and removed, and restarted if their own settings changed. A mistake
changes nothing and is reported.

The first SIGTERM or Ctrl-C commits the batch in flight within
BRIDGE_SHUTDOWN_TIMEOUT, and exits at most 3 s later. The second exits at once.`,
		Example: `  EXPORT_API_KEY_FILE=key exportbridge run
  exportbridge run --once            # drain the export, commit, exit: for cron
  exportbridge run --max-events 10000`,
		GroupID: groupRun,
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	cmd.Flags().BoolVar(&limits.Once, "once", false, "exit when the export is drained")
	cmd.Flags().Int64Var(&limits.MaxEvents, "max-events", 0, "exit at the first page boundary at or after `N` events")
	cmd.Flags().StringVar(&until, "until", "", "exit at the first page boundary at or after event `TIME`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("max-events") && limits.MaxEvents < 1 {
			return cli.WrongUsage("--max-events 10000", "--max-events %d is below 1", limits.MaxEvents)
		}
		if cmd.Flags().Changed("until") {
			const example = "--until 2026-11-02T00:00:00Z"
			ms, err := bridge.ParseInstant(until, time.Now())
			switch {
			case err != nil:
				return cli.WrongUsage(example, "--until: %w", err)
			case ms == 0:
				return cli.WrongUsage(example, "--until %s is before every event", until)
			}
			limits.Until = ms
		}
		s, err := a.LogSettings(config.UsesAll)
		if err != nil {
			return err
		}
		for i := range s.Streams {
			if st := &s.Streams[i]; limits.Until > 0 && st.Export.Undated() {
				return cli.WrongUsage("--max-events 10000",
					"--until never ends stream %s: its items have no time (EXPORT_ITEM_TIME)", st.Name)
			}
		}
		a.Warn(s)
		return RunBridge(cmd.Context(), a, s, limits)
	}
	return cmd
}

// RunBridge runs a bridge with these settings.
func RunBridge(ctx context.Context, a *cli.App, s *config.Settings, limits engine.Limits) error {
	process.TuneMemory(a.Environ)
	line := process.NewStatusLine(a.Stderr)
	log := process.NewLogger(line, &s.Process, a.Environ)
	defer process.FlushLog(log)
	o := ProcessOptions(a, limits, log)
	if s.ConfigFile != "" && !limits.Bounded() {
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
		o.Reload = &process.Reload{Load: a.Reload, Now: hangups}
	}
	p, err := process.New(ctx, s, o)
	if err != nil {
		return RunError(err)
	}
	p.Announce(s)
	return RunError(p.RunAndClose(ctx, line))
}

// ProcessOptions returns the options of the process of a bridge.
func ProcessOptions(a *cli.App, limits engine.Limits, log *slog.Logger) process.Options {
	build := cli.ReadBuildInfo()
	var jobs kafkasink.JobLogs
	return process.Options{
		Build:   metrics.Build{Version: build.Version, Revision: build.Revision, GoVersion: build.Go},
		Limits:  limits,
		Log:     log,
		Environ: a.Environ,
		Control: func(client *cursorstore.Client, s *config.Settings) (map[string]ops.Controller, ops.Records) {
			return controllers(client, s, new(kafkaclient.Shared)), records.NewReader(s)
		},
		Windows: func(st *config.Stream) func(context.Context, time.Duration) (map[string]int, error) {
			return backfill.NewJobs(st.Kafka.Jobs(&jobs), st.Name).CountWindows
		},
		Describe: describeStreams,
	}
}

// controllers returns the controllers of all streams for the HTTP server. They share a
// Kafka client for the repeated requests of the web UI.
func controllers(
	client *cursorstore.Client, s *config.Settings, shared *kafkaclient.Shared,
) map[string]ops.Controller {
	all := make(map[string]ops.Controller, len(s.Streams))
	for i := range s.Streams {
		c := controllerOf(client, s, &s.Streams[i], shared)
		all[c.Stream()] = c
	}
	return all
}

// RunError adds the exit code and the hint to the error of a run.
func RunError(err error) error {
	if listening, ok := errors.AsType[*process.ListenError](err); ok {
		return cli.WrongUsage(listenHint(err), "%w", listening)
	}
	if blocked, ok := errors.AsType[*bridge.BlockedError](err); ok {
		return &cli.Error{Code: cli.ExitRefused, Err: err, Hint: blocked.Hint}
	}
	if dead, ok := errors.AsType[*process.DeadError](err); ok {
		hint := "exportbridge check --only api --sample 5, and exportbridge dlq list --stream " + dead.Stream
		return &cli.Error{Code: cli.ExitCheck, Err: err, Hint: hint}
	}
	if _, cut := errors.AsType[*process.EmptyEndError](err); cut {
		return &cli.Error{Code: cli.ExitEmptyEnd, Err: err, Hint: cli.EngineHints[bridge.HintEmptyEnd]}
	}
	if unread, ok := errors.AsType[*process.UnreadError](err); ok {
		return &cli.Error{Code: cli.ExitEmptyEnd, Err: err, Hint: unread.Warning.Hint}
	}
	if errors.Is(err, engine.ErrShutdown) || errors.Is(err, process.ErrShutdown) {
		const hint = "raise BRIDGE_SHUTDOWN_TIMEOUT, or check Kafka and Redis: exportbridge check"
		return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: hint}
	}
	return err
}

// listenHint returns the hint for an error of an address or of the audit log.
func listenHint(err error) string {
	if audit, ok := errors.AsType[*fs.PathError](err); ok {
		if errors.Is(err, fs.ErrNotExist) {
			return "create the directory " + filepath.Dir(audit.Path) + ", or name another file in HTTP_AUDIT_LOG"
		}
		return "name a file in HTTP_AUDIT_LOG that this user can write, or - for standard output"
	}
	if addr, ok := errors.AsType[*ops.AddrError](err); ok && addr.Setting == "HTTP_PROBE_ADDR" {
		return "choose another HTTP_PROBE_ADDR, such as :8082"
	}
	return "choose another address, such as 127.0.0.1:0, or HTTP_ADDR=off"
}
