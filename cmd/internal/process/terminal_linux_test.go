package process

import (
	"io"
	"strings"
	"testing"

	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process/ptytest"
)

// A status line fits into the terminal, also into one that was resized, and the
// log above it is text.
func TestStatusLineOnATerminal(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{80, 110} {
		terminal := ptytest.Open(t, columns)
		line := NewStatusLine(Text{To: terminal.File})
		log := NewLogger(line, &config.Process{LogFormat: "auto", LogLevel: "info"}, []string{"TERM=xterm"})
		line.show("  " + strings.Repeat("é世", 60) + "\r\nnext\x1b[2J")
		log.Info("hello", logError, poison)
		terminal.Resize(50)
		log.Info("resized")
		line.show("  short")
		line.show("")
		output := terminal.Output()
		lines := ptytest.StatusLines(output)
		if len(lines) != 4 || lines[0] != lines[1] || Width(lines[1]) < columns-2 || Width(lines[1]) >= columns ||
			Width(lines[2]) != 49 || lines[3] != "  short" {
			t.Errorf("%d columns: %d lines: %q", columns, len(lines), lines)
		}
		if !strings.Contains(output, "hello") || strings.Contains(output, `"msg"`) ||
			!strings.Contains(output, "\x1b[92mINF") {
			t.Errorf("the log is no coloured text: %q", output)
		}
		if !strings.Contains(output, "evil") || strings.Contains(output, "\x1b]") ||
			strings.ContainsAny(output, "\u202e\u009b\a") {
			t.Errorf("the log misleads: %q", output)
		}
	}
}

// JSON and raw bytes are exact, but not on a terminal.
func TestExactNotOnATerminal(t *testing.T) {
	t.Parallel()
	const doc, bytes = "{\"a\":\"\u009b2J\u202e\"}", "\x1b[2Jx\u202e"
	terminal := ptytest.Open(t, 80)
	var file strings.Builder
	for _, to := range []io.Writer{terminal.File, &file} {
		_, _ = io.WriteString(JSON(Text{To: to}), doc+"\n")
		_, _ = io.WriteString(Raw(Text{To: to}), bytes+"\n")
	}
	if got := file.String(); got != doc+"\n"+bytes+"\n" {
		t.Errorf("a file has %q", got)
	}
	if got := terminal.Output(); !strings.Contains(got, `{"a":"\u009b2J\u202e"}`) ||
		strings.ContainsAny(got, "\x1b\u009b\u202e") {
		t.Errorf("the terminal shows %q", got)
	}
}
