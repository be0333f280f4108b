package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/ops"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cursorstore"
)

// benchServers are servers for the processes of a bench, in this one.
type benchServers struct {
	*bench
	api   *watchedAPI
	redis *embeddedRedis
}

// startBenchServers serves an export of so many events.
func startBenchServers(t *testing.T, events int) *benchServers {
	t.Helper()
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
	api := new(watchedAPI)
	if api.Handler, err = exportsim.New(exportsim.Config{Events: events, OnRequest: api.note}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	server, err := startEmbeddedSimulator(api, anyPort)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, server)
	traces, err := newBenchBackends(k.Addr, r.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := traces.close(); err != nil {
			t.Error(err)
		}
	})
	b := &bench{
		kafkaAddr: map[kafkaPath]string{pathDirect: k.Addr}, redisURL: r.URL, traces: traces,
		apis: map[apiKind]*benchAPI{{}: {url: server.URL}},
	}
	return &benchServers{bench: b, api: api, redis: r}
}

// runPart runs the process of a cell in this one.
func (b *benchServers) runPart(t *testing.T, c cell, name string) partEnd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := b.traces.create(ctx, name); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := Program.Run(ctx, b.command(c), b.settings(c, name), cli.Stdio{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr}); code != 0 {
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
	err := b.read(ctx, topic, func(records []*kgo.Record, _ time.Time) bool {
		for _, r := range records {
			all[r.Partition] = append(all[r.Partition], fmt.Sprintf("%s %s %s %d %s", r.Key, r.Value, r.Headers, r.Timestamp.UnixMilli(), fmt.Sprint(r.Attrs.CompressionType())))
			n--
		}
		return n > 0
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What is produced from memory is what the bridge makes, record by record.
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
		if end.Events != events-pageEvents || end.Ended.Before(end.Began) || end.Began.IsZero() || end.CPUSeconds < 0 || end.Mallocs == 0 {
			t.Errorf("%+v", end)
		}
	}
}

// Without commits to Redis nothing is there that could be gone on with.
func TestBridgeThatForgets(t *testing.T) {
	t.Parallel()
	const events = 1500
	b := startBenchServers(t, events)
	keys := func(name string) (found []string) {
		for _, key := range b.redis.server.Keys() {
			if strings.HasPrefix(key, name) {
				found = append(found, key)
			}
		}
		return found
	}
	for _, forget := range []bool{false, true} {
		name := fmt.Sprint("forget-", forget)
		b.runPart(t, cell{work: workBridge, mode: "exactly-once", forget: forget}, name)
		b.records(t, name, events)
		if found := keys(name); (len(found) == 0) != forget {
			t.Errorf("%s: keys %q in Redis", name, found)
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
		b.runPart(t, cell{work: workBridge, mode: "exactly-once", unobserved: unobserved}, name)
		b.records(t, name, events)
	}
	ports := bridge.Ports{Store: &cursorstore.Store{}, Observer: ops.NewSampler(nil, false)}
	for without, want := range map[omissions][2]bool{{}: {true, true}, {observer: true}: {true, false}, {store: true}: {false, true}} {
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
		name := slug(string(c.work))
		end := b.runPart(t, c, name)
		if n, err := b.traces.records(t.Context(), name); n != events || err != nil || end.Pages != 3 {
			t.Errorf("%s: %d records, %v, %+v", name, n, err, end)
		}
		if !b.redis.server.Exists(name + ":cursor") {
			t.Errorf("%s: no cursor in Redis", name)
		}
	}
	end := b.runPart(t, cell{work: workSplit}, "split")
	if end.Pages != 3 || end.PageAllocs < 0 || end.Ended.IsZero() {
		t.Errorf("split: %+v", end)
	}
}

// A run that lost or doubled events does not count.
func TestVerify(t *testing.T) {
	t.Parallel()
	b := startBenchServers(t, 2*pageEvents)
	b.runPart(t, cell{work: workSequential}, "verify")
	for _, c := range []struct {
		pages   int
		warming bool
		fails   bool
	}{
		{2, true, false}, {3, true, true}, {1, true, true},
		// Offsets alone cannot tell more events from the ends of transactions.
		{2, false, false}, {3, false, true}, {1, false, false},
	} {
		err := b.verify(t.Context(), cell{pages: c.pages, warming: c.warming}, "verify")
		if (err != nil) != c.fails {
			t.Errorf("2 pages where %d were to be, warming up %t: %v", c.pages, c.warming, err)
		}
	}
}
