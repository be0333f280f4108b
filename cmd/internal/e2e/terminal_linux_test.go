package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/process"
	"exportbridge/cmd/internal/process/ptytest"
)

// On a terminal the log is text, and the status line fits.
func TestDemoOnATerminal(t *testing.T) {
	t.Parallel()
	path := must.Get(os.Executable())(t)
	for _, columns := range []int{80, 110} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, path)
		cmd.Args = strings.Fields("exportbridge-dev demo --duration 3s --rate 100/s --events 2500 --log-level info " +
			"--kafka-addr 127.0.0.1:0 --redis-addr 127.0.0.1:0 --api-addr 127.0.0.1:0 --http-addr off")
		cmd.Env = append(os.Environ(), "NO_COLOR=1")
		terminal := ptytest.Open(t, columns)
		var stdout strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, terminal.File
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
		output := terminal.Output()
		lines := ptytest.StatusLines(output)
		if len(lines) == 0 || !strings.Contains(output, " INF session started ") || strings.Contains(output, `"msg"`) {
			t.Errorf("%d columns: %s", columns, output)
		}
		if !regexp.MustCompile(`\n  stopped after [0-9.]+s: [0-9,]+ events published\n$`).MatchString(stdout.String()) {
			t.Errorf("it ends with no summary: %s", stdout.String())
		}
		for _, line := range lines {
			if process.Width(line) >= columns || strings.ContainsAny(line, "\r\n") {
				t.Errorf("a status line of %d columns, the terminal has %d: %q", process.Width(line), columns, line)
			}
		}
	}
}

// fakeGo builds a demo that waits for a Ctrl-C, in place of go.
const fakeGo = `#!/bin/sh
while [ "$1" != -o ]; do shift; done
cat >"$2" <<'END'
#!/bin/sh
trap 'kill $!; echo stopped; exit 0' INT
sleep 600 &
: >"$READY"
wait
END
chmod +x "$2"
`

// A Ctrl-C ends make demo as the demo ends: in order.
func TestMakeDemoInterrupted(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("make")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	ready, compiler := filepath.Join(dir, "ready"), filepath.Join(dir, "go")
	if err := os.WriteFile(compiler, []byte(fakeGo), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "demo", "GO="+compiler)
	cmd.Dir, cmd.Env = "../../..", append(os.Environ(), "READY="+ready, "MAKEFLAGS=", "MAKELEVEL=")
	terminal := ptytest.Open(t, 80)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal.File, terminal.File, terminal.File
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.Do(t, cmd.Start())
	eventually(t, stepTimeout, "the demo", func() bool {
		_, err := os.Stat(ready)
		return err == nil
	})
	terminal.Type("\x03")
	err = cmd.Wait()
	if output := terminal.Output(); err != nil || !strings.Contains(output, "stopped") || strings.Contains(output, "***") {
		t.Errorf("%v: %s", err, output)
	}
}
