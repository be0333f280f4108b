package ops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops"
)

// LogTail keeps the contract of slog.Handler.
func TestLogTailIsAHandler(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return ops.NewLogTail(slog.NewJSONHandler(&out, nil))
	}, func(t *testing.T) map[string]any {
		var got map[string]any
		must.Do(t, json.Unmarshal(out.Bytes(), &got))
		return got
	})
}

type loud struct{}

func (loud) LogValue() slog.Value { return slog.StringValue("quiet") }

func TestLogIsKept(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tail := ops.NewLogTail(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))
	f := serveFeed(t, ops.Parts{Streams: func() []ops.Stream { return []ops.Stream{still{}} }, Log: tail})
	log := slog.New(tail)
	log.Debug("debug")
	for i := range 120 {
		log.With("n", i).Info("state")
	}
	log.With("stream", "events").WithGroup("g").Warn("last", "error", errors.New("broken"), "key",
		bridge.Secret("abc"), "loud", loud{},
		slog.Group("in", "n", 1), "long", strings.Repeat("x", 5000), "took", time.Second)
	feed := f.connect(t, "")
	if first := <-feed; first.event != "log" || !strings.Contains(first.data, `"n":21`) {
		t.Errorf("the hundred entries before the last begin with %v", first)
	}
	last := await(t, feed, "log", `"msg":"last"`)
	for _, want := range []string{`"stream":"events"`, `"g.error":"broken"`, `"g.key":"***"`, `"g.loud":"quiet"`,
		`"g.in.n":1`, `"g.took":"1s"`, `"level":"WARN"`} {
		if !strings.Contains(last, want) {
			t.Errorf("the entry lacks %s: %s", want, last)
		}
	}
	if len(last) > 2000 {
		t.Errorf("the entry has %d bytes", len(last))
	}
	if out.Len() > 0 {
		t.Errorf("what the level keeps out is logged: %s", &out)
	}
	if tail.Enabled(context.Background(), slog.LevelDebug) {
		t.Error("debug is wanted")
	}
}

// A client that does not read is disconnected, and delays no other client.
func TestSlowCallerIsLetGo(t *testing.T) {
	t.Parallel()
	tail := ops.NewLogTail(slog.DiscardHandler)
	f := serveFeed(t, ops.Parts{Streams: func() []ops.Stream { return []ops.Stream{still{}} }, Log: tail})
	feed := f.connect(t, "")
	await(t, feed, "briefs", "")
	log := slog.New(tail)
	done := make(chan struct{})
	go func() {
		defer close(done)
		long := strings.Repeat("x", 1000)
		for range 20_000 { // more than the connection holds
			log.Info("state", "long", long)
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("logging waits for a caller")
	}
	for range feed {
	}
}
