// Package bench measures how close the bridge comes to its limits: a loop that
// only fetches, and a Kafka client that produces from memory.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/cmd/internal/cli"
)

// options say what to measure, and on which servers.
type options struct {
	rows    []string // names or prefixes; none are all
	rounds  int
	pages   int
	quick   bool
	kafka   string // address of a real Kafka, "" for the embedded one
	redis   string // address of a real Redis, "" for the embedded one
	profile string // directory, "" is none
}

// takeServers adds the flags that name real servers.
func (o *options) takeServers(flags *pflag.FlagSet) {
	flags.StringVar(&o.kafka, "kafka", "", "`ADDRESS` of a real Kafka (default embedded)")
	flags.StringVar(&o.redis, "redis", "", "`ADDRESS` of a real Redis (default embedded)")
}

// pageEvents is the number of events on each page.
const pageEvents = 1000

const help = `Measure how close the bridge comes to its limits, on this machine.

There are two upper bounds: a loop that only fetches, since page n+1 can be
requested only after page n returned its cursor; and the Kafka client producing
from memory. Most rows are the ratio of two runs. Rows marked * are absolute and
specific to this machine.

The simulated export API, Kafka, Redis and the measured program are separate
processes. All runs of a round follow each other, in reverse order in every
second round, and ratios are taken within a round: a machine that slows down
slows both sides. A short first round warms up and does not count. If the
machine is busy with other work, the verdict is "busy".

The clock runs from the first request to the last page (loops) or to the last
acknowledged commit (the bridge). ROW is the name of a row or the beginning of
some. The bridge runs with default settings; those of the environment are
ignored. A real Kafka and a real Redis must accept plain connections; what the
benchmark writes there is deleted afterwards.

broker_cpu rows need Linux. They measure the embedded Kafka, or all brokers of
--kafka if each is a process of this user on this machine, outside a container;
otherwise the rows are left out. Nothing else may use Kafka meanwhile.`

// NewCommand makes the command bench, in the help's group of that name.
func NewCommand(a *cli.App, group string) *cobra.Command {
	var o options
	var list bool
	cmd := &cobra.Command{
		Use:   "bench [ROW ...]",
		Short: "Measure how close the bridge comes to its limits",
		Long:  help,
		Example: `  exportbridge-dev bench
  exportbridge-dev bench --list
  exportbridge-dev bench --quick --kafka localhost:9092
  exportbridge-dev bench serial_fraction raw_fraction_none --rounds 5 --json`,
		GroupID: group,
	}
	asJSON := cli.TakeJSON(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&list, "list", false, "list the rows without measuring")
	flags.IntVar(&o.rounds, "rounds", 3, "measured rounds")
	flags.IntVar(&o.pages, "pages", 100, "pages of 1000 events per run")
	flags.BoolVar(&o.quick, "quick", false, "fewer rows, 60 pages per run")
	o.takeServers(flags)
	flags.StringVar(&o.profile, "profile", "", "write profiles of the bridge to `DIR`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.rows = args
		if o.quick && !cmd.Flags().Changed("pages") {
			o.pages = 60
		}
		if err := o.validate(); err != nil {
			return cli.WrongUsage("exportbridge-dev bench --help", "%w", err)
		}
		// A wrong name is found before anything starts.
		chosen, err := o.choose(1)
		if err != nil {
			return err
		}
		if list {
			return listRows(a, chosen, *asJSON)
		}
		report, err := measure(cmd.Context(), a, o)
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
	cmd.AddCommand(newPartCommand(a), newFleetCommand(a))
	return cmd
}

func (o *options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.rounds >= 1, "--rounds %d is below 1, for example 5", o.rounds)
	check(o.pages >= 1 && o.pages <= 10_000, "--pages %d is not within 1 and 10000, for example 100", o.pages)
	return errors.Join(errs...)
}

// choose returns the rows to measure on so many brokers.
func (o *options) choose(brokers int) ([]row, error) {
	p := &planner{pages: o.pages, brokers: brokers}
	return choose(p.rows(), o.rows, o.quick)
}

// listRows prints the definitions of the rows.
func listRows(a *cli.App, rows []row, asJSON bool) error {
	listed := make([]result, len(rows))
	for i := range rows {
		listed[i] = rows[i].unmeasured()
	}
	if asJSON {
		return cli.PrintJSON(a.Stdout, listed)
	}
	for _, r := range listed {
		fmt.Fprintf(a.Stdout, "%-32s%s\n    %s\n", r.Name, r.goalText(), r.About)
	}
	return nil
}

// measure runs the benchmark.
func measure(ctx context.Context, a *cli.App, o options) (*report, error) {
	r := newReport(&o)
	load := loadWatch{start: readCPU()}
	var chosen []row
	var rounds []map[cell]measurement
	err := withServers(ctx, a, o, func(b *bench) (err error) {
		if err := b.start(ctx); err != nil {
			return err
		}
		chosen, r.Brokers = b.chosen, b.brokers
		rounds, err = b.measure(ctx, &load)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.Others = load.others(o.kafka == "")
	r.summarize(chosen, rounds)
	return r, nil
}

// withServers starts Kafka and Redis, unless o names them, and calls do. When it returns, the servers
// that it and do started have ended, and their files are deleted.
func withServers(ctx context.Context, a *cli.App, o options, do func(*bench) error) (err error) {
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil { //nolint:gosec // profiles are public
			return fmt.Errorf("create directory for profiles: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "exportbridge-bench-*")
	if err != nil {
		return fmt.Errorf("create directory for the benchmark: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{options: o, processes: processes{withoutSettings(a.Environ)}, dir: dir, progress: a.Stderr}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := b.startServers(ctx); err != nil {
		return err
	}
	return do(b)
}

// embeddedServer stands in a report for a server that is not a real one.
const embeddedServer = "embedded"

// newReport describes what is about to be measured.
func newReport(o *options) *report {
	build := cli.ReadBuildInfo()
	return &report{
		Version: build.Version, Go: build.Go, Platform: build.Platform, Cores: runtime.NumCPU(),
		Date:  time.Now().UTC().Truncate(time.Second),
		Kafka: cmp.Or(o.kafka, embeddedServer), Redis: cmp.Or(o.redis, embeddedServer), Pages: o.pages, Rounds: o.rounds,
	}
}

// bench is one run of the benchmark.
type bench struct {
	options
	processes processes
	dir       string
	progress  io.Writer

	brokers int
	// brokerPIDs and redisPIDs are the servers' processes; none if they cannot be found.
	brokerPIDs, redisPIDs []int
	chosen                []row
	cells                 []cell
	kafkaAddr             map[kafkaPath]string
	redisAddr             string
	redisFar              string // address of the same Redis behind a proxy
	apis                  map[apiKind]apiServer
	servers               []*server
	backend               *backend
}

// serve starts a server and returns its address.
func (b *bench) serve(ctx context.Context, name string, p part) (string, error) {
	s, err := b.processes.serve(ctx, name, nil, p.args())
	if err != nil {
		return "", err
	}
	b.servers = append(b.servers, s)
	return s.addr, nil
}

// startServers starts Kafka and Redis, unless an option names them.
func (b *bench) startServers(ctx context.Context) (err error) {
	b.kafkaAddr = map[kafkaPath]string{pathDirect: b.kafka}
	if b.kafka == "" {
		if b.kafkaAddr[pathDirect], err = b.serve(ctx, "Kafka", part{Kind: serverKafka, Dir: b.dir}); err != nil {
			return err
		}
	}
	if b.redisAddr = b.redis; b.redis == "" {
		if b.redisAddr, err = b.serve(ctx, "Redis", part{Kind: serverRedis}); err != nil {
			return err
		}
	}
	if b.backend, err = newBackend(b.kafkaAddr[pathDirect]); err != nil {
		return err
	}
	return b.findServers(ctx)
}

// start chooses the rows, and starts the servers that their cells need.
func (b *bench) start(ctx context.Context) (err error) {
	if b.chosen, err = b.choose(b.brokers); err != nil {
		return err
	}
	b.cells, b.apis = cellsOf(b.chosen), make(map[apiKind]apiServer)
	for _, c := range b.cells {
		if err := b.startFor(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// startFor starts the servers of a cell that do not run yet.
func (b *bench) startFor(ctx context.Context, c cell) (err error) {
	if b.kafkaAddr[c.kafka] == "" {
		proxy := part{Kind: serverProxy, To: b.kafkaAddr[pathDirect], Delay: farRoundTrip}
		if c.kafka == pathSlowCommit {
			proxy.Commits, proxy.Delay, proxy.Spread = true, slowCommit, slowCommitSpread
		}
		if b.kafkaAddr[c.kafka], err = b.serve(ctx, string(c.kafka), proxy); err != nil {
			return err
		}
	}
	if c.redisFar && b.redisFar == "" {
		proxy := part{Kind: serverProxy, To: b.redisAddr, Plain: true, Delay: farRoundTrip}
		if b.redisFar, err = b.serve(ctx, "Redis 5ms away", proxy); err != nil {
			return err
		}
	}
	if b.apis[c.api] != "" || c.growing || c.kills > 0 {
		return nil
	}
	at, err := b.serve(ctx, "API "+c.api.String(), part{Kind: serverAPI, API: c.api,
		Events: b.mostPages(c.api) * pageEvents})
	if err != nil {
		return err
	}
	b.apis[c.api] = apiServer(at)
	return nil
}

// mostPages returns the number of pages of an API's longest cell, which the API
// renders in advance. The windows of a backfill have other pages.
func (b *bench) mostPages(api apiKind) int {
	most := 0
	for _, c := range b.cells {
		if c.api == api && c.windows == 0 && c.kills == 0 {
			most = max(most, c.pages)
		}
	}
	return most
}

// stop stops the servers, the last one first.
func (b *bench) stop() error {
	var errs []error
	if b.backend != nil {
		b.backend.kafka.Close()
	}
	for _, s := range slices.Backward(b.servers) {
		errs = append(errs, s.stop())
	}
	return errors.Join(errs...)
}

// measure runs a short round to warm up, and then those that count.
func (b *bench) measure(ctx context.Context, load *loadWatch) ([]map[cell]measurement, error) {
	fmt.Fprintf(b.progress, "%s, %s per round, %s and a warm-up\n",
		cli.Counted(len(b.chosen), "row"), cli.Counted(len(b.cells), "run"), cli.Counted(b.rounds, "round"))
	var rounds []map[cell]measurement
	for round := range b.rounds + 1 {
		if err := load.sample(ctx); err != nil {
			return nil, err
		}
		began := time.Now()
		measured, err := b.round(ctx, round)
		if err != nil {
			return nil, err
		}
		name := "warm-up"
		if round > 0 {
			rounds = append(rounds, measured)
			name = fmt.Sprintf("round %d of %d", round, b.rounds)
		}
		fmt.Fprintf(b.progress, "%s: %s\n", name, cli.RoundDuration(time.Since(began)))
	}
	return rounds, nil
}

// round runs each cell once. Odd rounds run them backwards, so that no cell
// always follows the same other one.
func (b *bench) round(ctx context.Context, round int) (map[cell]measurement, error) {
	order := slices.Clone(b.cells)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	measured := make(map[cell]measurement, len(order))
	for _, c := range order {
		run := c
		if round == 0 {
			run = c.warmUp()
		}
		m, err := b.run(ctx, run)
		if err != nil {
			return nil, fmt.Errorf("%s, round %d: %w", c, round, err)
		}
		m.Round, m.Cell = round, c.String()
		measured[c] = m
	}
	return measured, nil
}
