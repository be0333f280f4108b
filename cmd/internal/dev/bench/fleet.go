package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"exportbridge/bridge/engine"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/command"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// fleet has the options of bench fleet.
type fleet struct {
	options
	streams   int
	rest      time.Duration
	timeout   time.Duration // of catching up
	newTopics bool          // the streams create their topics
}

const fleetHelp = `Measure what many streams in one process cost: memory, CPU at rest, descriptors,
goroutines and a scrape of the metrics.

All streams follow the same simulated export, compressed, to topics of their
own. The figures are taken twice, each time after --rest without new events:
after the streams have caught up, and after a restart. CPU is measured over
another --rest. The warnings of the process follow each phase. The CPU of real
servers is measured if they run on this machine, as processes of this user.
Linux only.`

func newFleetCommand(a *cli.App) *cobra.Command {
	var f fleet
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Measure what many streams in one process cost",
		Long:  fleetHelp,
		Example: `  exportbridge-dev bench fleet
  exportbridge-dev bench fleet --streams 1000 --pages 1 --json
  exportbridge-dev bench fleet --kafka localhost:9092 --redis localhost:6379`,
		Args: cobra.NoArgs,
	}
	asJSON := cli.TakeJSON(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.streams, "streams", 100, "number of streams")
	flags.IntVar(&f.pages, "pages", 20, "pages of 1000 events per stream")
	flags.DurationVar(&f.rest, "rest", 30*time.Second, "how long the streams rest before they are measured")
	flags.DurationVar(&f.timeout, "timeout", fleetTimeout, "how long the streams may take to catch up")
	flags.BoolVar(&f.newTopics, "new-topics", false, "have the streams create their topics when they start")
	flags.StringVar(&f.profile, "profile", "", "write CPU profiles of the streams at rest to `DIR`")
	f.takeServers(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.rounds = 1
		err := f.validate()
		if runtime.GOOS != "linux" {
			err = errors.New("bench fleet reads /proc, which only Linux has")
		}
		if f.streams < 1 || f.rest <= 0 || f.timeout <= 0 {
			err = errors.Join(err, errors.New("--streams, --rest and --timeout must be above 0"))
		}
		if err != nil {
			return cli.WrongUsage("exportbridge-dev bench fleet --help", "%w", err)
		}
		head := newReport(&f.options)
		report := &fleetReport{
			Version: head.Version, Cores: head.Cores, Date: head.Date, Kafka: head.Kafka, Redis: head.Redis,
			Streams: f.streams, Pages: f.pages,
		}
		err = withServers(cmd.Context(), a, f.options, func(b *bench) error { return f.measure(cmd.Context(), b, report) })
		if err != nil {
			return err
		}
		if *asJSON {
			return cli.PrintJSON(a.Stdout, report)
		}
		return report.print(a.Stdout)
	}
	return cmd
}

// serveFleet runs the bridge as the command run does, and prints the URL of its metrics.
func serveFleet(ctx context.Context, a *cli.App, _ *part) error {
	s, err := a.Settings(config.UsesAll, nil)
	if err != nil {
		return err
	}
	process.TuneMemory(a.Environ)
	line := process.NewStatusLine(a.Stderr)
	log := process.NewLogger(line, &s.Process, a.Environ)
	p, err := process.New(ctx, s, command.ProcessOptions(a, engine.Limits{}, log))
	if err != nil {
		return command.RunError(err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends when the parent closes stdin, or with this process
		_, _ = io.Copy(io.Discard, a.Stdin)
		stop()
	}()
	fmt.Fprintf(a.Stdout, "http://%s\n", p.Addr())
	return p.RunAndClose(ctx, line)
}

// measure measures the fleet on b. It adds the figures to r.
func (f *fleet) measure(ctx context.Context, b *bench, r *fleetReport) (err error) {
	api, err := b.serve(ctx, "API", part{Kind: serverAPI, API: apiKind{Gzip: true}, Events: f.pages * pageEvents})
	if err != nil {
		return err
	}
	name := newName()
	var topics []string
	for i := range f.streams {
		topics = append(topics, fleetTopic(name, i))
	}
	defer func() { err = errors.Join(err, b.remove(context.WithoutCancel(ctx), name, topics...)) }()
	if !f.newTopics {
		if err := b.backend.create(ctx, name, topics...); err != nil {
			return err
		}
	}
	env := f.settings(b, name, apiServer(api))
	for _, phase := range []string{"caught up", "restarted"} {
		figures, err := f.phase(ctx, b, phase, env)
		if err != nil {
			return fmt.Errorf("streams that have %s: %w", phase, err)
		}
		r.Phases = append(r.Phases, figures)
	}
	return nil
}

func fleetTopic(name string, i int) string { return fmt.Sprintf("%s.s%d", name, i) }

// settings returns the environment of the measured process.
func (f *fleet) settings(b *bench, name string, api apiServer) []string {
	env := append(b.settings(cell{}, name, api), "HTTP_ADDR="+anyPort, "LOG_LEVEL=warn",
		"HTTP_PPROF="+strconv.FormatBool(f.profile != ""))
	var names []string
	for i := range f.streams {
		prefix := fmt.Sprintf("STREAM_S%d_", i)
		names = append(names, "s"+strconv.Itoa(i))
		env = append(env, prefix+"EXPORT_RESOURCE=events", prefix+"KAFKA_TOPIC="+fleetTopic(name, i))
	}
	return append(env, "BRIDGE_STREAMS="+strings.Join(names, ","))
}

// phase starts the process, waits until all streams have caught up and rested, and
// measures.
func (f *fleet) phase(ctx context.Context, b *bench, name string, env []string) (figures fleetFigures, err error) {
	began := time.Now()
	member, err := b.processes.serve(ctx, "bridge", env, (&part{Kind: serverFleet}).args())
	if err != nil {
		return figures, err
	}
	defer func() {
		err = errors.Join(err, member.stop())
		_, writeErr := member.stderr.WriteTo(b.progress) // warnings
		err = errors.Join(err, writeErr)
	}()
	if err := awaitCaughtUp(ctx, member, f.streams, f.timeout); err != nil {
		return figures, err
	}
	took := time.Since(began)
	figures.Phase, figures.StartSeconds = name, took.Seconds()
	fmt.Fprintf(b.progress, "%s caught up after %s\n", cli.Counted(f.streams, "stream"), cli.RoundDuration(took))
	if err := pause(ctx, f.rest); err != nil {
		return figures, err
	}
	used := func() [3]float64 {
		return [3]float64{cpuOf([]int{member.cmd.Process.Pid}), cpuOf(b.brokerPIDs), cpuOf(b.redisPIDs)}
	}
	before, slept := used(), time.Now()
	if err := f.sleep(ctx, member, name); err != nil {
		return figures, err
	}
	after, seconds := used(), time.Since(slept).Seconds()
	for i, cores := range []*float64{&figures.CPU, &figures.BrokerCPU, &figures.RedisCPU} {
		*cores = (after[i] - before[i]) / seconds
	}
	err = figures.measure(ctx, member)
	return figures, err
}

// sleep waits while the streams rest. With --profile, it waits for whole seconds, and writes the
// profile of the process.
func (f *fleet) sleep(ctx context.Context, member *server, name string) (err error) {
	if f.profile == "" {
		return pause(ctx, f.rest)
	}
	seconds := strconv.Itoa(max(1, int(f.rest.Seconds())))
	resp, err := get(ctx, member.addr+"/debug/pprof/profile?seconds="+seconds)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer resp.Body.Close()
	file, err := os.Create(filepath.Join(f.profile, "fleet_"+strings.ReplaceAll(name, " ", "_")+".cpu"))
	if err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	_, err = io.Copy(file, resp.Body)
	return errors.Join(err, file.Close())
}

// awaitCaughtUp waits until so many streams have caught up.
func awaitCaughtUp(ctx context.Context, member *server, streams int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout,
		fmt.Errorf("the streams have not caught up within %s", timeout))
	defer cancel()
	for {
		seen, err := scrape(ctx, member.addr)
		if err != nil || int(seen.sums["exportbridge_caught_up"]) == streams {
			return err
		}
		if pause(ctx, scrapePause) != nil {
			return context.Cause(ctx)
		}
	}
}

const (
	fleetTimeout = 20 * time.Minute
	scrapePause  = 2 * time.Second
)

// scraped is a scrape of the metrics.
type scraped struct {
	sums   map[string]float64 // of a metric over all its labels
	series int
	bytes  int64
	took   time.Duration
}

// scrape reads the metrics of a process.
func scrape(ctx context.Context, addr string) (got scraped, err error) {
	began := time.Now()
	resp, err := get(ctx, addr+"/metrics")
	if err != nil {
		return got, fmt.Errorf("scrape the metrics: %w", err)
	}
	defer resp.Body.Close()
	got.sums = make(map[string]float64)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		got.bytes += int64(len(line)) + 1
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return got, fmt.Errorf("scrape the metrics: %w", err)
		}
		got.series++
		got.sums[name] += value
	}
	got.took = time.Since(began)
	return got, lines.Err()
}

// get returns the answer to a request, which is 200. The caller closes its body.
func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := http.DefaultClient.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	return resp, err
}
