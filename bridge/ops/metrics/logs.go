package metrics

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

var logLevels = [...]string{"debug", "info", "warn", "error"}

// CountLogs returns a handler that counts the messages by level and passes them
// on. Messages below the level of next are not counted.
func (m *Metrics) CountLogs(next slog.Handler) slog.Handler {
	c := countedLogs{Handler: next}
	for i, level := range logLevels {
		c.counts[i] = m.logs.WithLabelValues(level)
	}
	return c
}

type countedLogs struct {
	slog.Handler
	counts [len(logLevels)]prometheus.Counter
}

func (c countedLogs) Handle(ctx context.Context, r slog.Record) error {
	step := slog.LevelInfo - slog.LevelDebug // from one level to the next
	c.counts[min(max((r.Level-slog.LevelDebug)/step, 0), slog.Level(len(logLevels)-1))].Inc()
	return c.Handler.Handle(ctx, r)
}

func (c countedLogs) WithAttrs(attrs []slog.Attr) slog.Handler {
	c.Handler = c.Handler.WithAttrs(attrs)
	return c
}

func (c countedLogs) WithGroup(name string) slog.Handler {
	c.Handler = c.Handler.WithGroup(name)
	return c
}
