package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/dev/embedded"
	"exportbridge/cmd/internal/process"
)

// chaosFaults are the faults of --chaos.
const chaosFaults = "429=2%,500=2%,503=1%,reset=1%,truncate=1%"

// demoHTTP is the address of the demo's page and metrics, unless the port is taken.
const demoHTTP = "127.0.0.1:8080"

// demoOptions are the flags of demo.
type demoOptions struct {
	plan  demoPlan
	runs  time.Duration
	chaos bool
}

func newDemoCommand(a *cli.App) *cobra.Command {
	d := demoOptions{plan: demoPlan{simulator: exportsim.Config{Rate: 50, Events: 12_000, Seed: 1}}}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run API, Kafka, Redis and bridge in one process",
		Long: `Run a simulated export API, an embedded Kafka, an embedded Redis and the bridge
in one process. Other Kafka and Redis clients can connect. If a default port is
in use, the demo takes a free one. --data-dir keeps Kafka's data between runs;
an exactly-once stream resumes from it. Ctrl-C stops the demo.`,
		Example: `  exportbridge-dev demo
  exportbridge-dev demo --rate 500/s --chaos
  exportbridge-dev demo --duration 30s --data-dir /tmp/demo`,
		GroupID: groupTry,
		Args:    cli.NoArgs,
	}
	a.TakeSettings(cmd)
	flags := cmd.Flags()
	flags.Var(cli.Parsed(&d.plan.simulator.Rate, parseRate, "RATE").Shown(formatRate(d.plan.simulator.Rate)+"/s"),
		"rate", "growth of the export, such as 500/s")
	flags.IntVar(&d.plan.simulator.Events, "events", d.plan.simulator.Events, "initial events")
	flags.Var(cli.Parsed(&d.runs, parseRun, "DURATION"), "duration", "exit after this time, such as 60s")
	flags.StringVar(&d.plan.dataDir, "data-dir", "", "keep Kafka's data in `DIR` and resume from it")
	flags.StringVar(&d.plan.kafkaAddr, "kafka-addr", "",
		"`ADDRESS` of Kafka (default "+embedded.DefaultKafka+", or a free port)")
	flags.StringVar(&d.plan.redisAddr, "redis-addr", "",
		"`ADDRESS` of Redis (default "+embedded.DefaultRedis+", or a free port)")
	flags.StringVar(&d.plan.apiAddr, "api-addr", "",
		"`ADDRESS` of the export API (default "+embedded.DefaultAPI+", or a free port)")
	flags.BoolVar(&d.chaos, "chaos", false, "inject errors and latency into the API")
	cli.Renamed(cmd, "for", "duration")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return demo(cmd.Context(), a, &d) }
	return cmd
}

func demo(ctx context.Context, a *cli.App, d *demoOptions) (err error) {
	if d.runs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.runs)
		defer cancel()
	}
	s, err := demoSettings(a)
	if err != nil {
		return err
	}
	a.Warn(s)
	if d.chaos {
		d.plan.simulator.Latency = 50 * time.Millisecond
		if d.plan.simulator.Faults, err = exportsim.ParseFaults(chaosFaults); err != nil {
			return err
		}
	}
	if d.plan.dataDir != "" {
		if err := resumeStock(d.plan.dataDir, &d.plan.simulator); err != nil {
			return err
		}
	}
	inside, err := startServers(s, &d.plan)
	if err != nil {
		return err
	}
	defer func() {
		if d.plan.dataDir != "" && inside.sim != nil {
			stock := demoStock{Start: d.plan.simulator.Start, Every: d.plan.simulator.Every, Events: inside.sim.Stock()}
			err = errors.Join(err, saveStock(d.plan.dataDir, stock))
		}
		err = errors.Join(err, inside.close())
	}()
	return showDemo(ctx, a, d, s, inside)
}

// demoSettings loads the settings. A server that no flag names has a notStarted address:
// the demo starts it.
func demoSettings(a *cli.App) (*config.Settings, error) {
	preset := map[string]string{
		"EXPORT_URL": notStartedURL, "KAFKA_BROKERS": notStartedAddr, "REDIS_URL": notStartedRedis,
		"EXPORT_API_KEY": "any",
	}
	if _, given := a.Given["LOG_LEVEL"]; !given && process.IsTerminal(a.Stderr) {
		preset["LOG_LEVEL"] = "warn" // the status line shows the rest
	}
	s, err := a.Settings(config.UsesAll, preset)
	if err != nil {
		return nil, err
	}
	for i := range s.Streams {
		if s.Streams[i].Export.URL != notStartedURL { // the key of the demo's own API is not for another API
			delete(preset, "EXPORT_API_KEY")
			return a.Settings(config.UsesAll, preset)
		}
	}
	return s, nil
}

// showDemo runs the bridge and prints the addresses of the servers.
func showDemo(ctx context.Context, a *cli.App, d *demoOptions, s *config.Settings, inside *demoServers) (err error) {
	line := process.NewStatusLine(a.Stderr)
	log := process.NewLogger(line, &s.Process, a.Environ)
	defer process.FlushLog(log)
	s.HTTP.Addr = freeIfTaken(s.HTTP.Addr)
	o := command.ProcessOptions(a, engine.Limits{}, log)
	o.Environ = nil // systemd does not watch a demo
	p, err := process.New(ctx, s, o)
	if err != nil {
		return command.RunError(err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	welcome(a.Stdout, s, inside, d, p)
	began := time.Now()
	err = command.RunError(p.Run(ctx, line))
	fmt.Fprintf(a.Stdout, "  stopped after %s: %s published\n", cli.RoundDuration(time.Since(began)),
		cli.Counted(p.Published(), "event"))
	return err
}

// freeIfTaken replaces the default address by a free one if another process listens
// there. It keeps an address that the user chose.
func freeIfTaken(addr string) string {
	if addr != demoHTTP {
		return addr
	}
	l, moved, err := embedded.ListenAt("", demoHTTP)
	if err != nil {
		return addr
	}
	_ = l.Close() // it only showed whether the port is free
	if moved {
		return embedded.FreePort(demoHTTP)
	}
	return addr
}

// welcome prints the addresses and commands to try.
func welcome(w io.Writer, s *config.Settings, v *demoServers, d *demoOptions, p *process.Process) {
	note := func(moved bool) string {
		if moved {
			return " (the default port is in use)"
		}
		return ""
	}
	st := &s.Streams[0]
	if v.api != nil {
		sim := d.plan.simulator
		fmt.Fprintf(w, "  export API  %s  simulated, %s events/s, %s initial events%s\n", v.api.URL, formatRate(sim.Rate),
			humanize.Comma(int64(sim.Events)), note(v.api.Moved))
	}
	if v.kafka != nil {
		fmt.Fprintf(w, "  Kafka       %s, embedded, topic %s (%d partitions)%s\n", v.kafka.Addr, st.Kafka.Topic,
			st.Kafka.Partitions, note(v.kafka.Moved))
	}
	if v.redis != nil {
		fmt.Fprintf(w, "  Redis       %s, embedded%s\n", v.redis.Addr, note(v.redis.Moved))
	}
	if addr := p.Addr(); addr != nil {
		scheme := "http"
		if s.HTTP.TLS() {
			scheme = "https"
		}
		fmt.Fprintf(w, "  web UI      %s://%s%s\n", scheme, addr, note(addr.String() != demoHTTP &&
			s.HTTP.Addr == embedded.FreePort(demoHTTP)))
	}
	suggest(w, s, v)
}

// suggest prints commands that work as they are.
func suggest(w io.Writer, s *config.Settings, v *demoServers) {
	st := &s.Streams[0]
	kafka, redis := "", ""
	if v.kafka != nil && v.kafka.Addr != embedded.DefaultKafka {
		kafka = " --kafka-brokers " + v.kafka.Addr
	}
	if v.redis != nil && v.redis.Addr != embedded.DefaultRedis {
		redis = "REDIS_URL=" + v.redis.URL + " "
	}
	program := programName()
	name := func(command string) string {
		if len(s.Streams) > 1 {
			return process.NameStream(command, st.Name)
		}
		return command
	}
	fmt.Fprintf(w, "  try:  %s\n", name(program+" tail -n 5"+kafka))
	fmt.Fprintf(w, "        kcat -b %s -C -t %s -c 5\n", st.Kafka.Brokers[0], st.Kafka.Topic)
	fmt.Fprintf(w, "        %s\n", name(redis+program+" cursor rewind --shift-by -3 --execute"+kafka))
}

// programName returns the command for exportbridge. It runs the source if that is here and
// the program is not installed.
func programName() string {
	const installed, source = "exportbridge", "./cmd/exportbridge"
	_, missing := exec.LookPath(installed)
	if _, err := os.Stat(source + "/main.go"); missing != nil && err == nil {
		return "go run -pgo=off " + source
	}
	return installed
}

// parseRun reads the duration of a demo.
func parseRun(text string) (time.Duration, error) {
	d, err := bridge.ParseDuration(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%s is not above 0", text)
	}
	return d, err
}
