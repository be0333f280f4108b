package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"exportbridge/bridge/bridgetest/kafkatest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi/exportsim"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/cmd/internal/cli"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
)

// reloading is a process that reloads the file of BRIDGE_CONFIG.
type reloading struct {
	t       *testing.T
	events  int
	path    string
	app     *cli.App
	kafka   *servers.Cluster
	now     chan os.Signal
	log     lines
	process *process.Process
	stop    func() error // ends the process
}

// lines are the lines of a log. They may be used concurrently.
type lines struct {
	mu   sync.Mutex // guards text while the process runs
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// startReloading starts a process with the settings in a file. Each of its streams publishes
// so many events. A stream takes about half a second for a thousand. onRequest, if not nil,
// gets each request to the API, and can hold it back.
func startReloading(t *testing.T, events int, streams string, onRequest func(*http.Request)) *reloading {
	t.Helper()
	sim := must.Get(exportsim.New(exportsim.Config{
		Events: events, Seed: 1, APIKey: secretKey, Latency: 2 * time.Millisecond, OnRequest: onRequest,
	}))(t)
	t.Cleanup(sim.Close)
	api := httptest.NewServer(sim)
	t.Cleanup(api.Close)
	r := &reloading{
		t: t, events: events, path: filepath.Join(t.TempDir(), "streams.yaml"), now: make(chan os.Signal),
		kafka: servers.EmbeddedKafka(t, kfake.NumBrokers(1)),
	}
	r.app = &cli.App{Given: map[string]string{}, Environ: []string{
		"BRIDGE_CONFIG=" + r.path, "EXPORT_API_KEY=" + secretKey, "EXPORT_URL=" + api.URL, "EXPORT_RESOURCE=events",
		"HTTP_ADDR=127.0.0.1:0", "KAFKA_BROKERS=" + strings.Join(r.kafka.ListenAddrs(), ","),
		"KAFKA_CREATE_TOPICS=true", "KAFKA_PARTITIONS=1", "KAFKA_REPLICATION=1",
		// A stalled machine must neither restart a stream nor fail a shutdown.
		"BRIDGE_SESSION_TIMEOUT=1m", "BRIDGE_SHUTDOWN_TIMEOUT=1m",
		"REDIS_URL=redis://" + servers.EmbeddedRedis(t).Addr() + "/0",
	}}
	r.app.Stdout, r.app.Stderr = io.Discard, io.Discard
	r.write(streams)
	s := must.Get(r.app.Settings(config.UsesAll, nil))(t)
	o := ProcessOptions(r.app, engine.Limits{}, slog.New(slog.NewTextHandler(&r.log, nil)))
	o.Reload = &process.Reload{Load: r.app.Reload, Now: r.now}
	r.process = must.Get(process.New(t.Context(), s, o))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.process.RunAndClose(ctx, process.NewStatusLine(io.Discard)) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = r.stop() })
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.log.text.String())
		}
	})
	return r
}

func (r *reloading) write(text string) {
	r.t.Helper()
	must.Do(r.t, os.WriteFile(r.path, []byte(text), 0o600))
}

// reload makes the process load the file, and waits for the end of that.
func (r *reloading) reload(text, want string) {
	r.t.Helper()
	before := r.log.count(want)
	r.write(text)
	r.now <- nil
	r.await(want, func() bool { return r.log.count(want) > before })
}

func (r *reloading) await(what string, done func() bool) {
	r.t.Helper()
	kafkatest.Eventually(r.t, what, func() (bool, error) { return done(), nil })
}

// get returns the answer of the HTTP server.
func (r *reloading) get(path string) string {
	r.t.Helper()
	resp := must.Get(http.Get("http://" + r.process.Addr().String() + path))(r.t)
	defer resp.Body.Close()
	body := must.Get(io.ReadAll(resp.Body))(r.t)
	return string(body)
}

// metric returns the value of a series, -1 if there is none.
func (r *reloading) metric(series string) int {
	r.t.Helper()
	line := regexp.MustCompile(`(?m)^exportbridge_` + regexp.QuoteMeta(series) + ` (\S+)$`)
	found := line.FindStringSubmatch(r.get("/metrics"))
	if found == nil {
		return -1
	}
	n := must.Get(strconv.ParseFloat(found[1], 64))(r.t)
	return int(n)
}

func published(stream string) string { return `events_published_total{stream="` + stream + `"}` }

func acquired(stream string) string {
	return `owner_transitions_total{stream="` + stream + `",to="owner"}`
}

// reader reads the committed records of a topic with one partition.
func reader(t *testing.T, kafka *servers.Cluster, topic string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append(opts, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	return servers.Client(t, kafka.ListenAddrs()[0], opts...)
}

// wantAll waits until a topic has every event, and ends the process. The topic must have
// each event once.
func (r *reloading) wantAll(streams ...string) {
	r.t.Helper()
	for _, stream := range streams {
		client := reader(r.t, r.kafka, "export."+stream)
		found := make(map[string]bool)
		for n := 0; n < r.events; {
			ctx, cancel := context.WithTimeout(r.t.Context(), kafkatest.Patience)
			fetched := client.PollFetches(ctx)
			cancel()
			if err := fetched.Err(); err != nil {
				r.t.Fatalf("stream %s: %d different events in %d records: %v", stream, len(found), n, err)
			}
			fetched.EachRecord(func(rec *kgo.Record) { n++; found[string(rec.Value)] = true })
		}
		client.Close()
		if len(found) != r.events {
			r.t.Errorf("stream %s: %d different events in %d records", stream, len(found), r.events)
		}
	}
	if err := r.stop(); err != nil {
		r.t.Error(err)
	}
	for _, stream := range streams {
		if n := committed(r.t, r.kafka, "export."+stream); n != r.events {
			r.t.Errorf("stream %s: %d records, want %d", stream, n, r.events)
		}
	}
}

// committed counts the committed records of a topic with one partition.
func committed(t *testing.T, kafka *servers.Cluster, topic string) (n int) {
	t.Helper()
	client := reader(t, kafka, topic, kgo.KeepControlRecords())
	defer client.Close()
	info := kafka.PartitionInfo(topic, 0)
	for last := int64(-1); last < info.HighWatermark-1; {
		ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Patience)
		fetched := client.PollFetches(ctx)
		cancel()
		must.Do(t, fetched.Err())
		fetched.EachRecord(func(rec *kgo.Record) {
			if last = rec.Offset; !rec.Attrs.IsControl() {
				n++
			}
		})
	}
	return n
}

// TestReload: streams are added, removed, changed and added again while all streams publish.
// Each event is published once, and no other stream restarts. RELOADS is the number of
// changes.
func TestReload(t *testing.T) {
	t.Parallel()
	for _, ownership := range []string{kafkagroup.OwnedByStream, kafkagroup.OwnedByGroup} {
		t.Run(ownership, func(t *testing.T) {
			t.Parallel()
			testReload(t, ownership)
		})
	}
}

func testReload(t *testing.T, ownership string) {
	changes := must.Number(t, "RELOADS", 10)
	describe := func(page int, names ...string) string {
		text := fmt.Sprintf("settings: {EXPORT_PAGE_SIZE: 10, BRIDGE_OWNERSHIP: %s}\n"+
			"streams:\n  changed: {EXPORT_PAGE_SIZE: %d}\n", ownership, page)
		for _, name := range append(names, "steady") {
			text += "  " + name + ":\n"
		}
		return text
	}
	r := startReloading(t, 400*changes, describe(10, "a", "b"), nil)
	restarts := 0
	for n := range changes {
		r.await("the streams to publish", func() bool { return r.metric(published("steady")) > 0 })
		switch n % 4 {
		case 0: // one goes, one comes
			r.reload(describe(10+restarts, "b", "c"), "settings reloaded")
			r.await("the removed stream to be gone", func() bool { return r.metric(published("a")) < 0 })
		case 1: // one restarts
			restarts++
			r.reload(describe(10+restarts, "b", "c"), "settings reloaded")
		case 2: // all at once, twice
			restarts += 2
			r.reload(describe(9+restarts, "a"), "settings reloaded")
			r.reload(describe(10+restarts, "c", "b", "a"), "settings reloaded")
		case 3: // the first state, again
			r.reload(describe(10+restarts, "a", "b"), "settings reloaded")
			r.reload(describe(10+restarts, "a", "b"), "settings reloaded")
		}
	}
	r.reload(describe(10+restarts, "a", "b", "c"), "settings reloaded")
	if n := r.metric(acquired("steady")); n != 1 {
		t.Errorf("the steady stream has started %d times", n)
	}
	r.wantAll("steady", "changed", "a", "b", "c")
	r.log.wantHandovers(t, "changed")
}

// wantHandovers checks that each run of a stream was released before the next one began. A
// run may be stopped before it began.
func (l *lines) wantHandovers(t *testing.T, stream string) {
	t.Helper()
	begun := regexp.MustCompile(`msg="(waiting for ownership|stream released)" stream=` + stream + `\n`)
	var order []string
	for _, found := range begun.FindAllStringSubmatch(l.text.String(), -1) {
		order = append(order, found[1])
	}
	const waiting = "waiting for ownership"
	for n := range order {
		if n > 0 && order[n] == waiting && order[n-1] == waiting {
			t.Fatalf("stream %s: %q", stream, order)
		}
	}
	if !slices.Contains(order, "stream released") {
		t.Errorf("stream %s never restarted: %q", stream, order)
	}
}

// TestReloadMistake: a file with a mistake changes nothing. The mistake is reported until it
// is corrected.
func TestReloadMistake(t *testing.T) {
	t.Parallel()
	const good = "settings: {EXPORT_PAGE_SIZE: 10, BRIDGE_OWNERSHIP: group, BRIDGE_FLEET_MEMBERS: 200}\n" +
		"streams:\n  steady:\n  other:\n"
	r := startReloading(t, 1000, good, nil)
	const reload = "config_last_reload_successful"
	if n := r.metric(reload); n != 1 {
		t.Errorf("%s is %d at the start", reload, n)
	}
	restart := strings.Replace(good, "}", ", HTTP_ALLOWED_HOSTS: example.com}", 1)
	many := good
	for n := range 207 {
		many += fmt.Sprintf("  s%d:\n", n)
	}
	for bad, want := range map[string]string{
		"streams:\n  steady: {EXPORT_PAGE_SIZE: many}\n": r.path + `:2:30: EXPORT_PAGE_SIZE: \"many\" is not`,
		"streams: [": r.path + ":1:1: is not YAML",
		restart:      "HTTP_ALLOWED_HOSTS changed, which requires a restart of the process",
		"streams:\n": r.path + ":1:1: names no stream",
		many:         r.path + ":1:81: BRIDGE_FLEET_MEMBERS is 200, which allows 208 streams per process, not 209",
	} {
		corrections := r.log.count("correct the file")
		r.reload(bad, "settings not reloaded")
		if r.log.count(want) != 1 {
			t.Errorf("the log lacks %q", want)
		}
		if r.log.count("correct the file") > corrections != (bad != restart) {
			t.Errorf("the hint for %q is wrong", want)
		}
		if n := r.metric(reload); n != 0 {
			t.Errorf("%s is %d after a mistake", reload, n)
		}
		if ready := r.get("/readyz?verbose"); strings.Count(ready, "warning: settings not reloaded: ") != 2 {
			t.Errorf("the streams are %s", ready)
		}
	}
	if n := r.log.count("stream starts"); n > 0 { // which RunBridge says of the first ones
		t.Errorf("%d streams have started", n)
	}
	r.reload(good, "settings reloaded")
	if n := r.metric(reload); n != 1 || strings.Contains(r.get("/readyz?verbose"), "not reloaded") {
		t.Errorf("after the mistake is mended %s is %d, and the streams are %s", reload, n, r.get("/readyz?verbose"))
	}
	r.wantAll("steady", "other")
}
