package ops_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops"
)

// movingStream has one more event at each call of Status.
type movingStream struct{ looks atomic.Int64 }

func (m *movingStream) Alive() bool { return true }

func (m *movingStream) Status() bridge.Status {
	return bridge.Status{Stream: "events", Mode: bridge.ExactlyOnce, State: bridge.StateRunning, CaughtUp: true,
		Events: m.looks.Add(1)}
}

// feedServer is a server on loopback, and the sources of its events.
type feedServer struct {
	url     string
	log     *slog.Logger
	samples *ops.Sampler
	stop    context.CancelFunc
	served  chan error
}

func startFeed(t *testing.T, s ops.Stream, values bool) *feedServer {
	t.Helper()
	tail, samples := ops.NewLogTail(slog.DiscardHandler), ops.NewSampler(values)
	f := serveFeed(t, ops.Parts{Streams: func() []ops.Stream { return []ops.Stream{s} }, Log: tail, Samples: samples})
	f.log, f.samples = slog.New(tail), samples
	return f
}

func serveFeed(t *testing.T, parts ops.Parts) *feedServer {
	t.Helper()
	parts.Metrics = metricsOf(new(fakeStream))
	server := must.Get(ops.Listen(t.Context(), ops.Config{Addr: "127.0.0.1:0"}, parts))(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := &feedServer{url: "http://" + server.Addr().String(), stop: cancel, served: make(chan error, 1)}
	go func() { f.served <- server.Serve(ctx) }()
	t.Cleanup(cancel)
	return f
}

// message is one event of a feed.
type message struct{ event, data string }

// connect reads the feed of a page that shows a stream, or none, until it ends or the test
// does. The first line has come when connect returns.
func (f *feedServer) connect(t *testing.T, stream string) <-chan message {
	t.Helper()
	address := f.url + "/api/v1/events?stream=" + stream
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody))(t)
	res := must.Get(http.DefaultClient.Do(req))(t)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" ||
		res.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s %v", res.Status, res.Header)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	if lines.Scan(); lines.Text() != "retry: 2000" {
		t.Fatalf("the feed begins with %q", lines.Text())
	}
	all := make(chan message, 1000)
	go func() {
		defer close(all)
		defer res.Body.Close()
		var m message
		for lines.Scan() {
			switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
			case "event":
				m.event = value
			case "data":
				m.data = value
				all <- m
			}
		}
	}()
	return all
}

// await returns the data of the next message of a kind that holds text.
func await(t *testing.T, from <-chan message, event, text string) string {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for {
		select {
		case m, ok := <-from:
			if !ok {
				t.Fatalf("the feed ended before a %s with %q", event, text)
			}
			if m.event == event && strings.Contains(m.data, text) {
				return m.data
			}
		case <-deadline.C:
			t.Fatalf("no %s with %q within 10 s", event, text)
		}
	}
}

func TestFeed(t *testing.T) {
	t.Parallel()
	s := new(movingStream)
	f := startFeed(t, s, false)
	f.log.With("stream", "events").Warn("before", "n", 1)
	began := time.Now()
	feed := f.connect(t, "events")
	past := await(t, feed, "log", `"msg":"before"`)
	var entry struct {
		Level string
		Attrs map[string]any
	}
	if err := json.Unmarshal([]byte(past), &entry); err != nil || entry.Level != "WARN" ||
		entry.Attrs["stream"] != "events" || entry.Attrs["n"] != 1.0 {
		t.Errorf("log entry %s", past)
	}
	await(t, feed, "briefs", `"condition":"idle"`)
	await(t, feed, "detail", `"state":"running"`)
	f.log.Error("after")
	await(t, feed, "log", `"msg":"after"`)

	// At most two a second, and at least one. A late reader finds several at once, so the
	// time counts from before the first.
	for range 4 {
		await(t, feed, "detail", "")
	}
	if took := time.Since(began); took < 2*time.Second || took > 30*time.Second {
		t.Errorf("five details took %s, want about two seconds", took)
	}
}

// still has always the same status.
type still struct{}

func (still) Alive() bool           { return true }
func (still) Status() bridge.Status { return bridge.Status{Stream: "events", CaughtUp: true} }

func TestFeedRepeatsTheDetail(t *testing.T) {
	t.Parallel()
	f := startFeed(t, still{}, false)
	began := time.Now()
	feed := f.connect(t, "events")
	for range 2 {
		await(t, feed, "detail", "")
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("a detail that has not changed comes again after %s, want a second", took)
	}
}

func TestFeedEndsWithTheServer(t *testing.T) {
	t.Parallel()
	f := startFeed(t, still{}, false)
	feed := f.connect(t, "events")
	await(t, feed, "detail", "")
	began := time.Now()
	f.stop()
	if err := <-f.served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	for range feed {
	}
	if took := time.Since(began); took >= 2*time.Second {
		t.Errorf("the server stopped after %s, it waited for the feed", took)
	}
}

// A client that holds all feeds, even silent ones, shuts no client out: a new feed ends the
// oldest.
func TestTooManyFeeds(t *testing.T) {
	t.Parallel()
	f := startFeed(t, still{}, false)
	var silent []net.Conn
	for range 32 {
		conn := hold(t, f.url, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n")
		must.Get(io.WriteString(conn, "\r\n"))(t)
		if _, err := conn.Read(make([]byte, 12)); err != nil { // it is connected
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	feed := f.connect(t, "events")
	await(t, feed, "detail", "")
	must.Do(t, silent[0].SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, err := io.Copy(io.Discard, silent[0]); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest feed does not end")
	}
	for range 40 { // the other ones still come
		f.connect(t, "events")
	}
}

// An id, a key and a value may name a person. Clients get id, value and a hash of the key,
// which differs in each process, only with HTTP_SHOW_EVENTS.
func TestSamples(t *testing.T) {
	t.Parallel()
	hashes := make(map[string]bool)
	for _, values := range []bool{false, true, true} {
		f := startFeed(t, still{}, values)
		offer := func(kind string) {
			f.samples.Offer("events", func(bool) ops.Sample {
				return ops.Sample{Type: kind, ID: "alice@example.com", Key: "alice", Value: `{"secret":1}`}
			})
		}
		committed := bridge.Observation{Stream: "events", What: bridge.ObserveCommit}
		offer("nobody")
		f.samples.Observe(committed)
		feed := f.connect(t, "events")
		await(t, feed, "detail", "")

		f.samples.Offer("users", func(bool) ops.Sample { return ops.Sample{Type: "another stream"} })
		f.samples.Observe(bridge.Observation{Stream: "users", What: bridge.ObserveCommit})
		offer("aborted")
		f.samples.Observe(bridge.Observation{Stream: "events", What: bridge.ObserveTransaction, Code: "unknown"})
		f.samples.Observe(committed)
		for soon := false; !soon; {
			<-time.After(250 * time.Millisecond)
			began := time.Now()
			offer("first")
			offer("too soon")
			soon = time.Since(began) < 200*time.Millisecond
		}
		f.samples.Observe(bridge.Observation{Stream: "events", What: bridge.ObserveTransaction, Code: "committed"})
		f.samples.Observe(committed)
		got := await(t, feed, "sample", "")
		for _, private := range []string{"alice@example.com", "secret", "key_hash"} {
			if strings.Contains(got, private) != values {
				t.Errorf("values %v: sample %s, with %s", values, got, private)
			}
		}
		if !strings.Contains(got, `"type":"first"`) || strings.Contains(got, `"alice"`) ||
			strings.Contains(got, bridge.CursorHash("alice")) {
			t.Errorf("values %v: sample %s, want the first one, without its key and a hash that others can compute", values, got)
		}
		_, hash, _ := strings.Cut(got, `"key_hash":"`)
		if hash, _, _ = strings.Cut(hash, `"`); hashes[hash] {
			t.Errorf("key_hash %s comes again", hash)
		}
		hashes[hash] = true
	}
}

// However many pages are published, there are five samples a second.
func TestSamplesAreFew(t *testing.T) {
	t.Parallel()
	f := startFeed(t, still{}, false)
	feed := f.connect(t, "events")
	await(t, feed, "detail", "")
	made := 0
	for began := time.Now(); time.Since(began) < time.Second; {
		f.samples.Offer("events", func(bool) ops.Sample {
			made++
			return ops.Sample{ID: fmt.Sprint(made)}
		})
		f.samples.Observe(bridge.Observation{Stream: "events", What: bridge.ObserveCommit})
	}
	if made < 2 || made > 6 {
		t.Errorf("%d samples in a second, want five", made)
	}
}

func BenchmarkOfferToNobody(b *testing.B) {
	s := ops.NewSampler(false)
	b.ReportAllocs()
	for b.Loop() {
		s.Offer("events", func(bool) ops.Sample { return ops.Sample{} })
	}
}
