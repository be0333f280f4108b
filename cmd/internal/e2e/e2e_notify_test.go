//go:build unix

package e2e_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/exportapi/exportsim"
)

// TestE2ENotify is a service manager: it is told that the process is ready,
// that it is alive, what it does and that it stops, whatever the environment
// says about other processes.
func TestE2ENotify(t *testing.T) {
	t.Parallel()
	const n = 200
	s := newStage(t, startServers(t, owned{}), exportsim.Config{Events: n})
	s.simulate()
	socket := listenNotify(t, s)
	s.settings["WATCHDOG_USEC"] = strconv.FormatInt((100 * time.Millisecond).Microseconds(), 10)
	run := s.run()
	if got := hear(t, socket); !strings.HasPrefix(got, "READY=1\nSTATUS=") {
		t.Errorf("first message %q", got)
	}
	eventually(t, stepTimeout, "a sign of life that says how far it is", func() bool {
		got := hear(t, socket)
		return strings.Contains(got, "STATUS=caught up   200 events") && strings.HasSuffix(got, "\nWATCHDOG=1")
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		run.stop()
	}()
	eventually(t, stepTimeout, "the word that it stops", func() bool { return hear(t, socket) == "STOPPING=1" })
	<-stopped

	// Another process's watchdog is not ours to feed.
	s.settings["WATCHDOG_PID"] = "1"
	run = s.run()
	for got := ""; !strings.HasPrefix(got, "READY=1"); {
		got = hear(t, socket)
	}
	socket.SetReadDeadline(time.Now().Add(time.Second))
	if size, err := socket.Read(make([]byte, 1024)); err == nil {
		t.Errorf("a message of %d bytes within a second, want one every ten", size)
	}
	run.stop()
}

// hear returns the next message.
func hear(t *testing.T, socket *net.UnixConn) string {
	t.Helper()
	socket.SetReadDeadline(time.Now().Add(stepTimeout))
	message := make([]byte, 1024)
	size := must.Get(socket.Read(message))(t)
	return string(message[:size])
}
