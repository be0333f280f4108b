package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/cli"
)

// benchOptions say what a bench measures, and on what.
type benchOptions struct {
	rows     []string // names, or their beginnings; none are all
	rounds   int
	pages    int
	quick    bool
	delivery string
	kafka    string // address of a real one, "" is the embedded one
	redis    string // URL of a real one, "" is the embedded one
	against  string // another program
	profile  string // directory, "" is none
}

// pageEvents is the number of events on each page of a bench.
const pageEvents = 1000

const benchHelp = `Measure how close the bridge comes to the limits, on this machine.

A cursor is serial: page n+1 cannot be asked for before page n names it, so a loop
that only fetches is the fastest there can be. And no bridge is faster than Kafka's
client with records from memory. Each row of the table is the ratio of two such
runs, or of the bridge and the loops that are usually written, with its goal. A few
rows are no ratios and marked so: they hold for this machine.

Simulated export API, Kafka, Redis and what is measured are processes of their
own. All cells of a round run one after the other, every other round backwards,
and the ratios of each round are compared, so that a machine that slows down for a
while slows both sides. One short round before the others warms up and is not
counted. While the machine has other work there is no verdict, only "busy".

The clock runs from the first request that reaches the API. It stops when a loop
has its last page, or the bridge has its last commit acknowledged. The bridge runs
with its default settings; those of the environment do not reach it. A real Kafka
or Redis must accept plain connections; topics and keys that the bench made there
are deleted afterwards.

--against measures another program in the same rounds: its words, split at
spaces, are started for each run with these variables, all that it needs to know.
It is told to end (SIGTERM) when a read_committed consumer has seen as many
records as the export has events; then it has ten seconds.

  EXPORT_URL EXPORT_API_KEY EXPORT_PAGE_SIZE    follow GET $EXPORT_URL/events
  KAFKA_BROKERS KAFKA_TOPIC KAFKA_DLQ_TOPIC KAFKA_CHECKPOINT_TOPIC
  KAFKA_DELIVERY KAFKA_COMPRESSION              as the bridge has them
  REDIS_URL CURSOR_PREFIX BRIDGE_GROUP          names of its own for each run`

func newBenchCommand(a *cli.App) *cobra.Command {
	var o benchOptions
	var list bool
	cmd := &cobra.Command{
		Use:   "bench [row ...]",
		Short: "Measure how close the bridge comes to the limits",
		Long:  benchHelp,
		Example: `  exportbridge-dev bench
  exportbridge-dev bench --list
  exportbridge-dev bench --quick --kafka localhost:9092
  exportbridge-dev bench serial_fraction raw_fraction_none --rounds 5 --json
  exportbridge-dev bench against --against "./other --config other.yaml"`,
		GroupID: groupTry,
	}
	asJSON := cli.TakeJSON(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&list, "list", false, "list the rows and measure nothing")
	flags.IntVar(&o.rounds, "rounds", 3, "rounds that count")
	flags.IntVar(&o.pages, "pages", 100, "pages of 1000 events to move each time, some times as many without API latency; fewer than 60 show start and end more than the way")
	flags.BoolVar(&o.quick, "quick", false, "fewer rows, and 60 pages unless given otherwise: less than a minute")
	flags.StringVar(&o.delivery, "delivery", string(bridge.ExactlyOnce), "exactly-once or at-least-once, for the rows that do not compare them")
	cli.Offer(cmd, "delivery", string(bridge.ExactlyOnce), string(bridge.AtLeastOnce))
	flags.StringVar(&o.kafka, "kafka", "", "`ADDRESS` of a real Kafka (default embedded)")
	flags.StringVar(&o.redis, "redis", "", "`URL` of a real Redis (default embedded)")
	flags.StringVar(&o.against, "against", "", "`COMMAND` of another program to measure beside the bridge")
	flags.StringVar(&o.profile, "profile", "", "write CPU and allocation profiles of the bridge to `DIR`, one of each for each kind of run")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.rows = args
		if o.quick && !cmd.Flags().Changed("pages") {
			o.pages = 60
		}
		if err := o.validate(); err != nil {
			return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "exportbridge-dev bench --help"}
		}
		if list {
			return listRows(a, &o, *asJSON)
		}
		report, err := runBench(cmd.Context(), a, o)
		if err != nil {
			return err
		}
		for _, w := range report.Warnings {
			fmt.Fprintf(a.Stderr, "warning: %s\n", w)
		}
		if *asJSON {
			return cli.PrintJSON(a.Stdout, report)
		}
		return report.print(a.Stdout)
	}
	cmd.AddCommand(benchParts(a)...)
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
	check(o.against == "" || strings.TrimSpace(o.against) != "", "--against names no program, for example \"./other --config other.yaml\"")
	if o.redis != "" {
		_, err := redis.ParseURL(o.redis)
		check(err == nil, "--redis is not the URL of a Redis, for example redis://localhost:6379/0")
	}
	return errors.Join(errs...)
}

// planner makes the rows on so many brokers.
func (o *benchOptions) planner(brokers int) *planner {
	return &planner{pages: o.pages, mode: bridge.Mode(o.delivery), brokers: brokers, against: o.against != ""}
}

// listRows prints what could be measured.
func listRows(a *cli.App, o *benchOptions, asJSON bool) error {
	chosen, err := choose(o.planner(1).rows(), o.rows, o.quick)
	if err != nil {
		return err
	}
	table := [][]string{{"ROW", "GOAL", "WHAT IT IS"}}
	listed := make([]benchRow, len(chosen))
	for i, r := range chosen {
		listed[i] = benchRow{Name: r.name, About: r.about, Unit: r.unit, Absolute: r.absolute, Direction: r.direction}
		if r.direction != noGoal {
			listed[i].Goal = &r.goal
		}
		table = append(table, []string{r.name, listed[i].goalText(), r.about})
	}
	if asJSON {
		return cli.PrintJSON(a.Stdout, listed)
	}
	return cli.PrintTable(a.Stdout, table, 0)
}

// bench measures, and reports what it measured. Everything that it started or
// wrote is gone when it returns.
func runBench(ctx context.Context, a *cli.App, o benchOptions) (report *benchReport, err error) {
	// Before anything is started: what is asked for may not exist.
	if _, err := choose(o.planner(1).rows(), o.rows, o.quick); err != nil {
		return nil, err
	}
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil { //nolint:gosec // profiles are to be shown
			return nil, fmt.Errorf("create directory for profiles: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "exportbridge-bench-*")
	if err != nil {
		return nil, fmt.Errorf("create directory for the bench: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{benchOptions: o, parts: parts{environ: withoutSettings(a.Environ)}, dir: dir, progress: a.Stderr}
	report = newBenchReport(&o)
	load := watchLoad()
	report.LoadBefore = load.before
	defer func() { _, errStop := b.stop(); err = errors.Join(err, errStop) }()
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	rounds, err := b.measure(ctx, load)
	if err != nil {
		return nil, err
	}
	report.LoadAfter, report.Brokers = loadAverage(), b.brokers
	if report.Servers, err = b.stop(); err != nil {
		return nil, err
	}
	report.OthersBefore = load.first
	report.Others = load.others(o.kafka == "" && o.redis == "")
	report.summarise(b.chosen, rounds)
	return report, nil
}

// newBenchReport describes what is about to be measured.
func newBenchReport(o *benchOptions) *benchReport {
	build := cli.ReadBuildInfo()
	report := &benchReport{
		Version: build.Version, Go: build.Go, Platform: build.Platform, Cores: runtime.NumCPU(), Date: time.Now().UTC().Truncate(time.Second),
		Kafka: "embedded", Redis: "embedded", Pages: o.pages, Rounds: o.rounds, Against: o.against,
	}
	if o.kafka != "" {
		report.Kafka = o.kafka
	}
	if o.redis != "" {
		report.Redis = "real" // the URL may hold a password
	}
	return report
}

// bench is one run of the bench.
type bench struct {
	benchOptions
	parts    parts
	dir      string
	progress io.Writer

	brokers   int
	chosen    []row
	cells     []cell
	kafkaAddr map[kafkaPath]string
	redisURL  string
	redisFar  string // the same Redis behind a proxy
	apis      map[apiKind]*benchAPI
	servers   []*server
	traces    *benchBackends // what the bridge left on Kafka and Redis
}

// serve starts a server and returns its address.
func (b *bench) serve(ctx context.Context, name string, args ...string) (string, error) {
	s, err := b.parts.serve(ctx, name, args...)
	if err != nil {
		return "", err
	}
	b.servers = append(b.servers, s)
	return s.addr, nil
}

// start starts the servers that all rows need, chooses the rows, and starts
// the servers that their cells need.
func (b *bench) start(ctx context.Context) error {
	var err error
	b.kafkaAddr = map[kafkaPath]string{pathDirect: b.kafka}
	if b.kafka == "" {
		if b.kafkaAddr[pathDirect], err = b.serve(ctx, "kafka", "bench", "serve-kafka", "--data-dir", b.dir); err != nil {
			return err
		}
	}
	if b.redisURL = b.redis; b.redis == "" {
		if b.redisURL, err = b.serve(ctx, "redis", "bench", "serve-redis"); err != nil {
			return err
		}
	}
	if b.traces, err = newBenchBackends(b.kafkaAddr[pathDirect], b.redisURL); err != nil {
		return err
	}
	if b.brokers, err = b.traces.brokers(ctx); err != nil {
		return err
	}
	if b.chosen, err = choose(b.planner(b.brokers).rows(), b.rows, b.quick); err != nil {
		return err
	}
	b.cells = withHeadroom(cellsOf(b.chosen), b.pages)
	for _, c := range b.cells {
		if err := b.startFor(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// startFor starts what a cell needs and is not there yet.
func (b *bench) startFor(ctx context.Context, c cell) (err error) {
	if b.kafkaAddr[c.kafka] == "" {
		args := []string{"bench", "serve-proxy", "--to", b.kafkaAddr[pathDirect]}
		if c.kafka == pathFar {
			args = append(args, "--delay", farRoundTrip.String())
		} else {
			args = append(args, "--delay", slowCommit.String(), "--spread", slowCommitSpread.String(), "--commits")
		}
		if b.kafkaAddr[c.kafka], err = b.serve(ctx, string(c.kafka), args...); err != nil {
			return err
		}
	}
	if c.redisFar && b.redisFar == "" {
		target, err := url.Parse(b.redisURL)
		if err != nil {
			return errors.New("the URL of Redis is not one") // what it says may hold a password
		}
		target.Host, err = b.serve(ctx, "Redis 5ms away", "bench", "serve-proxy", "--plain", "--to", target.Host, "--delay", farRoundTrip.String())
		if err != nil {
			return err
		}
		b.redisFar = target.String()
	}
	return b.startAPI(ctx, c)
}

// startAPI starts the API that a cell asks, if it is not there yet.
func (b *bench) startAPI(ctx context.Context, c cell) error {
	if b.apis[c.api] != nil || c.growing {
		return nil
	}
	args := []string{
		"--latency", c.api.latency.String(), "--rate", "0", "--bandwidth", fmt.Sprintf("%dmbit", c.api.mbit),
		fmt.Sprintf("--gzip=%t", c.api.gzip), fmt.Sprintf("--cursor-first=%t", c.api.cursorFirst),
		// The API must not be what limits the others, nor take their processors.
		"--prerender", "--events", fmt.Sprint(b.mostPages(c.api) * pageEvents),
	}
	at, err := b.serve(ctx, "api "+c.api.String(), append([]string{"bench", "serve-api"}, args...)...)
	if err != nil {
		return err
	}
	if b.apis == nil {
		b.apis = make(map[apiKind]*benchAPI)
	}
	b.apis[c.api] = &benchAPI{url: at}
	return nil
}

// mostPages is how many pages the longest cell of an API has. The pages of a
// backfill's windows are no others', and are not rendered ahead.
func (b *bench) mostPages(api apiKind) int {
	most := 0
	for _, c := range b.cells {
		if c.api == api && c.windows == 0 {
			most = max(most, c.pages)
		}
	}
	return most
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

// measure runs the rounds: a short one to warm up, then those that count. In
// every other one the cells run backwards, so that none always finds the
// machine as the same other one left it.
func (b *bench) measure(ctx context.Context, load *loadWatch) ([]map[cell]benchRun, error) {
	fmt.Fprintf(b.progress, "%s in %s a round, %s and one to warm up\n",
		count(len(b.chosen), "row"), count(len(b.cells), "cell"), count(b.rounds, "round"))
	var rounds []map[cell]benchRun
	began := time.Now()
	for round := range b.rounds + 1 {
		if err := load.sample(ctx); err != nil {
			return nil, err
		}
		measured, err := b.round(ctx, round)
		if err != nil {
			return nil, err
		}
		if round == 0 {
			fmt.Fprintf(b.progress, "warm-up: %s\n", cli.RoundDuration(time.Since(began)))
			began = time.Now()
			continue
		}
		rounds = append(rounds, measured)
		each := time.Since(began) / time.Duration(round)
		fmt.Fprintf(b.progress, "round %d of %d: %s", round, b.rounds, cli.RoundDuration(each))
		if left := b.rounds - round; left > 0 {
			fmt.Fprintf(b.progress, ", about %s left", cli.RoundDuration(time.Duration(left)*each))
		}
		fmt.Fprintln(b.progress)
	}
	return rounds, nil
}

// round runs all cells once.
func (b *bench) round(ctx context.Context, round int) (map[cell]benchRun, error) {
	order := slices.Clone(b.cells)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	measured := make(map[cell]benchRun, len(order))
	for _, c := range order {
		shown := c
		if round == 0 {
			shown = c.warmUp()
		}
		s, err := b.run(ctx, shown)
		if err != nil {
			return nil, fmt.Errorf("%s, round %d: %w", c, round, err)
		}
		s.Round, s.Cell = round, c.String()
		measured[c] = s
	}
	return measured, nil
}

// slug makes a file's name of a cell's.
func slug(name string) string { return strings.NewReplacer(", ", "_", " ", "-").Replace(name) }
