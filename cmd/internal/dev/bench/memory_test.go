package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/ops"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/dev/embedded"
	"exportbridge/cursorstore"
)

// benchServers are servers for the processes of a bench, in this one.
type benchServers struct {
	*bench
	redis *redis.Client
}

// startBenchServers serves an export of so many events.
func startBenchServers(t *testing.T, events int) *benchServers {
	t.Helper()
	k := must.Get(embedded.StartKafka(anyPort, t.TempDir()))(t)
	servers.CloseAtEnd(t, k)
	r := must.Get(embedded.StartRedis(anyPort))(t)
	servers.CloseAtEnd(t, r)
	server := must.Get(embedded.StartSimulator(newTimedAPI(t, events), anyPort))(t)
	servers.CloseAtEnd(t, server)
	backend := must.Get(newBackend(k.Addr))(t)
	t.Cleanup(backend.kafka.Close)
	client := redis.NewClient(&redis.Options{Addr: r.Addr})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &bench{
		kafkaAddr: map[kafkaPath]string{pathDirect: k.Addr}, redisAddr: r.Addr, backend: backend,
		apis: map[apiKind]apiServer{{}: apiServer(server.URL)},
	}
	return &benchServers{bench: b, redis: client}
}

// runPart runs the process of a cell in this one.
func (b *benchServers) runPart(t *testing.T, c cell, name string) partEnd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must.Do(t, b.backend.create(ctx, name))
	var stdout, stderr bytes.Buffer
	p := b.part(c)
	if code := program.Run(ctx, p.args(), b.settings(c, name, b.apis[c.api]),
		cli.Stdio{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr}); code != 0 {
		t.Fatalf("%s ends with %d: %s", c, code, stderr.Bytes())
	}
	var end partEnd
	if err := json.Unmarshal(stdout.Bytes(), &end); err != nil {
		t.Fatalf("%v in %s", err, stdout.Bytes())
	}
	return end
}

// records reads so many records, by partition in their order.
func (b *benchServers) records(t *testing.T, topic string, n int) map[int32][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	all := make(map[int32][]string)
	must.Do(t, b.read(ctx, topic, func(records []*kgo.Record, _ time.Time) bool {
		for _, r := range records {
			all[r.Partition] = append(all[r.Partition], fmt.Sprintf("%s %s %s %d %s", r.Key, r.Value, r.Headers,
				r.Timestamp.UnixMilli(), fmt.Sprint(r.Attrs.CompressionType())))
			n--
		}
		return n > 0
	}))
	return all
}

// The records that are produced from memory are those of the bridge.
func TestMemoryMakesTheBridgesRecords(t *testing.T) {
	t.Parallel()
	const events = 2500
	b := startBenchServers(t, events)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		b.runPart(t, cell{work: workBridge, mode: "at-least-once", codec: codec}, "bridge-"+codec)
		end := b.runPart(t, cell{work: workMemory, codec: codec}, "memory-"+codec)
		want, got := b.records(t, "bridge-"+codec, events), b.records(t, "memory-"+codec, events)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if end.Events != events-pageEvents || end.Ended.Before(end.Began) || end.Began.IsZero() || end.CPUSeconds < 0 ||
			end.Mallocs == 0 {
			t.Errorf("%+v", end)
		}
	}
}

// Without commits to Redis, Redis has no position to resume from.
func TestBridgeThatForgets(t *testing.T) {
	t.Parallel()
	const events = 1500
	b := startBenchServers(t, events)
	for _, forget := range []bool{false, true} {
		name := fmt.Sprint("forget-", forget)
		b.runPart(t, cell{work: workBridge, mode: "exactly-once", without: omitted{Store: forget}}, name)
		b.records(t, name, events)
		found, err := b.redis.Keys(t.Context(), name+"*").Result()
		if err != nil || (len(found) == 0) != forget {
			t.Errorf("%s: keys %q in Redis, %v", name, found, err)
		}
	}
}

// Without metrics the bridge does the same.
func TestBridgeUnobserved(t *testing.T) {
	t.Parallel()
	const events = 1500
	b := startBenchServers(t, events)
	for _, unobserved := range []bool{false, true} {
		name := fmt.Sprint("unobserved-", unobserved)
		b.runPart(t, cell{work: workBridge, mode: "exactly-once", without: omitted{Observer: unobserved}}, name)
		b.records(t, name, events)
	}
	ports := engine.Ports{Store: &cursorstore.Store{}, Observer: ops.NewSampler(false)}
	for without, want := range map[omitted][2]bool{{}: {true, true}, {Observer: true}: {true, false},
		{Store: true}: {false, true}} {
		if p := without.of(ports); p.Store != nil != want[0] || p.Observer != nil != want[1] {
			t.Errorf("%+v leaves %+v", without, p)
		}
	}
}

// The loops publish every event once and leave the cursor in Redis.
func TestLoops(t *testing.T) {
	t.Parallel()
	const events = 2500
	b := startBenchServers(t, events)
	for _, c := range []cell{{work: workUsual}, {work: workSequential}} {
		name := strings.ReplaceAll(string(c.work), " ", "-")
		end := b.runPart(t, c, name)
		if n, err := b.backend.offsets(t.Context(), name); n != events || err != nil || end.Ended.IsZero() {
			t.Errorf("%s: %d records, %v, %+v", name, n, err, end)
		}
		if err := b.redis.Get(t.Context(), name+":cursor").Err(); err != nil {
			t.Errorf("%s: no cursor in Redis: %v", name, err)
		}
	}
}

// A run that lost events, or published some twice, does not count.
func TestVerify(t *testing.T) {
	t.Parallel()
	b := startBenchServers(t, 2*pageEvents)
	b.runPart(t, cell{work: workSequential}, "verify")
	for pages, fails := range map[int]bool{1: true, 2: false, 3: true} {
		if err := b.holds(t.Context(), "", pages*pageEvents, "verify"); (err != nil) != fails {
			t.Errorf("2 pages of %d: %v", pages, err)
		}
	}
	if err := b.holds(t.Context(), bridge.ExactlyOnce, pageEvents, "verify"); err != nil {
		t.Errorf("a page and its markers: %v", err)
	}
}
