package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
)

// benchOptions say what a bench measures, and on what.
type benchOptions struct {
	latencies []time.Duration
	rounds    int
	pages     int
	quick     bool
	delivery  string
	kafka     string // address of a real one, "" is the embedded one
	redis     string // URL of a real one, "" is the embedded one
}

// pageEvents is the number of events on each page of a bench.
const pageEvents = 1000

func newBenchCommand(a *app) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how close the bridge comes to the limit of a serial cursor",
		Long: `Measure how close the bridge comes to the limit of a serial cursor: page n+1
cannot be asked for before page n names it, so a loop that only fetches is the
fastest there can be. Simulated export API, Kafka, Redis, that loop and
"exportbridge run --once" are processes of their own. Loop and bridge take turns,
and the ratios of each turn are compared, so that a machine that slows down for a
while slows both.

  fetch_only_20       pages x latency / wall time of the loop: the machine's own bound
  serial_fraction_20  wall time of the loop / wall time of the bridge, at 20 ms

The clock runs from the first request that reaches the API, the same for both. It
stops when the loop has its last page, and when the bridge has its last commit
acknowledged. One round before the others warms up and is not counted.

The bridge runs with its default settings; those of the environment do not reach
it. A real Kafka or Redis must accept plain connections; topics and keys that the
bench made there are deleted afterwards.`,
		Example: `  exportbridge bench
  exportbridge bench --quick --latency 5ms,20ms,50ms
  exportbridge bench --kafka localhost:9092 --redis redis://localhost:6379/0 --json`,
		GroupID: groupSetup,
		Args:    noArgs,
	}
	asJSON := takeJSON(cmd)
	flags := cmd.Flags()
	flags.DurationSliceVar(&o.latencies, "latency", []time.Duration{20 * time.Millisecond, 5 * time.Millisecond}, "latencies of the API")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds that count")
	flags.IntVar(&o.pages, "pages", 100, "pages of 1000 events to move each time; fewer than 60 show start and end more than the way")
	flags.BoolVar(&o.quick, "quick", false, "3 rounds of 60 pages, unless given otherwise")
	flags.StringVar(&o.delivery, "delivery", string(bridge.ExactlyOnce), "exactly-once or at-least-once")
	flags.StringVar(&o.kafka, "kafka", "", "`ADDRESS` of a real Kafka (default embedded)")
	flags.StringVar(&o.redis, "redis", "", "`URL` of a real Redis (default embedded)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.quick && !cmd.Flags().Changed("rounds") {
			o.rounds = 3
		}
		if o.quick && !cmd.Flags().Changed("pages") {
			o.pages = 60
		}
		if err := o.validate(); err != nil {
			return &exitError{code: exitUsage, err: err, hint: "exportbridge bench --help"}
		}
		report, err := a.bench(cmd.Context(), o)
		if err != nil {
			return err
		}
		for _, w := range report.Warnings {
			fmt.Fprintf(a.stderr, "warning: %s\n", w)
		}
		if *asJSON {
			return printJSON(a.stdout, report)
		}
		return report.print(a.stdout)
	}
	cmd.AddCommand(newBenchKafkaCommand(a), newBenchRedisCommand(a), newBenchAPICommand(a), newBenchFetchCommand(a))
	return cmd
}

func (o *benchOptions) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.delivery == string(bridge.ExactlyOnce) || o.delivery == string(bridge.AtLeastOnce), "--delivery %q is neither exactly-once nor at-least-once", o.delivery)
	check(o.rounds >= 1, "--rounds %d is below 1, for example 5", o.rounds)
	check(o.pages >= 1 && o.pages <= 10_000, "--pages %d is not within 1 and 10000, for example 100", o.pages)
	check(len(o.latencies) > 0, "--latency is empty, for example 20ms,5ms")
	if o.redis != "" {
		_, err := redis.ParseURL(o.redis)
		check(err == nil, "--redis is not the URL of a Redis, for example redis://localhost:6379/0")
	}
	seen := make(map[time.Duration]bool)
	for _, latency := range o.latencies {
		check(latency > 0 && latency <= 10*time.Second, "--latency %s is not above 0 and at most 10s, for example 20ms", latency)
		check(!seen[latency], "--latency %s comes twice", latency)
		seen[latency] = true
	}
	return errors.Join(errs...)
}

// bench measures, and reports what it measured. Everything that it started or
// wrote is gone when it returns.
func (a *app) bench(ctx context.Context, o benchOptions) (report *benchReport, err error) {
	dir, err := os.MkdirTemp("", "exportbridge-bench-*")
	if err != nil {
		return nil, fmt.Errorf("create directory for the bench: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{benchOptions: o, parts: parts{environ: withoutSettings(a.environ)}, dir: dir, progress: a.stderr}
	build := readBuildInfo()
	report = &benchReport{
		Version: build.Version, Go: build.Go, Platform: build.Platform, Cores: runtime.NumCPU(),
		Kafka: embedded, Redis: embedded, Pages: o.pages, Rounds: o.rounds,
	}
	if o.kafka != "" {
		report.Kafka = o.kafka
	}
	if o.redis != "" {
		report.Redis = "real" // the URL may hold a password
	}
	report.LoadBefore = loadAverage()
	defer func() { _, errStop := b.stop(); err = errors.Join(err, errStop) }()
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	measured, err := b.measure(ctx)
	if err != nil {
		return nil, err
	}
	report.LoadAfter = loadAverage()
	servers, err := b.stop()
	if err != nil {
		return nil, err
	}
	report.summarise(measured, servers)
	return report, nil
}

// bench is one run of the bench.
type bench struct {
	benchOptions
	parts    parts
	dir      string
	progress io.Writer

	kafkaAddr string
	redisURL  string
	apis      []*benchAPI // one for each latency
	servers   []*server
	traces    *traces // what the bridge left on Kafka and Redis
}

// start starts the servers.
func (b *bench) start(ctx context.Context) error {
	serve := func(name string, args ...string) (string, error) {
		s, err := b.parts.serve(ctx, name, args...)
		if err != nil {
			return "", err
		}
		b.servers = append(b.servers, s)
		return s.addr, nil
	}
	var err error
	if b.kafkaAddr = b.kafka; b.kafka == "" {
		if b.kafkaAddr, err = serve("kafka", "bench", "serve-kafka", "--data-dir", b.dir); err != nil {
			return err
		}
	}
	if b.redisURL = b.redis; b.redis == "" {
		if b.redisURL, err = serve("redis", "bench", "serve-redis"); err != nil {
			return err
		}
	}
	for _, latency := range b.latencies {
		url, err := serve("api "+latency.String(), "bench", "serve-api",
			"--latency", latency.String(), "--events", fmt.Sprint(b.pages*pageEvents), "--rate", "0", "--gzip=false")
		if err != nil {
			return err
		}
		b.apis = append(b.apis, &benchAPI{url: url, latency: latency})
	}
	b.traces, err = newTraces(b.kafkaAddr, b.redisURL)
	return err
}

// stop stops the servers, the last one first, and returns what each has used.
// Only the first call has an effect.
func (b *bench) stop() ([]processUse, error) {
	var used []processUse
	var errs []error
	if b.traces != nil {
		errs = append(errs, b.traces.close())
	}
	for _, s := range slices.Backward(b.servers) {
		use, err := s.stop()
		used, errs = append(used, use), append(errs, err)
	}
	slices.Reverse(used)
	b.traces, b.servers = nil, nil
	return used, errors.Join(errs...)
}

// measure runs the rounds. In every other one the bridge goes first, so that
// neither always finds the machine as the other left it.
func (b *bench) measure(ctx context.Context) ([]measurement, error) {
	var all []measurement
	for round := range b.rounds + 1 {
		for _, api := range b.apis {
			m := measurement{Round: round, LatencyMS: milliseconds(api.latency)}
			steps := []func() error{
				func() (err error) { m.Fetch, err = b.fetchOnly(ctx, api); return err },
				func() (err error) { m.Pipeline, err = b.pipeline(ctx, api); return err },
			}
			if round%2 == 1 {
				slices.Reverse(steps)
			}
			for _, step := range steps {
				if err := step(); err != nil {
					return nil, fmt.Errorf("bench at %s, round %d: %w", api.latency, round, err)
				}
			}
			name := fmt.Sprintf("round %d of %d", round, b.rounds)
			if round == 0 {
				name = "warm-up"
			} else {
				all = append(all, m)
			}
			fmt.Fprintf(b.progress, "%s, %s: fetch only %.3fs, pipeline %.3fs, ratio %.3f\n",
				name, api.latency, m.Fetch.Seconds, m.Pipeline.Seconds, m.serialFraction())
		}
	}
	return all, nil
}
