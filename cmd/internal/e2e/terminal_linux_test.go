package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"exportbridge/cmd/internal/process"
	"exportbridge/cmd/internal/process/ptytest"
)

// On a terminal the log is text, and the status line fits.
func TestDemoOnATerminal(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, columns := range []int{80, 110} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, path)
		cmd.Args = strings.Fields("exportbridge-dev demo --duration 3s --rate 100/s --events 2500 --log-level info --kafka-addr 127.0.0.1:0 --redis-addr 127.0.0.1:0 --api-addr 127.0.0.1:0 --http-addr off")
		cmd.Env = append(os.Environ(), "NO_COLOR=1")
		terminal := ptytest.Open(t, columns)
		cmd.Stderr = terminal.File
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
		output := terminal.Output()
		lines := ptytest.StatusLines(output)
		if len(lines) == 0 || !strings.Contains(output, " INF session started ") || strings.Contains(output, `"msg"`) {
			t.Errorf("%d columns: %s", columns, output)
		}
		for _, line := range lines {
			if process.Width(line) >= columns || strings.ContainsAny(line, "\r\n") {
				t.Errorf("a status line of %d columns, the terminal has %d: %q", process.Width(line), columns, line)
			}
		}
	}
}
