package process

import (
	"io"
	"log"
	"log/slog"
	"os"
	"strings"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"exportbridge/cmd/internal/config"
)

// Keys of log records, in one place so that a query finds them all.
const (
	logStream    = "stream"
	logError     = "error"
	logHint      = "hint"
	logAddr      = "addr"
	LogComponent = "component" // kafka, redis, http: whose library speaks
)

// NewLogger returns a logger of the configured level and form, which folds
// floods: see FlushLog.
func NewLogger(w io.Writer, c *config.Process, environ []string) *slog.Logger {
	var level slog.Level
	// The walker let through only names of levels.
	_ = level.UnmarshalText([]byte(c.LogLevel))
	terminal := IsTerminal(w)
	if c.LogFormat == "json" || (c.LogFormat == "auto" && !terminal) {
		return slog.New(newFolder(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})))
	}
	return slog.New(newFolder(tint.NewTextHandler(w, &tint.Options{
		Level:      level,
		TimeFormat: "15:04:05.000",
		NoColor:    !terminal || NoColor(environ),
	})))
}

// FlushLog prints what a logger of NewLogger holds back, before the process
// ends.
func FlushLog(log *slog.Logger) {
	if f, ok := log.Handler().(*folder); ok {
		f.flush()
	}
}

// beneathFolds returns the handler of a logger of NewLogger with another one in
// front of its output: it gets what is printed, floods folded.
func beneathFolds(log *slog.Logger, wrap func(to slog.Handler) slog.Handler) slog.Handler {
	if f, ok := log.Handler().(*folder); ok {
		return &folder{next: wrap(f.next), owner: f.owner, floods: f.floods}
	}
	return wrap(log.Handler())
}

// takeStandardLog has what libraries write to the standard library's log in one
// form with all else. It concerns the whole process.
func takeStandardLog(to *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(libraryLog{to})
}

// libraryLog is the output of the standard library's log.
type libraryLog struct{ to *slog.Logger }

// Write implements io.Writer for one message. What it quotes is left out: an
// HTTP client quotes what a server sent beyond its answer, events and all.
func (l libraryLog) Write(message []byte) (int, error) {
	said, _, quotes := strings.Cut(strings.TrimSpace(string(message)), `"`)
	if quotes {
		said += "..."
	}
	l.to.Warn("a library complains", "message", said)
	return len(message), nil
}

// IsTerminal reports whether somebody looks at what is written to w.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// NoColor reports whether the user asked for text without colours (no-color.org).
func NoColor(environ []string) bool {
	return variableIn(environ, "NO_COLOR") != "" || variableIn(environ, "TERM") == "dumb"
}
