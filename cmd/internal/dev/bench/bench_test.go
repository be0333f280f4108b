package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/dev/embedded"
)

// benchCommand makes a command for the program with a temporary directory of
// its own.
func benchCommand(t *testing.T, args ...string) (cmd *exec.Cmd, temp string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	temp = t.TempDir()
	cmd = exec.CommandContext(ctx, "exportbridge-dev", append([]string{"bench"}, args...)...)
	// The settings must not reach the processes that are measured.
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "EXPORT_URL=http://127.0.0.1:1", "KAFKA_BROKERS=127.0.0.1:1",
		"BRIDGE_STREAMS=a,b")
	return cmd, temp
}

// benchReport runs a bench of one round and returns its report and its progress.
func benchReport(t *testing.T, args ...string) (got report, progress string) {
	t.Helper()
	cmd, temp := benchCommand(t, append([]string{"--json", "--rounds", "1"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	wantEmpty(t, temp)
	return got, stderr.String()
}

// wantEmpty fails if the bench left a file.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestBench(t *testing.T) {
	t.Parallel()
	profiles := t.TempDir()
	// Each kind of process and of server once.
	want := []string{"serial_fraction_20_slow_commit", "raw_fraction_lz4", "commit_overhead_far"}
	got, progress := benchReport(t, append([]string{"--pages", "2", "--profile", profiles}, want...)...)
	var rows []string
	for _, row := range got.Rows {
		rows = append(rows, row.Name)
		if row.Low > row.Value || row.Value > row.High || row.Verdict == "" {
			t.Errorf("row %+v", row)
		}
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
	for _, m := range got.Measurements {
		if m.Round != 1 || m.Seconds <= 0 || m.Events < 1000 || m.CPUSeconds <= 0 {
			t.Errorf("measurement %+v", m)
		}
	}
	if got.Brokers != 1 || got.Cores < 1 || got.Date.IsZero() {
		t.Errorf("report %+v", got)
	}
	if n := strings.Count(progress, "\n"); n < 3 || n > 3+len(got.Warnings) {
		t.Errorf("progress of %d lines, want what there is, warm-up and round:\n%s", n, progress)
	}
	for _, pattern := range []string{"*.cpu", "*.allocs"} {
		files, err := filepath.Glob(filepath.Join(profiles, pattern))
		if err != nil || len(files) != len(slices.DeleteFunc(got.Measurements,
			func(m measurement) bool { return !strings.HasPrefix(m.Cell, "bridge") })) {
			t.Errorf("profiles %q, %v", files, err)
		}
	}
}

func TestBenchFreshness(t *testing.T) {
	t.Parallel()
	got, _ := benchReport(t, "--pages", "1", "tail_freshness")
	if len(got.Rows) != 1 || got.Rows[0].Value <= 0 || got.Measurements[0].Events < agesWanted {
		t.Errorf("rows %+v, measurements %+v", got.Rows, got.Measurements)
	}
}

func TestBenchWindows(t *testing.T) {
	t.Parallel()
	got, _ := benchReport(t, "--pages", "1", "window_scaling")
	if len(got.Rows) != 3 {
		t.Errorf("rows %+v", got.Rows)
	}
}

func TestBenchCosts(t *testing.T) {
	t.Parallel()
	got, _ := benchReport(t, "--pages", "2", "transactions", "bridge_cpu", "broker_cpu", "refetch")
	values := make(map[string]float64)
	for _, row := range got.Rows {
		if row.Value <= 0 && row.Name != "refetch_after_kill_p99" {
			t.Errorf("row %+v", row)
		}
		values[row.Name] = row.Value
	}
	want := 1 + 2*3 + 1
	if runtime.GOOS != "linux" {
		want -= 3 // CPU of the broker
	}
	if len(values) != want || len(got.Warnings) < 8-want {
		t.Errorf("%d rows, want %d: %+v, %q", len(values), want, got.Rows, got.Warnings)
	}
	if again := values["refetch_after_kill_p99"]; math.Mod(again, 20) != 0 || again > 20*killPages*2 {
		t.Errorf("%v ms fetched again, want 20 ms for each page", again)
	}
}

func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("windows cannot send this signal")
	}
	cmd, temp := benchCommand(t, "--rounds", "1000", "--pages", "5", "serial_fraction_5")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, cmd.Start())
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "warm-up") {
	}
	must.Do(t, cmd.Process.Signal(os.Interrupt))
	// Wait returns when no process has stderr open any more.
	var said strings.Builder
	for lines.Scan() {
		said.WriteString(lines.Text())
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != cli.ExitInterrupted {
		t.Errorf("ended with %v: %s", err, said.String())
	}
	wantEmpty(t, temp)
}

// A process that ends while its topic is read is an error with its output.
func TestProcessThatEndsTooSoon(t *testing.T) {
	t.Parallel()
	profiles := t.TempDir() // where one is already, and is no file
	must.Do(t, os.Mkdir(filepath.Join(profiles, "bridge_growing-export.cpu"), 0o700))
	cmd, temp := benchCommand(t, "--rounds", "1", "--pages", "1", "--profile", profiles, "tail_freshness_p99")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(),
		"run bridge: it ended too soon: write profile: ") {
		t.Errorf("%v, %s", err, stderr.Bytes())
	}
	wantEmpty(t, temp)
}

// An error while a process runs is reported, not that the process is ended because of it.
func TestErrorWhileAProcessRuns(t *testing.T) {
	t.Parallel()
	b, broken := &bench{processes: processes{os.Environ()}}, errors.New("broken")
	err := b.whileRuns(t.Context(), cell{work: serverRedis}, nil, kill, func(context.Context) error { return broken })
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "run redis: broken") {
		t.Errorf("error %v", err)
	}
}

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"--rounds=0", "--pages=0", "--latency=20ms", "nonsense", "part",
	} {
		var stderr bytes.Buffer
		if code := program.Run(t.Context(), []string{"bench", args}, nil,
			cli.Stdio{Stdin: strings.NewReader(""), Stdout: &stderr, Stderr: &stderr}); code != cli.ExitUsage {
			t.Errorf("bench %s ends with %d, want %d: %s", args, code, cli.ExitUsage, stderr.Bytes())
		}
	}
}

func TestBenchList(t *testing.T) {
	t.Parallel()
	list := func(args ...string) string {
		var stdout, stderr bytes.Buffer
		args = append([]string{"bench", "--list"}, args...)
		if code := program.Run(t.Context(), args, nil, cli.Stdio{Stdin: strings.NewReader(""), Stdout: &stdout,
			Stderr: &stderr}); code != 0 || stderr.Len() > 0 {
			t.Fatalf("%q: %d, %s", args, code, stderr.Bytes())
		}
		return stdout.String()
	}
	for line := range strings.Lines(list()) {
		if len(line) > 81 {
			t.Errorf("longer than 80 columns: %s", line)
		}
	}
	if all := list(); strings.Count(all, "\n") != 2*len((&planner{}).rows()) || !strings.Contains(all, "rss_flat_out") {
		t.Error(all)
	}
	if some := list("serial_fraction_5", "raw_fraction_none"); !strings.HasPrefix(some, "serial_fraction_5 ") ||
		!strings.Contains(some, ">= 0.95") || strings.Count(some, "\n") != 4 {
		t.Error(some)
	}
	var listed []result
	if err := json.Unmarshal([]byte(list("--json", "eos")), &listed); err != nil || len(listed) != 2 ||
		listed[1].Goal != 0.15 {
		t.Errorf("%+v, %v", listed, err)
	}
}

func TestServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	p := processes{}
	// In a test the program is the test binary, which knows no such flag.
	if _, err := p.serve(t.Context(), "kafka", nil, []string{"-nonsense"}); err == nil ||
		!strings.Contains(err.Error(), "start kafka") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.serve(ctx, "kafka", nil, []string{"-test.run=^$"}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestLastError(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"":                                "",
		"one\ntwo\n\n":                    ": two",
		"one\nerror: broken\nTry: this\n": ": broken",
	} {
		if got := lastError([]byte(said)); got != want {
			t.Errorf("last error of %q is %q, want %q", said, got, want)
		}
	}
}

func TestEachPage(t *testing.T) {
	t.Parallel()
	next := map[string]string{"": "a", "a": "b", "b": ""}
	var asked, got []string
	source := fetchFunc(func(at bridge.Position) (*bridge.Page, error) {
		asked = append(asked, at.Cursor)
		return &bridge.Page{At: at, Next: next[at.Cursor]}, nil
	})
	broken := errors.New("broken")
	end, err := eachPageOf(t.Context(), source, func(_ bridge.Source, p *bridge.Page) error {
		got = append(got, p.At.Cursor)
		return nil
	})
	if err != nil || end.Ended.IsZero() {
		t.Errorf("%+v, %v", end, err)
	}
	if diff := cmp.Diff([]string{"", "a", "b"}, asked); diff != "" || !slices.Equal(asked, got) {
		t.Error(diff, got)
	}
	if _, err := eachPageOf(t.Context(), source, func(bridge.Source,
		*bridge.Page) error {
		return broken
	}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if _, err := eachPageOf(t.Context(), fetchFunc(func(bridge.Position) (*bridge.Page, error) { return nil, broken }),
		nil); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// fetchFunc is a source that cannot decode.
type fetchFunc func(bridge.Position) (*bridge.Page, error)

func (f fetchFunc) Fetch(_ context.Context, at bridge.Position) (*bridge.Page, error) { return f(at) }

func (f fetchFunc) Decode(*bridge.Page) error { return errors.ErrUnsupported }

// newTimedAPI serves an export of so many events.
func newTimedAPI(t *testing.T, events int) *timedAPI {
	t.Helper()
	api := new(timedAPI)
	api.Handler = must.Get(exportsim.New(exportsim.Config{Events: events, OnRequest: api.note}))(t)
	t.Cleanup(api.Close)
	return api
}

func TestAPIClock(t *testing.T) {
	t.Parallel()
	w := newTimedAPI(t, 10)
	server := must.Get(embedded.StartSimulator(w, anyPort))(t)
	servers.CloseAtEnd(t, server)
	api := apiServer(server.URL)
	restart := func(events int) apiClock {
		t.Helper()
		return must.Get(api.restart(t.Context(), events))(t)
	}
	if c := restart(20); c.Requests != 0 || !c.First.IsZero() || w.Stock() != 20 || !c.Grew.Equal(w.VisibleAt(0)) {
		t.Errorf("at the start %+v, %d events", c, w.Stock())
	}
	before := time.Now()
	for range 2 {
		resp := must.Get(http.Get(server.URL + "/events"))(t)
		resp.Body.Close()
	}
	if c, err := api.ask(t.Context(), http.MethodGet, ""); c.Requests != 2 || err != nil {
		t.Errorf("read only: %+v, %v", c, err)
	}
	if c := restart(0); c.Requests != 2 || c.First.Before(before.Round(0)) || c.First.After(time.Now()) {
		t.Errorf("after two requests %+v", c)
	}
	if c := restart(0); c.Requests != 0 {
		t.Errorf("after it was asked %+v", c)
	}
	http.DefaultClient.CloseIdleConnections()
}

// The pages that are fetched again begin with the earliest that the next process requests, and
// end with the last that its predecessor had.
func TestPagesOfAnAPIAreNumbered(t *testing.T) {
	t.Parallel()
	w := newTimedAPI(t, 10)
	ask := func(method, target string, gone bool) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if gone {
			cancel()
		}
		w.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, http.NoBody).WithContext(ctx))
	}
	want := func(earliest, next int) {
		t.Helper()
		if diff := cmp.Diff([]int{earliest, next}, []int{w.clock.Earliest, w.clock.Next}); diff != "" {
			t.Error(diff)
		}
	}
	ask(http.MethodGet, "/events", false)
	ask(http.MethodGet, "/events?cursor=a", false)
	want(0, 2)
	ask(http.MethodGet, "/events?cursor=b", true) // nobody has this page
	want(0, 2)
	ask(http.MethodPost, clockPath, false)
	want(0, 0)
	ask(http.MethodGet, "/events?cursor=b", false)
	want(2, 3)
	ask(http.MethodGet, "/events?cursor=a", false)
	want(1, 3)
	ask(http.MethodPost, clockPath+"?events=5", false) // another export
	ask(http.MethodGet, "/events?cursor=b", false)
	want(0, 1)
}

// A page that reaches a killed process after the clock was reset is no page of the next process.
func TestFirstPageOfTheNextProcess(t *testing.T) {
	t.Parallel()
	w := newTimedAPI(t, 10)
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	api, late := apiServer(server.URL), httptest.NewRequest(http.MethodGet, "/events?cursor=a", http.NoBody)
	w.delivered(late)
	ctx, cancel := context.WithTimeout(t.Context(), 20*clockEvery)
	defer cancel()
	if clock, err := api.firstPage(ctx); err == nil {
		t.Errorf("the first page of a process without a request: %+v", clock)
	}
	w.note(late)
	if clock, err := api.firstPage(t.Context()); err != nil || clock.Requests != 1 {
		t.Errorf("after a request %+v, %v", clock, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestLastCommit(t *testing.T) {
	t.Parallel()
	log := `not JSON
{"time":"2026-11-01T00:00:00Z","level":"INFO","msg":"stream starts"}
{"time":"2026-11-01T00:00:02.5Z","level":"INFO","msg":"run ended","events":5000}
`
	got, err := lastCommit([]byte(log))
	if want := time.Date(2026, 11, 1, 0, 0, 2, 5e8, time.UTC); err != nil || !got.Equal(want) {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := lastCommit([]byte(strings.Replace(log, "run ended", "stream ended", 1))); err == nil {
		t.Error("no error for a run that did not end")
	}
}

func TestBackend(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	servers := startBenchServers(t, 0)
	backend, kafka := servers.backend, servers.kafkaAddr[pathDirect]
	for _, name := range []string{"bench-a", "bench-ab"} {
		must.Do(t, backend.create(ctx, name))
	}
	must.Do(t, backend.kafka.ProduceSync(ctx, &kgo.Record{Topic: "bench-a", Partition: 1},
		&kgo.Record{Topic: "bench-a"}).FirstErr())
	if n, err := backend.offsets(ctx, "bench-a"); n != 2 || err != nil {
		t.Errorf("%d offsets, %v, want 2", n, err)
	}
	if addrs, err := backend.brokers(ctx); err != nil || !slices.Equal(addrs, []string{kafka}) {
		t.Errorf("brokers at %q, %v, want one at %s", addrs, err, kafka)
	}
	for range 2 { // the second time there is nothing left to remove
		must.Do(t, backend.remove(ctx, "bench-a"))
	}
	other, err := kgo.NewClient(kgo.SeedBrokers(kafka)) // that remembers no topics
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	topics, err := kadm.NewClient(other).ListTopics(ctx)
	if diff := cmp.Diff([]string{"bench-ab", "bench-ab.dlq"}, topics.Names()); err != nil || diff != "" {
		t.Error(diff, err)
	}
}
