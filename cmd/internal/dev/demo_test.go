package dev

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/dev/embedded"
)

// The suggestions of the demo work as they are: each command names the servers that are not at
// their default address, and the stream if there are several.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	suggested := func(streams ...string) []string {
		s := new(config.Settings)
		for _, name := range streams {
			st := config.Stream{Name: name}
			st.Kafka.Brokers, st.Kafka.Topic = []string{"127.0.0.1:7"}, "export."+name
			s.Streams = append(s.Streams, st)
		}
		var b strings.Builder
		suggest(&b, s, &demoServers{kafka: &embedded.Kafka{Addr: "127.0.0.1:7"},
			redis: &embedded.Redis{Addr: "127.0.0.1:8", URL: "redis://127.0.0.1:8/0"}})
		return strings.Split(strings.TrimSpace(strings.TrimPrefix(b.String(), "  try:")), "\n")
	}
	for _, streams := range [][]string{{"events"}, {"users", "events"}} {
		lines := suggested(streams...)
		if len(lines) != 3 {
			t.Fatalf("suggested %q", lines)
		}
		for _, line := range lines {
			ours, rewinds := strings.Contains(line, "exportbridge "), strings.Contains(line, "cursor rewind")
			if !strings.Contains(line, "127.0.0.1:7") || rewinds != strings.Contains(line,
				"REDIS_URL=redis://127.0.0.1:8/0 ") || ours && strings.Contains(line, "--stream users") != (len(streams) > 1) {
				t.Errorf("%d streams: %q", len(streams), line)
			}
		}
	}
}

// A checkpoint of the demo is of the same request as that of a program that is given the
// demo's export API.
func TestDemoRequest(t *testing.T) {
	t.Parallel()
	s := must.Get(demoSettings(&cli.App{Given: make(map[string]string)}))(t)
	const free = "127.0.0.1:0"
	inside := must.Get(startServers(s, &demoPlan{kafkaAddr: free, redisAddr: free, apiAddr: free,
		simulator: exportsim.Config{Events: 1, Seed: 1}}))(t)
	servers.CloseAtEnd(t, closer(inside.close))
	given := must.Get(config.Load(config.Sources{Environ: []string{"EXPORT_URL=" + inside.api.URL, "EXPORT_API_KEY=any"}},
		config.UsesAll))(t)
	if got, want := s.Streams[0].Engine.Origin.Request, given.Streams[0].Engine.Origin.Request; got != want ||
		!got.Known() {
		t.Errorf("the demo requests %s, others %s", got, want)
	}
}

// The demo refuses the address of a server that it does not start, because a setting names another
// one.
func TestDemoAddressOfAnotherServer(t *testing.T) {
	t.Parallel()
	const free, other = "127.0.0.1:0", "127.0.0.1:7"
	for variable, flag := range map[string]string{"KAFKA_BROKERS": "--kafka-addr", "EXPORT_URL": "--api-addr"} {
		given := map[string]string{variable: other}
		if variable == "EXPORT_URL" {
			given[variable] = "http://" + other
		}
		s := must.Get(demoSettings(&cli.App{Given: given, Environ: []string{"EXPORT_API_KEY=any"}}))(t)
		plan := &demoPlan{kafkaAddr: free, redisAddr: free, apiAddr: free, simulator: exportsim.Config{Events: 1, Seed: 1}}
		v, err := startServers(s, plan)
		if err == nil {
			servers.CloseAtEnd(t, closer(v.close))
		}
		if wrong, ok := errors.AsType[*cli.Error](err); !ok || wrong.Code != cli.ExitUsage ||
			!strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), variable) {
			t.Errorf("%s beside %s: %v", flag, variable, err)
		}
	}
}

// The export of a demo that was killed is at least as long as its bridge may have seen it.
func TestKilledDemo(t *testing.T) {
	t.Parallel()
	plan := demoPlan{dataDir: t.TempDir(), apiAddr: "127.0.0.1:0"}
	start := func() *exportsim.Handler {
		plan.simulator = exportsim.Config{Rate: 1000, Events: 100, Seed: 1}
		must.Do(t, resumeStock(plan.dataDir, &plan.simulator))
		d := new(demoServers)
		must.Do(t, d.startAPI(&plan))
		servers.CloseAtEnd(t, closer(d.close))
		return d.sim
	}
	first := start()
	for first.Stock() < 300 {
		<-time.After(time.Millisecond)
	}
	seen := first.Stock()
	second := start()
	if n := second.Stock(); n < seen || !bytes.Equal(first.Event(seen-1), second.Event(seen-1)) {
		t.Errorf("%d events after %d were seen, the last one changed from %s to %s", n, seen, first.Event(seen-1),
			second.Event(seen-1))
	}
}

type closer func() error

func (c closer) Close() error { return c() }
