package process

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFolder(t *testing.T) {
	t.Parallel()
	flood := func(log *slog.Logger, n int, message string) {
		for i := range n {
			r := slog.NewRecord(time.Now(), slog.LevelWarn, message, 0)
			r.Add("n", i)
			if err := log.Handler().Handle(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
	}
	for _, tc := range []struct {
		name string
		do   func(log *slog.Logger)
		want []string
	}{
		{"few are printed as they come", func(log *slog.Logger) { flood(log, 5, "a") },
			[]string{"a n=0", "a n=1", "a n=2", "a n=3", "a n=4"}},
		{"a flood is folded into its last", func(log *slog.Logger) {
			flood(log, 1000, "a")
			synctestAfter(floodWindow)
		}, []string{"a n=0", "a n=1", "a n=2", "a n=3", "a n=4", "a n=999 repeated=995"}},
		{"what is held back is printed at the end", func(log *slog.Logger) { flood(log, 7, "a") },
			[]string{"a n=0", "a n=1", "a n=2", "a n=3", "a n=4", "a n=6 repeated=2"}},
		{"a flood that goes on is one line each window", func(log *slog.Logger) {
			for range 3 {
				flood(log, 10, "a")
				synctestAfter(floodWindow)
			}
		}, []string{"a n=0", "a n=1", "a n=2", "a n=3", "a n=4", "a n=9 repeated=5", "a n=9 repeated=10",
			"a n=9 repeated=10"}},
		{"a flood that is over is forgotten", func(log *slog.Logger) {
			flood(log, 6, "a")
			synctestAfter(3 * floodWindow)
			flood(log, 1, "a")
		}, []string{"a n=0", "a n=1", "a n=2", "a n=3", "a n=4", "a n=5 repeated=1", "a n=0"}},
		{"other messages are not held up", func(log *slog.Logger) {
			flood(log, 6, "a")
			flood(log, 1, "b")
		}, []string{"a n=0", "a n=1", "a n=2", "a n=3", "a n=4", "b n=0", "a n=5 repeated=1"}},
		{"each stream has its own", func(log *slog.Logger) {
			flood(log.With(logStream, "x"), 5, "a")
			flood(log.With(logStream, "y"), 1, "a")
			log.Warn("a", logStream, "z")
			log.Error("a", logStream, "x")
		}, []string{"a stream=x n=0", "a stream=x n=1", "a stream=x n=2", "a stream=x n=3", "a stream=x n=4",
			"a stream=y n=0", "a stream=z", "a stream=x"}},
		{"what callers were refused or did is never folded", func(log *slog.Logger) {
			log = log.With(logComponent, componentHTTP)
			for n := range 8 {
				log.Warn("a", "caller", n)
			}
		}, []string{"a component=http caller=0", "a component=http caller=1", "a component=http caller=2",
			"a component=http caller=3",
			"a component=http caller=4", "a component=http caller=5", "a component=http caller=6", "a component=http caller=7"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(newFolder(slog.NewTextHandler(&out,
				&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
						return slog.Attr{}
					}
					return a
				}})))
			tc.do(log)
			FlushLog(log)
			got := strings.Split(strings.TrimSpace(strings.ReplaceAll(out.String(), "msg=", "")), "\n")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", tc.name, diff)
			}
		})
	}
}

// synctestAfter lets virtual time pass and the timers run.
func synctestAfter(d time.Duration) {
	<-time.After(d + time.Millisecond)
	synctest.Wait()
}

// Below the level nothing is kept, and groups stay where they are.
func TestFolderPassesOn(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(newFolder(slog.NewTextHandler(&out, nil)))
	log.Debug("hidden")
	log.WithGroup("g").Info("shown", "a", 1)
	FlushLog(log)
	if got := out.String(); strings.Contains(got, "hidden") || !strings.Contains(got, "msg=shown g.a=1\n") {
		t.Errorf("the log is\n%s", got)
	}
}
