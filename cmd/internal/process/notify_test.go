package process

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/engine"
)

// hangingObserver is an observer in which the commit loop hangs from the first commit on.
type hangingObserver struct{ release chan struct{} }

func (h hangingObserver) Observe(o bridge.Observation) {
	if o.What == bridge.ObserveCommit {
		<-h.release
	}
}

// TestWatchdogFollowsTheLoop: the watchdog is fed while the loop moves or waits,
// and starves when the loop hangs.
func TestWatchdogFollowsTheLoop(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			manager, ours := net.Pipe()
			observer := hangingObserver{make(chan struct{})}
			if !hangs {
				close(observer.release)
			}
			b := newBridge(t, observer)
			p := &Process{
				options: Options{Describe: func(all []bridge.Status, _ time.Time) string { return string(all[0].State) }},
			}
			p.streams.set([]*stream{{name: "events", bridge: b, outdated: &p.outdated}})
			n := &notifier{conn: ours, log: slog.New(slog.DiscardHandler), watchdog: time.Minute}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.notified(ctx, n, b.Run) }()

			if got := read(t, manager); !strings.HasPrefix(got, "READY=1\nSTATUS=") {
				t.Errorf("first message %q", got)
			}
			fed, starved := 0, 0
			for began := time.Now(); time.Since(began) < 5*time.Minute; {
				if strings.HasSuffix(read(t, manager), "\nWATCHDOG=1") {
					fed++
				} else {
					starved++
				}
			}
			// A message every ten seconds; the first minute is the loop's own.
			if hangs && (fed < 5 || fed > 6 || starved < 20) || !hangs && (fed < 29 || starved > 0) {
				t.Errorf("hangs=%v: the watchdog was fed %d times and left hungry %d times", hangs, fed, starved)
			}
			if hangs {
				close(observer.release)
			}
			cancel()
			if got := read(t, manager); got != "STOPPING=1" {
				t.Errorf("last message %q", got)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// newBridge returns the bridge of a stream of five events.
func newBridge(t *testing.T, observer bridge.Observer) *engine.Engine {
	t.Helper()
	source := bridgetest.NewSource(t, bridgetest.Export{})
	source.Grow(5)
	return must.Get(engine.New(engine.Config{
		Stream: "events", Mode: bridge.AtLeastOnce, Origin: bridge.Origin{Resource: "events"}, PageSize: 10, Owner: "me",
		PollInterval: time.Second, PollIntervalMax: 15 * time.Second, PrefetchPages: 8, PrefetchBytes: 16 << 20,
		RetryMax: 30 * time.Second, EmptyPages: 5, OnInvalidCursor: "stop", OnSharedID: "publish", Overlap: time.Hour,
		OnCheckpointLoss: "kafka",
		ShutdownTimeout:  25 * time.Second, Log: slog.New(slog.DiscardHandler),
	}, engine.Ports{
		Source: source, Sink: bridgetest.NewTopic(t, bridge.AtLeastOnce).Open("events"),
		Store: bridgetest.NewStore(t, "events"), Observer: observer,
	}))(t)
}

func read(t *testing.T, conn net.Conn) string {
	t.Helper()
	message := make([]byte, 1024)
	size := must.Get(conn.Read(message))(t)
	return string(message[:size])
}

// TestNotifyOnlyWhenAsked: what the environment must say for it.
func TestNotifyOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	if n := newNotifier(t.Context(), nil, log); n != nil {
		t.Error("there is nobody to tell, and somebody is told")
	}
	var said strings.Builder
	if n := newNotifier(t.Context(), []string{"NOTIFY_SOCKET=" + t.TempDir() + "/none"},
		slog.New(slog.NewTextHandler(&said, nil))); n != nil {
		t.Error("a socket that is not there is told")
	}
	if !strings.Contains(said.String(), "level=WARN") {
		t.Errorf("logged %q, want a warning", said.String())
	}
}
