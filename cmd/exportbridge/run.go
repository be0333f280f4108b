package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
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

// bridge runs the process that the settings describe, with the servers that it
// has inside itself.
func (a *app) bridge(ctx context.Context, s *config.Settings, limits bridge.Limits) (err error) {
	tuneMemory(a.environ)
	line := newStatusLine(a.stderr)
	log := newLogger(line, &s.Process, a.environ)
	defer flushLog(log)
	inside, err := startServers(s, serverPlan{log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, inside.close()) }()
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
	if st.Simulated {
		from += " (simulated)"
	}
	p.log.Info("stream starts", logStream, st.Name, "version", readBuildInfo().Version, "delivery", string(st.Engine.Mode),
		"api", from, "resource", st.Export.Resource, "topic", st.Kafka.Topic, "owner", st.Engine.Owner)
	if s.EmbeddedRedis {
		p.log.Warn("the embedded Redis forgets the cursor when this process ends", logStream, st.Name)
	}
	for _, unsafe := range st.Unsafe() {
		p.log.Warn("unsafe setting", logStream, st.Name, "setting", unsafe)
		p.metrics.Unsafe(st.Name, unsafe)
	}
}

// serverPlan says how the servers inside the process are to be.
type serverPlan struct {
	log       *slog.Logger
	dataDir   string
	kafkaAddr string
	redisAddr string
	apiAddr   string
	simulator exportsim.Config
}

// startServers starts the servers that the settings ask for inside the process
// and puts their addresses into the settings.
func startServers(s *config.Settings, plan serverPlan) (*backends, error) {
	v := new(backends)
	fail := func(err error) (*backends, error) { return nil, errors.Join(err, v.close()) }
	var err error
	if s.EmbeddedKafka {
		if v.kafka, err = startEmbeddedKafka(plan.kafkaAddr, plan.dataDir); err != nil {
			return fail(err)
		}
		for i := range s.Streams {
			s.Streams[i].Kafka.Brokers = []string{v.kafka.Addr}
			s.Streams[i].Kafka.CreateTopics = true
		}
	}
	if s.EmbeddedRedis {
		if v.redis, err = startEmbeddedRedis(plan.redisAddr, plan.dataDir); err != nil {
			return fail(err)
		}
		s.Cursor.URL = cursorstore.URL(v.redis.URL)
	}
	if err := v.startSimulator(s, plan); err != nil {
		return fail(err)
	}
	return v, nil
}

func (v *backends) startSimulator(s *config.Settings, plan serverPlan) error {
	for i := range s.Streams {
		st := &s.Streams[i]
		if !st.Simulated {
			continue
		}
		if v.api == nil {
			sim, err := exportsim.New(plan.simulator)
			if err != nil {
				return err
			}
			v.sim = sim
			if v.api, err = startEmbeddedSimulator(sim, plan.apiAddr); err != nil {
				sim.Close()
				return err
			}
		}
		st.Export.URL = v.api.URL
	}
	return nil
}

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }
