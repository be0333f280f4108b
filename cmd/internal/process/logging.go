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
	LogComponent = "component" // kafka, redis, http or traces
)

// NewLogger returns a logger of the configured level and format that folds repeated
// messages; see FlushLog.
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

// FlushLog prints the messages that a logger of NewLogger holds back. Call it before
// the process ends.
func FlushLog(log *slog.Logger) {
	if f, ok := log.Handler().(*folder); ok {
		f.flush()
	}
}

// beneathFolds returns the handler of a logger of NewLogger with another handler in
// front of its output, which gets the folded messages.
func beneathFolds(log *slog.Logger, wrap func(to slog.Handler) slog.Handler) slog.Handler {
	if f, ok := log.Handler().(*folder); ok {
		return &folder{next: wrap(f.next), owner: f.owner, floods: f.floods}
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

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool { return Columns(w) > 0 }

// Columns returns the width of the terminal w, 0 if w is none.
func Columns(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		return width
	}
	return 80
}

// Cut shortens a text to n characters; the last one is then an ellipsis.
func Cut(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// NoColor reports whether the user asked for text without colours (no-color.org).
func NoColor(environ []string) bool {
	return variableIn(environ, "NO_COLOR") != "" || variableIn(environ, "TERM") == "dumb"
}
