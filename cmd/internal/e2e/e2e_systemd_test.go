//go:build unix

package e2e_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

const unitFile = "../../exportbridge/deploy/systemd/exportbridge.service"

// readUnit returns the values of a unit file by name; all of them where one
// comes several times.
func readUnit(t *testing.T) map[string][]string {
	t.Helper()
	text := must.Get(os.ReadFile(unitFile))(t)
	unit := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			unit[name] = append(unit[name], value)
		}
	}
	return unit
}

// TestUnit lets systemd's own tools read the unit.
func TestUnit(t *testing.T) {
	t.Parallel()
	systemd := tool(t, "", "systemd-analyze")
	binary := must.Get(build())(t)
	text := must.Get(os.ReadFile(unitFile))(t)
	path := filepath.Join(t.TempDir(), "exportbridge.service")
	must.Do(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/exportbridge", binary)),
		0o600))
	if said, err := exec.Command(systemd, "verify", "--man=no", path).CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("verify: %v\n%s", err, said)
	}
	// A core dump has the secrets, and most of /proc is none of the program's business.
	if unit := readUnit(t); !slices.Equal(unit["LimitCORE"], []string{"0"}) ||
		!slices.Equal(unit["ProcSubset"], []string{"pid"}) {
		t.Errorf("LimitCORE=%q, ProcSubset=%q", unit["LimitCORE"], unit["ProcSubset"])
	}
	// In tenths: below 2 systemd calls it OK.
	if said, err := exec.Command(systemd, "security", "--offline=true", "--threshold=15",
		path).CombinedOutput(); err != nil {
		t.Errorf("it can do more than it needs: %v\n%s", err, said)
	}
}

// TestE2EUnit is a systemd that runs the unit: its command line, its
// environment with the key in a file, and its waiting for the word that the
// process is ready.
func TestE2EUnit(t *testing.T) {
	t.Parallel()
	const n = 500
	unit := readUnit(t)
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n, APIKey: "sesame"})
	s.simulate()
	// What an operator puts into exportbridge.env.
	delete(s.settings, "EXPORT_API_KEY")
	delete(s.settings, "BRIDGE_INSTANCE_ID")
	credentials := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(credentials, "api-key"), []byte("sesame\n"), 0o600))
	specifiers := strings.NewReplacer("%d", credentials, "%H", "host-1")
	for _, assignment := range unit["Environment"] {
		name, value, _ := strings.Cut(assignment, "=")
		s.settings[name] = specifiers.Replace(value)
	}
	socket := listenNotify(t, s)
	args := strings.Fields(unit["ExecStart"][0])
	if args[0] != "/usr/local/bin/exportbridge" || unit["Type"][0] != "notify" {
		t.Errorf("ExecStart=%s, Type=%s", unit["ExecStart"][0], unit["Type"][0])
	}
	run := s.start(args[1:]...)
	if got := hear(t, socket); !strings.HasPrefix(got, "READY=1\n") {
		t.Errorf("first message %q", got)
	}
	s.awaitPublished(n)
	if patience, err := time.ParseDuration(unit["TimeoutStopSec"][0] + "s"); err != nil || run.stop() > patience {
		t.Errorf("it takes longer to stop than %s: %v", patience, err)
	}
	s.read().wantAll(n, 0)

	// What it does not start again.
	s.settings["EXPORT_PAGE_SIZE"] = "none"
	wrong := s.start(args[1:]...)
	if code := wrong.wait(stepTimeout); unit["RestartPreventExitStatus"][0] != "2" || code != 2 {
		t.Errorf("wrong settings end it with %d, and systemd does not start it again after %s", code,
			unit["RestartPreventExitStatus"][0])
	}
}

// listenNotify makes the stage tell what it starts next to tell a service
// manager how it is, and returns the manager's ear.
func listenNotify(t *testing.T, s *stage) *net.UnixConn {
	t.Helper()
	//nolint:usetesting // the path of a socket must be short, and the test's name is in its own
	dir := must.Get(os.MkdirTemp("", "notify"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "socket")
	socket := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { socket.Close() })
	s.settings["NOTIFY_SOCKET"] = path
	return socket
}
