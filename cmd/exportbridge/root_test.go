package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start runs a program of this test binary by its name. It is killed when it
// does not end by itself.
func start(t *testing.T, name string, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("windows cannot send these signals")
	}
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = append([]string{name}, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, out := start(t, "deaf")
		signalUntil(t, cmd, sig, out)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
			t.Errorf("second %v: %v, exit code %d", sig, err, cmd.ProcessState.ExitCode())
		}
	}
}

// signalUntil waits until the program listens, sends one signal and waits until
// it has arrived.
func signalUntil(t *testing.T, cmd *exec.Cmd, sig os.Signal, out *bufio.Reader) {
	t.Helper()
	for _, want := range []string{"listening\n", "interrupted\n"} {
		line, err := out.ReadString('\n')
		if err != nil || line != want {
			t.Fatalf("read %q, %v, want %q", line, err, want)
		}
		if want == "listening\n" {
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestSimulateStops(t *testing.T) {
	t.Parallel()
	cmd, out := start(t, "exportbridge", "simulate", "--listen", "127.0.0.1:0", "--api-key", "sesame", "--events", "3", "--rate", "0")
	line, err := out.ReadString('\n')
	if err != nil || !strings.Contains(line, "3 in stock") {
		t.Fatalf("read %q, %v", line, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Fields(line)[2]+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", "sesame")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || bytes.Count(body, []byte(`"eventId"`)) != 3 {
		t.Errorf("%s %s, %v", resp.Status, body, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	plain := errors.New("plain")
	for _, test := range []struct {
		name    string
		ctx     context.Context
		started bool
		err     error
		want    int
	}{
		{"before the command", t.Context(), false, plain, exitUsage},
		{"in the command", t.Context(), true, plain, exitFailed},
		{"typed", t.Context(), true, fmt.Errorf("wrapped: %w", &exitError{code: exitRefused, err: plain}), exitRefused},
		{"interrupted", cancelled, true, fmt.Errorf("wait: %w", context.Canceled), exitInterrupted},
		{"failed while interrupted", cancelled, true, plain, exitFailed},
		{"cancelled by itself", t.Context(), true, context.Canceled, exitFailed},
	} {
		a := &app{started: test.started}
		if got := exitCode(a.classify(test.ctx, test.err)); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
	if exitCode(nil) != exitOK || exitCode(plain) != exitFailed {
		t.Errorf("exitCode(nil) = %d, of a plain error %d", exitCode(nil), exitCode(plain))
	}
}

func TestPrintError(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	printError(&b, &exitError{code: 1, err: errors.New("broken\n"), hint: "mend it"})
	if b.String() != "error: broken\nTry: mend it\n" {
		t.Errorf("printed %q", b.String())
	}
}

// TestRun checks that the program uses only what it is given.
func TestRun(t *testing.T) {
	t.Parallel()
	var out, diag bytes.Buffer
	code := run(t.Context(), []string{"config", "show", "--json", "--export-page-size", "5"},
		[]string{"EXPORT_API_KEY=sesame"}, stdio{nil, &out, &diag})
	if code != exitOK || diag.Len() > 0 || strings.Contains(out.String(), "sesame") || !strings.Contains(out.String(), `"value": "5"`) {
		t.Errorf("exit code %d, stdout %s, stderr %s", code, out.String(), diag.String())
	}
}
