package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/metrics"
	"exportbridge/cmd/internal/config"
	"exportbridge/cursorstore"
)

// TestSayChanges: a server that refuses is not one that is away.
func TestSayChanges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"away":      {errors.New("connection refused"), `msg="server unreachable; retrying" server=kafka error="connection refused"`},
		"lost":      {&bridge.Fault{Err: errors.New("reset"), Hint: "wait"}, `msg="server unreachable; retrying" server=kafka error=reset hint=wait`},
		"refuses":   {&bridge.Fault{Class: bridge.Permanent, Err: errors.New("no topic"), Hint: "create it"}, `msg="connection rejected; retrying" server=kafka error="no topic" hint="create it"`},
		"held back": {&bridge.Fault{Code: kafkasink.HeldBack, Err: errors.New("open")}, `msg="records held back; retrying" server=kafka error=open`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			said := logChanges(slog.New(slog.NewTextHandler(&out, nil)), "kafka")
			said(tc.err)
			said(tc.err)
			if got := out.String(); !strings.Contains(got, tc.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("said %q, want once %q", got, tc.want)
			}
			said(nil)
			if !strings.Contains(out.String(), `msg="server recovered"`) {
				t.Errorf("said %q, want that it is back", out.String())
			}
		})
	}
}

// TestSayOutageAfterBlip: failures that come and go are logged once, an outage
// that lasts is.
func TestSayOutageAfterBlip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		said := logChanges(slog.New(slog.NewTextHandler(&out, nil)), "redis")
		wait := func(d time.Duration) { <-time.After(d) }
		wantLines := func(when string, want int) {
			t.Helper()
			if n := strings.Count(out.String(), "\n"); n != want {
				t.Errorf("%s: %d messages, want %d: %s", when, n, want, out.String())
			}
		}
		for range 10 {
			said(errors.New("refused"))
			wait(time.Second)
			said(nil)
			wait(time.Second)
		}
		wantLines("flapping", 2)
		for range 300 {
			said(fmt.Errorf("redis at x: %w", cursorstore.ErrWrites))
			wait(time.Second)
		}
		wantLines("a long outage", 3)
		if !strings.Contains(out.String(), "server rejects writes; retrying") {
			t.Errorf("said %q", out.String())
		}
		said(nil)
		wantLines("after it", 4)
	})
}

// TestSayElection: a partition without a leader is none that is away, and for a moment it is no news.
func TestSayElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		said := logChanges(slog.New(slog.NewTextHandler(&out, nil)), "kafka")
		fail := func(seconds int) {
			for range seconds {
				said(&bridge.Fault{Err: fmt.Errorf("list offsets: %w", kerr.NotLeaderForPartition)})
				<-time.After(time.Second)
			}
			said(nil)
		}
		fail(4)
		if out.Len() > 0 {
			t.Errorf("a leader is elected: said %q", out.String())
		}
		fail(7)
		if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, `"server answers with an error; retrying"`) {
			t.Errorf("no leader is elected: said %q", got)
		}
	})
}

func TestSayWhoMay(t *testing.T) {
	t.Parallel()
	const actions, reads, events = "HTTP actions restricted to localhost", "setting=HTTP_ADDR", "HTTP_SHOW_EVENTS"
	const long = "0123456789abcdef"
	for _, test := range []struct {
		cfg  ops.Config
		said []string
	}{
		{ops.Config{Addr: "127.0.0.1:8080", ShowEvents: true}, nil},
		{ops.Config{Addr: ":8080"}, []string{actions, reads}},
		{ops.Config{Addr: ":8080", AdminToken: long}, []string{reads}},
		{ops.Config{Addr: ":8080", Tokens: "alice read 00"}, nil},
		{ops.Config{Addr: "0.0.0.0:8080", AdminToken: long, ShowEvents: true}, []string{reads, events}},
		{ops.Config{Addr: "bridge:8080", ShowEvents: true}, []string{actions, reads, events}},
	} {
		var b bytes.Buffer
		p := &Process{metrics: metrics.New(metrics.Build{}, metrics.DetailAuto, nil, func() []bridge.Status { return nil })}
		p.logAccess(slog.New(slog.NewTextHandler(&b, nil)), test.cfg)
		if got := strings.Count(b.String(), "\n"); got != len(test.said) {
			t.Errorf("%+v: says %q", test.cfg, b.String())
		}
		for _, text := range test.said {
			if !strings.Contains(b.String(), text) {
				t.Errorf("%+v: says %q, want %q", test.cfg, b.String(), text)
			}
			if shown, err := testutil.GatherAndCount(p.metrics, "exportbridge_unsafe_setting"); (shown > 0) != (text != actions) && len(test.said) == 1 || err != nil {
				t.Errorf("%+v: %d metrics of unsafe settings, %v", test.cfg, shown, err)
			}
		}
	}
}

// TestRedisReports: in a cluster Redis can be away for one stream of several. The log
// has one outage.
func TestRedisReports(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a, b := new(bridge.Health), new(bridge.Health)
	healths := map[string]*bridge.Health{"a": a, "b": b}
	report := redisReports(slog.New(slog.NewTextHandler(&out, nil)), func(stream string) *bridge.Health { return healths[stream] })
	up := func(h *bridge.Health) bool { return h.Snapshot()[bridge.DependencyStore].Up }
	for _, step := range []struct {
		stream string
		err    error
		a, b   bool
		lines  int
	}{
		{"a", nil, true, false, 0}, {"b", nil, true, true, 0}, {"a", cursorstore.ErrWrites, false, true, 1}, {"b", nil, false, true, 1},
		{"b", errors.New("refused"), false, false, 1}, {"a", nil, true, false, 1}, {"a-job", nil, true, false, 1}, {"b", nil, true, true, 2},
	} {
		report(step.stream, step.err)
		if n := strings.Count(out.String(), "\n"); up(a) != step.a || up(b) != step.b || n != step.lines {
			t.Errorf("after %s reported %v: a is up: %t, b is up: %t, %d lines: %s", step.stream, step.err, up(a), up(b), n, out.String())
		}
	}
}

// TestRedisReportsOfRemoved: a stream that is removed while Redis is away does not make the
// outage last.
func TestRedisReportsOfRemoved(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	healths := map[string]*bridge.Health{"a": new(bridge.Health), "b": new(bridge.Health)}
	report := redisReports(slog.New(slog.NewTextHandler(&out, nil)), func(stream string) *bridge.Health { return healths[stream] })
	report("a", errors.New("refused"))
	report("b", errors.New("refused"))
	delete(healths, "b")
	report("a", nil)
	if !strings.Contains(out.String(), "server recovered") {
		t.Errorf("said %q", out.String())
	}
}

// TestWindowsOfReplaced: a stream that was replaced, and that another process then owns, has
// no windows of jobs in the metrics.
func TestWindowsOfReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Process{log: slog.New(slog.DiscardHandler)}
		p.metrics = metrics.New(metrics.Build{}, metrics.DetailAuto, nil, func() []bridge.Status { return nil })
		old, standby := &stream{name: "events", bridge: newBridge(t, nil)}, &stream{name: "events", bridge: newBridge(t, nil)}
		old.windows = func(context.Context, time.Duration) (map[string]int, error) {
			return map[string]int{"interrupted": 2}, nil
		}
		p.metrics.AddStream("events")
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = old.bridge.Run(ctx) })
		running.Go(func() { p.watchJobs(ctx) })
		for _, st := range []*stream{old, standby} {
			p.streams.set([]*stream{st})
			<-time.After(10 * time.Second)
			n, err := testutil.GatherAndCount(p.metrics, "exportbridge_backfill_windows")
			if err != nil || (n > 0) != (st == old) {
				t.Errorf("%d series of windows, want some: %t; %v", n, st == old, err)
			}
		}
		cancel()
		running.Wait()
	})
}

// TestReleaseEnded: a stream whose run ends by itself, while a reload removes it, is released
// once.
func TestReleaseEnded(t *testing.T) {
	t.Parallel()
	s := must.Get(config.Load(config.Sources{Environ: []string{"EXPORT_API_KEY=x", "EXPORT_RESOURCE=events",
		"EXPORT_URL=https://api.example.com", "KAFKA_BROKERS=127.0.0.1:1", "REDIS_URL=redis://127.0.0.1:1/0"}},
		config.UsesAll))(t)
	var out bytes.Buffer
	p := &Process{log: slog.New(slog.NewTextHandler(&out, nil)), redis: must.Get(cursorstore.Open(s.Cursor))(t)}
	defer p.redis.Close()
	p.metrics = metrics.New(metrics.Build{}, metrics.DetailAuto, nil, func() []bridge.Status { return nil })
	p.options.Windows = func(*config.Stream) func(context.Context, time.Duration) (map[string]int, error) { return nil }
	st := must.Get(p.wire(&s.Streams[0]))(t)
	st.run.started, st.run.stop = true, func() {}
	r := &runner{p: p, running: 1}
	r.stop(st, nil) // after the run has looked whether the stream is gone
	for _, release := range []func(*stream){r.end, p.release} {
		release(st)
		if n := strings.Count(out.String(), `msg="stream released"`); n != 1 {
			t.Errorf("released %d times", n)
		}
	}
}

// TestEndWithin: what hangs does not hold up the end of the process, and only a shutdown
// has a limit.
func TestEndWithin(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		took, asked, want time.Duration
		err               error
	}{
		"it ends by itself":   {took: time.Hour, asked: 2 * time.Hour, want: time.Hour, err: failed},
		"it ends when asked":  {took: time.Hour, asked: time.Hour - time.Second, want: time.Hour, err: failed},
		"it hangs when asked": {took: time.Hour, asked: time.Minute, want: time.Minute + 3*time.Second, err: ErrShutdown},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), c.asked)
			defer stop()
			began := time.Now()
			err := endWithin(ctx, func() time.Duration { return 3 * time.Second }, func() error {
				<-time.After(c.took)
				return failed
			})
			if took := time.Since(began); took != c.want || !errors.Is(err, c.err) {
				t.Errorf("%s: %v after %s, want %v after %s", name, err, took, c.err, c.want)
			}
			<-time.After(2 * c.took) // what hangs ends
		})
	}
}

// TestKafkaReports: the log has one outage of Kafka for all streams, and each stream that Kafka
// rejects.
func TestKafkaReports(t *testing.T) {
	t.Parallel()
	const streams = 1000
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	outage := logOutages(log, "kafka", func(string) bool { return true })
	reports := make([]func(error), streams)
	for i := range reports {
		reports[i] = kafkaReports(log, fmt.Sprint("s", i), outage)
	}
	away, denied := errors.New("refused"), &bridge.Fault{Class: bridge.Permanent, Err: errors.New("no right")}
	all := func(err error) {
		for _, report := range reports {
			report(err)
		}
	}
	for _, step := range []struct {
		do   func()
		want string // the lines
	}{
		{func() { reports[7](denied) }, `level=WARN msg="connection rejected; retrying" stream=s7 server=kafka error="no right"`},
		{func() { all(away); all(away) }, `level=WARN msg="server unreachable; retrying" server=kafka error=refused`},
		{func() { reports[7](denied) }, ""},
		{func() { all(nil) }, `level=INFO msg="server recovered" stream=s7 server=kafka after=0s` + "\n" +
			`level=INFO msg="server recovered" server=kafka after=0s streams=1000`},
	} {
		out.Reset()
		step.do()
		got := regexp.MustCompile(`(?m)^time=\S+ |(after=)\S+|\n$`).ReplaceAllString(out.String(), "$1")
		if want := strings.ReplaceAll(step.want, "after=0s", "after="); got != want {
			t.Errorf("the log has\n%s, want\n%s", got, want)
		}
	}
}
