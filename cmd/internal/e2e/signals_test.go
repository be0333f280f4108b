package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/cmd/internal/cli"
)

// start runs a program of this test binary by its name. It is killed when it
// does not end by itself.
func start(t *testing.T, name string, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("windows cannot send these signals")
	}
	path := must.Get(os.Executable())(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = append([]string{name}, args...)
	cmd.Stderr = os.Stderr
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	return cmd, bufio.NewReader(out)
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, out := start(t, "deaf", "listen")
		signalUntil(t, cmd, sig, out)
		must.Do(t, cmd.Process.Signal(sig))
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != cli.ExitInterrupted {
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
			must.Do(t, cmd.Process.Signal(sig))
		}
	}
}

func TestSimulateStops(t *testing.T) {
	t.Parallel()
	cmd, out := start(t, "exportbridge-dev", "simulate", "--listen", "127.0.0.1:0", "--api-key", "sesame", "--events",
		"3", "--rate", "0")
	line, err := out.ReadString('\n')
	if err != nil || !strings.Contains(line, "3 initial events") {
		t.Fatalf("read %q, %v", line, err)
	}
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Fields(line)[2]+"/events", nil))(t)
	req.Header.Set("X-Api-Key", "sesame")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp := must.Get(client.Do(req))(t)
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || bytes.Count(body, []byte(`"eventId"`)) != 3 {
		t.Errorf("%s %s, %v", resp.Status, body, err)
	}
	must.Do(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// TestReloadSignals: the program loads its file again on SIGHUP, and when the link to it
// changes, as that of a ConfigMap does. Servers are not needed for that.
func TestReloadSignals(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("windows has no SIGHUP")
	}
	dir := t.TempDir()
	current := filepath.Join(dir, "..data")
	publish := func(version, text string) {
		folder := filepath.Join(dir, version)
		must.Do(t, os.Mkdir(folder, 0o700))
		must.Do(t, os.WriteFile(filepath.Join(folder, "streams.yaml"), []byte(text), 0o600))
		must.Do(t, os.Symlink(folder, current+version))
		must.Do(t, os.Rename(current+version, current))
	}
	publish("1", "streams: {events: }\n")
	path := must.Get(os.Executable())(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = []string{"exportbridge", "run"}
	cmd.Env = []string{"BRIDGE_CONFIG=" + current + "/streams.yaml", "EXPORT_API_KEY=any", "KAFKA_BROKERS=127.0.0.1:1", "REDIS_URL=redis://127.0.0.1:1/0", "HTTP_ADDR=off", "BRIDGE_SHUTDOWN_TIMEOUT=1s", "LOG_FORMAT=text"}
	said := must.Get(cmd.StderrPipe())(t)
	must.Do(t, cmd.Start())
	lines := bufio.NewScanner(said)
	await := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the program ended without %q", text)
	}
	await("stream starts")
	must.Do(t, cmd.Process.Signal(syscall.SIGHUP))
	await("settings reloaded")
	publish("2", "streams: {events: , Users: }\n")
	await(`settings not reloaded; the streams go on unchanged`)
	publish("3", "streams: {events: , users: }\n")
	await("settings reloaded")
	must.Do(t, cmd.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, said)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
