package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/exportsim"
)

// benchCommand makes a command for the program with a temporary directory of
// its own.
func benchCommand(t *testing.T, args ...string) (cmd *exec.Cmd, temp string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	temp = t.TempDir()
	cmd = exec.CommandContext(ctx, "exportbridge", append([]string{"bench"}, args...)...)
	// The settings must not reach the processes that are measured.
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "EXPORT_URL=http://127.0.0.1:1", "KAFKA_BROKERS=127.0.0.1:1", "BRIDGE_STREAMS=a,b")
	return cmd, temp
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
	cmd, temp := benchCommand(t, "--json", "--rounds", "2", "--pages", "5", "--latency", "1ms")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	var got benchReport
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var rows, processes []string
	for _, row := range got.Rows {
		rows = append(rows, row.Name)
		if row.Low <= 0 || row.Low > row.Value || row.Value > row.High || row.Verdict != verdictNone {
			t.Errorf("row %+v", row)
		}
	}
	for _, p := range got.Processes {
		processes = append(processes, p.Name)
		if p.CPUSeconds <= 0 {
			t.Errorf("process %+v", p)
		}
	}
	if diff := cmp.Diff([]string{"fetch_only_1", "serial_fraction_1"}, rows); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"fetch only 1ms", "pipeline 1ms", "kafka", "redis", "api 1ms"}, processes); diff != "" {
		t.Error(diff)
	}
	if len(got.Measurements) != 2 || got.Measurements[1].Round != 2 || got.Measurements[1].Pipeline.Requests != 6 {
		t.Errorf("measurements %+v", got.Measurements)
	}
	if n := strings.Count(stderr.String(), "ratio"); n != 3 {
		t.Errorf("%d lines of progress, want one for each round and the warm-up:\n%s", n, stderr.Bytes())
	}
	wantEmpty(t, temp)
}

func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("windows cannot send this signal")
	}
	cmd, temp := benchCommand(t, "--rounds", "1000", "--pages", "5", "--latency", "1ms")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stderr.Read(make([]byte, 1)); err != nil { // the warm-up is over
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	// Wait returns when nobody has stderr open any more.
	said := new(bytes.Buffer)
	if _, err := said.ReadFrom(stderr); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitInterrupted {
		t.Errorf("ended with %v: %s", err, said)
	}
	wantEmpty(t, temp)
}

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"--rounds=0", "--pages=0", "--latency=0s", "--latency=20ms,20ms", "--latency=20", "--redis=nonsense", "extra",
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), []string{"bench", args}, nil, stdio{strings.NewReader(""), &stderr, &stderr}); code != exitUsage {
			t.Errorf("bench %s ends with %d, want %d: %s", args, code, exitUsage, stderr.Bytes())
		}
	}
}

func TestServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	p := parts{}
	// In a test the program is the test binary, which knows no such flag.
	if _, err := p.serve(t.Context(), "kafka", "-nonsense"); err == nil || !strings.Contains(err.Error(), "start kafka") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.serve(ctx, "kafka", "-test.run=^$"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestLastWords(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"":                                "",
		"one\ntwo\n\n":                    ": two",
		"one\nerror: broken\nTry: this\n": ": broken",
	} {
		if got := lastWords([]byte(said)); got != want {
			t.Errorf("last words of %q are %q, want %q", said, got, want)
		}
	}
}

func TestFetchAll(t *testing.T) {
	t.Parallel()
	next := map[string]string{"": "a", "a": "b", "b": ""}
	var asked []string
	end, err := fetchAll(t.Context(), fetchFunc(func(at bridge.Position) (*bridge.Page, error) {
		asked = append(asked, at.Cursor)
		return &bridge.Page{At: at, Next: next[at.Cursor]}, nil
	}))
	if err != nil || end.Pages != 3 || end.Ended.IsZero() {
		t.Errorf("%+v, %v", end, err)
	}
	if diff := cmp.Diff([]string{"", "a", "b"}, asked); diff != "" {
		t.Error(diff)
	}
	broken := errors.New("broken")
	if _, err := fetchAll(t.Context(), fetchFunc(func(bridge.Position) (*bridge.Page, error) { return nil, broken })); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// fetchFunc is a source that cannot decode.
type fetchFunc func(bridge.Position) (*bridge.Page, error)

func (f fetchFunc) Fetch(_ context.Context, at bridge.Position) (*bridge.Page, error) { return f(at) }

func (f fetchFunc) Decode(*bridge.Page) error { return errors.ErrUnsupported }

func TestAPIClock(t *testing.T) {
	t.Parallel()
	w := new(watchedAPI)
	var err error
	if w.Handler, err = exportsim.New(exportsim.Config{Events: 10, OnRequest: w.note}); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	server, err := startEmbeddedSimulator(w, anyPort)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, server)
	api := &benchAPI{url: server.URL}
	read := func() apiClock {
		t.Helper()
		clock, err := api.readClock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return clock
	}
	if c := read(); c.Requests != 0 || !c.First.IsZero() {
		t.Errorf("at the start %+v", c)
	}
	before := time.Now()
	for range 2 {
		resp, err := http.Get(server.URL + "/events")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if c := read(); c.Requests != 2 || c.First.Before(before.Round(0)) || c.First.After(time.Now()) {
		t.Errorf("after two requests %+v", c)
	}
	if c := read(); c.Requests != 0 {
		t.Errorf("after it was asked %+v", c)
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

func TestTraces(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	k, err := startEmbeddedKafka(anyPort, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	closing(t, k)
	r, err := startEmbeddedRedis(anyPort, "")
	if err != nil {
		t.Fatal(err)
	}
	closing(t, r)
	traces, err := newTraces(k.Addr, r.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := traces.close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"bench-a", "bench-ab"} {
		if err := traces.create(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := traces.kafka.ProduceSync(ctx, &kgo.Record{Topic: "bench-a", Partition: 1}, &kgo.Record{Topic: "bench-a"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if n, err := traces.records(ctx, "bench-a"); n != 2 || err != nil {
		t.Errorf("%d records, %v, want 2", n, err)
	}
	for _, key := range []string{"bench-a:one", "bench-a:two", "bench-ab:one"} {
		if err := traces.redis.Set(ctx, key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time there is nothing left to remove
		if err := traces.remove(ctx, "bench-a"); err != nil {
			t.Fatal(err)
		}
	}
	topics, err := kadm.NewClient(traces.kafka).ListTopics(ctx)
	if diff := cmp.Diff([]string{"bench-ab", "bench-ab.dlq"}, topics.Names()); err != nil || diff != "" {
		t.Error(diff, err)
	}
	keys, err := traces.redis.Keys(ctx, "*").Result()
	if diff := cmp.Diff([]string{"bench-ab:one"}, keys); err != nil || diff != "" {
		t.Error(diff, err)
	}
}
