package process

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/lmittmann/tint"

	"exportbridge/cmd/internal/config"
)

// Keys of log records. They are in one place, so that one query finds all records.
const (
	logStream    = "stream"
	logError     = "error"
	logHint      = "hint"
	logAddr      = "addr"
	logComponent = "component" // kafka, redis, http or traces
)

// componentHTTP marks the audit log: which clients were rejected, and what the others did.
const componentHTTP = "http"

// NewLogger returns a logger of the configured level and format that folds repeated
// messages; see FlushLog.
func NewLogger(w io.Writer, c *config.Process, environ []string) *slog.Logger {
	w = Exact(w) // each handler makes its values safe
	var level slog.Level
	// LogLevel is valid: the check of the settings accepts only names of levels.
	_ = level.UnmarshalText([]byte(c.LogLevel))
	if LogsJSON(w, c) {
		return slog.New(newFolder(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})))
	}
	return slog.New(newFolder(tint.NewTextHandler(w, &tint.Options{
		Level:      level,
		TimeFormat: "15:04:05.000",
		NoColor:    !IsTerminal(w) || NoColor(environ),
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			a.Value = printableValue(a.Value)
			return a
		},
	})))
}

// printableValue makes a value safe for a terminal. Without it, the handler would print
// escape sequences.
func printableValue(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(Printable(v.String()))
	case slog.KindAny:
		if _, own := v.Any().(slog.Level); !own {
			return slog.StringValue(Printable(fmt.Sprint(v.Any())))
		}
	}
	return v
}

// LogsJSON reports whether a logger of NewLogger writes JSON.
func LogsJSON(w io.Writer, c *config.Process) bool {
	return c.LogFormat == "json" || c.LogFormat == "auto" && !IsTerminal(w)
}

// FlushLog prints the messages that a logger of NewLogger holds back. Call it before
// the process ends.
func FlushLog(log *slog.Logger) {
	if f, ok := log.Handler().(*folder); ok {
		f.flush()
	}
}

// beneathFolds returns the handler of a logger of NewLogger with another handler in front
// of its output. The other handler gets the folded messages.
func beneathFolds(log *slog.Logger, wrap func(to slog.Handler) slog.Handler) slog.Handler {
	if f, ok := log.Handler().(*folder); ok {
		return &folder{next: wrap(f.next), owner: f.owner, whole: f.whole, floods: f.floods}
	}
	return wrap(log.Handler())
}

// takeStandardLog redirects the standard library's log, for the whole process.
func takeStandardLog(to *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(libraryLog{to})
}

// libraryLog is the output of the standard library's log.
type libraryLog struct{ to *slog.Logger }

// Write implements io.Writer for one message. It drops quoted text: an HTTP client
// quotes unexpected data of a server, which may contain events.
func (l libraryLog) Write(message []byte) (int, error) {
	said, _, quotes := strings.Cut(strings.TrimSpace(string(message)), `"`)
	if quotes {
		said += "..."
	}
	l.to.Warn("library log", "message", said)
	return len(message), nil
}
