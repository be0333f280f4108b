package command

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/cmd/internal/cli"
)

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	ready := http.StatusOK
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(ready)
		_, _ = w.Write([]byte("stream events: blocked (auth)\nstream users: running\n"))
	})
	mux.HandleFunc("/moved",
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/readyz", http.StatusFound) })
	mux.HandleFunc("/switched", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the command waits on the bare connection")
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	addr := strings.TrimPrefix(server.URL, "http://")
	_, port, _ := strings.Cut(addr, ":")
	ask := func(env map[string]string, code int, stderr string, args ...string) {
		t.Helper()
		got := runProgram(t, env, append([]string{"healthcheck"}, args...)...)
		if got.code != code || got.stdout != "" || !strings.Contains(got.stderr, stderr) || code != 0 &&
			strings.Count(got.stderr, "\nTry: ") != 1 || code == 0 && got.stderr != "" {
			t.Errorf("healthcheck %v with %v: %+v", args, env, got)
		}
	}
	for _, host := range []string{"127.0.0.1", "", "0.0.0.0"} {
		ask(map[string]string{"HTTP_ADDR": host + ":" + port}, cli.ExitOK, "")
	}
	nobody := servers.FreeAddress(t)
	ask(map[string]string{"HTTP_ADDR": nobody, "HTTP_PROBE_ADDR": ":" + port}, cli.ExitOK, "")
	ask(map[string]string{"HTTP_ADDR": "off", "HTTP_PROBE_ADDR": addr}, cli.ExitOK, "")
	ask(map[string]string{"HTTP_PROBE_ADDR": "127.0.0.1:0"}, cli.ExitFailed, "HTTP_PROBE_ADDR has a random port")
	ask(nil, cli.ExitOK, "", server.URL)
	ask(nil, cli.ExitFailed, "302", server.URL+"/moved")
	ask(nil, cli.ExitFailed, "404", server.URL+"/nothing")
	ask(nil, cli.ExitFailed, "is not a URL", addr)
	ask(nil, cli.ExitFailed, "101", server.URL+"/switched")
	ask(map[string]string{"HTTP_ADDR": "off"}, cli.ExitFailed, "HTTP_ADDR is off")
	ask(map[string]string{"HTTP_ADDR": "127.0.0.1:0"}, cli.ExitFailed, "give the URL")
	ask(map[string]string{"HTTP_ADDR": servers.FreeAddress(t)}, cli.ExitFailed, "connection refused")
	ask(map[string]string{"HTTP_ADDR": servers.FreeAddress(t)}, cli.ExitFailed, "Try: start the process")
	ready = http.StatusServiceUnavailable
	ask(map[string]string{"HTTP_ADDR": addr}, cli.ExitFailed,
		"503 Service Unavailable: stream events: blocked (auth)\nTry: exportbridge status\n")
	secure := httptest.NewUnstartedServer(mux)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	made := must.Get(servers.WriteCertificates(t.TempDir()))(t)
	ready = http.StatusOK
	withTLS := map[string]string{"HTTP_ADDR": strings.TrimPrefix(secure.URL, "https://"), "HTTP_TLS_CERT_FILE": made.ServerCert,
		"HTTP_TLS_KEY_FILE": made.ServerKey}
	ask(withTLS, cli.ExitOK, "")
	ask(nil, cli.ExitFailed, "certificate", secure.URL) // another server must prove its name
	if got := runProgram(t, nil, "healthcheck", "a", "b"); got.code != cli.ExitUsage {
		t.Errorf("two arguments: %+v", got)
	}
}
