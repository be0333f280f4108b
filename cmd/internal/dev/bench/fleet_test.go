package bench

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/dev/embedded"
)

func TestBenchFleet(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	const streams = 3
	redis := must.Get(embedded.StartRedis(anyPort))(t)
	servers.CloseAtEnd(t, redis)
	profiles := t.TempDir()
	cmd, temp := benchCommand(t, "fleet", "--json", "--streams", "3", "--pages", "2", "--rest", "1s",
		"--redis", redis.Addr, "--profile", profiles)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	var got fleetReport
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	wantEmpty(t, temp)
	client := goredis.NewClient(&goredis.Options{Addr: redis.Addr})
	servers.CloseAtEnd(t, client)
	if left, err := client.Keys(t.Context(), "*").Result(); err != nil || len(left) != 0 {
		t.Errorf("Redis keeps %q, %v", left, err)
	}
	if files, err := filepath.Glob(filepath.Join(profiles, "fleet_*.cpu")); err != nil || len(files) != len(got.Phases) {
		t.Errorf("profiles %q, %v", files, err)
	}
	if len(got.Phases) != 2 || got.Streams != streams || got.Redis != redis.Addr {
		t.Fatalf("report %+v", got)
	}
	for _, f := range got.Phases {
		if f.Resident <= f.Heap || f.Peak < f.Resident || f.Heap <= 0 || f.Series < 100*streams ||
			f.ScrapeBytes < int64(f.Series) ||
			f.StartSeconds <= 0 || f.CPU <= 0 || f.BrokerCPU <= 0 || f.RedisCPU != 0 || // a test is no redis-server
			f.Descriptors < 2*streams || f.Goroutines < streams {
			t.Errorf("figures %+v", f)
		}
	}
	var table strings.Builder
	if err := got.print(&table); err != nil || !strings.Contains(table.String(), "CAUGHT UP") ||
		!strings.Contains(table.String(), "CPU of Redis        unknown") {
		t.Errorf("%v in\n%s", err, table.String())
	}
}

func TestBenchFleetUsage(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"--streams=0", "--rest=0s", "--pages=0", "--timeout=0s"} {
		cmd, _ := benchCommand(t, "fleet", arg)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "bench fleet --help") {
			t.Errorf("%s: %v, %s", arg, err, out)
		}
	}
}

// TestBenchFleetTimeout: whoever has a slow cluster can wait for longer, and anybody for less.
func TestBenchFleetTimeout(t *testing.T) {
	t.Parallel()
	cmd, _ := benchCommand(t, "fleet", "--streams", "1", "--pages", "1", "--timeout", "1ns")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "not caught up within 1ns") {
		t.Errorf("%v, %s", err, out)
	}
}

// TestBenchLanes: processes of a fleet share a backfill.
func TestBenchLanes(t *testing.T) {
	t.Parallel()
	got, _ := benchReport(t, "--pages", "1", "--rounds", "1", "fleet_scaling")
	if len(got.Rows) != 1 || got.Rows[0].Value <= 0 {
		t.Errorf("rows %+v", got.Rows)
	}
	for _, m := range got.Measurements {
		if m.Events != fleetWindows*lanePage || m.Requests < 2*fleetWindows {
			t.Errorf("%+v", m)
		}
	}
}
