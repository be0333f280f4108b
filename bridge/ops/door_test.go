package ops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/bridgetest/servers"
	"exportbridge/bridge/control"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/door"
)

// deniedLines returns the lines of an audit log, and the number of requests that they stand for.
func deniedLines(t *testing.T, path string) (lines, requests int) {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	for line := range bytes.Lines(text) {
		var r door.Record
		if err := json.Unmarshal(line, &r); err != nil || r.Outcome != door.Denied {
			t.Fatalf("line %s: %v", line, err)
		}
		lines++
		requests += max(1, r.Count)
	}
	return lines, requests
}

// Clients that leave before the answer get no more lines than those that wait, and none of
// them is left out of the count. Another client still has a line of its own.
func TestLeaversWriteFewLines(t *testing.T) {
	t.Parallel()
	for name, peers := range map[string]int{"one address": 1, "many addresses": 250} {
		synctest.Test(t, func(t *testing.T) {
			a := newAudited(t)
			gone, leave := context.WithCancel(t.Context())
			leave()
			var all sync.WaitGroup
			const n = 4000
			for i := range n {
				all.Go(func() {
					a.do(ask{line: "GET /api/v1/status", host: "evil.example", ctx: gone,
						peer: fmt.Sprintf("10.1.%d.%d:1", i%peers/250, i%peers%250)})
				})
				<-time.After(500 * time.Microsecond)
			}
			if peers == 1 {
				a.do(ask{line: "GET /api/v1/status", peer: "10.9.9.9:1"})
			}
			all.Wait()
			<-time.After(10 * time.Second)
			synctest.Wait()
			lines, requests := deniedLines(t, a.audit)
			most, want := 500, n
			if peers == 1 {
				most, want = 130, n+1
			}
			if lines > most || requests != want {
				t.Errorf("%s: %d lines for %d requests in 2 s, want at most %d for %d", name, lines, requests, most, want)
			}
			text, _ := os.ReadFile(a.audit)
			if peers == 1 && !strings.Contains(string(text), `"address":"10.9.9.9"`) {
				t.Error("another client has no line")
			}
		})
	}
}

// A line is short whatever the client sends: control characters take six bytes in JSON.
func TestLinesAreShort(t *testing.T) {
	t.Parallel()
	a := newAudited(t)
	bad := strings.Repeat("%01", 2000)
	a.do(ask{line: "POST /api/v1/streams/" + bad + "/pause", host: strings.Repeat(`"\`, 500)})
	text, err := os.ReadFile(a.audit)
	if err != nil || len(text) > 1200 || len(text) < 200 {
		t.Errorf("%d bytes, %v: %s", len(text), err, text)
	}
}

// Requests that are refused because no token can be read, and chunked bodies, have lines.
// The log names the unreadable file once.
func TestUnreadableTokens(t *testing.T) {
	t.Parallel()
	for _, admin := range []bool{false, true} {
		path, p := filepath.Join(t.TempDir(), "tokens"), newPeople(t)
		cfg := ops.Config{Tokens: bridge.Secret(p.lines), TokensFile: path}
		if admin {
			cfg = ops.Config{AdminToken: rightToken, AdminTokenFile: path}
		}
		s := newRecordedSite(t, cfg)
		act := ask{line: pausePath, body: anyReason, header: bearer(rightToken)}
		for range 3 {
			wantRefusal(t, s.do(act), 503, "cannot be read")
		}
		if n, _ := deniedLines(t, s.audit); n != 3 || strings.Count(s.log.String(), "unreadable") != 1 {
			t.Errorf("admin %v: %d lines; log:\n%s", admin, n, s.log)
		}
		content := p.lines
		if admin {
			content = rightToken + "\n"
		} else {
			act.header = bearer(p.actor)
		}
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		if w := s.do(act); w.Code != 200 || strings.Count(s.log.String(), "readable again") != 1 {
			t.Errorf("admin %v: %d %s; log:\n%s", admin, w.Code, w.Body, s.log)
		}
	}
}

// A new token in the file of HTTP_ADMIN_TOKEN is accepted at once, and the old one no longer.
func TestAdminTokenFileIsReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "admin")
	s := newSite(ops.Config{AdminToken: rightToken, AdminTokenFile: path})
	next := strings.Repeat("n", 20)
	for _, now := range []string{rightToken, next, "short"} {
		must.Do(t, os.WriteFile(path, []byte(now), 0o600))
		for _, given := range []string{rightToken, next, "short"} {
			w := s.do(ask{line: pausePath, body: anyReason, header: bearer(given)})
			if ok := given == now && now != "short"; ok != (w.Code == 200) {
				t.Errorf("%s with %s in the file: %d %s", given, now, w.Code, w.Body)
			}
		}
	}
}

// A file of tokens that is being written, or that a start would refuse, is unreadable: no
// token in it is accepted, and none is called wrong.
func TestUnusableTokens(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	path := filepath.Join(t.TempDir(), "tokens")
	admin := ops.Config{AdminToken: rightToken, AdminTokenFile: path}
	named := ops.Config{Tokens: bridge.Secret(p.lines), TokensFile: path}
	for text, cfg := range map[string]ops.Config{
		"": named, p.lines + strings.Repeat("#", 1<<16): named,
		"\n": admin, "short": admin, rightToken + " ": admin, "of two " + p.actor: admin,
	} {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		s := newRecordedSite(t, cfg)
		for _, token := range []string{p.actor, "of two " + p.actor} {
			wantRefusal(t, s.do(ask{line: pausePath, body: anyReason, header: bearer(token)}), 503, "cannot be read")
		}
		if log := s.log.String(); strings.Count(log, "unreadable") != 1 || strings.Contains(log, rightToken) {
			t.Errorf("%q: log:\n%s", text, log)
		}
	}
}

// A chunked body has a line, and counts.
func TestChunkedBodyIsRecorded(t *testing.T) {
	t.Parallel()
	s := serveDoor(t, nil)
	first := s.say(t, pausePath+" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	if n, _ := deniedLines(t, s.audit); n != 1 || !strings.Contains(first, "411") {
		t.Errorf("%d lines, %s", n, first)
	}
}

// doorSite is a server with an audit log.
type doorSite struct {
	*ops.Server
	people
	control *fakeController
	audit   string
	parts   ops.Parts
	log     *safeBuffer
	stop    func()
}

type safeBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func serveDoor(t *testing.T, change func(*ops.Config)) *doorSite {
	t.Helper()
	s := &doorSite{people: newPeople(t), control: &fakeController{epoch: 3}, audit: filepath.Join(t.TempDir(), "audit"),
		log: new(safeBuffer)}
	cfg := s.config()
	cfg.Addr, cfg.AuditLog = "127.0.0.1:0", s.audit
	if change != nil {
		change(&cfg)
	}
	must.Do(t, cfg.Validate())
	fake := &fakeStream{status: bridge.Status{Stream: "events", State: bridge.StateIdle}, turning: true}
	s.parts = ops.Parts{
		Metrics: metricsOf(fake), Streams: func() []ops.Stream { return []ops.Stream{fake} },
		Logger:     slog.New(slog.NewTextHandler(s.log, nil)),
		Controller: func(string) ops.Controller { return s.control },
	}
	s.Server = must.Get(ops.Listen(t.Context(), cfg, s.parts))(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	s.stop = sync.OnceFunc(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = s.Close() // the addresses are closed already
	})
	t.Cleanup(s.stop)
	return s
}

// say sends text and returns the beginning of the answer.
func (s *doorSite) say(t *testing.T, text string) string {
	t.Helper()
	c := must.Get(net.Dial("tcp", s.Addr().String()))(t)
	defer c.Close()
	must.Get(io.WriteString(c, text))(t)
	answer := make([]byte, 64)
	n, _ := c.Read(answer) // none, if the server has closed the connection
	return string(answer[:n])
}

// Failed handshakes are counted, and one line stands for many.
func TestFailedHandshakes(t *testing.T) {
	t.Parallel()
	made := must.Get(servers.WriteCertificates(t.TempDir()))(t)
	cert := must.Get(os.ReadFile(made.ServerCert))(t)
	key := must.Get(os.ReadFile(made.ServerKey))(t)
	s := serveDoor(t, func(c *ops.Config) { c.TLSCert, c.TLSKey = string(cert), bridge.Secret(key) })
	for range 100 {
		s.say(t, "x\x00\x00\x00\x00\x00")
	}
	s.stop()
	text := s.log.String()
	if n := strings.Count(text, "TLS handshakes failed"); n < 1 || n > 5 || strings.Contains(text, "handshake error") {
		t.Errorf("%d lines:\n%s", n, text)
	}
	const want = `exportbridge_http_rejected_total{status="tls"} 100`
	if body := answerOf(new(fakeStream), s.parts.Metrics, "GET", "/metrics").Body.String(); !strings.Contains(body, want) {
		t.Errorf("metrics without %s", want)
	}
}

func newProbeSite(cfg ops.Config) *site {
	s := &fakeStream{status: bridge.Status{Stream: "events", State: bridge.StateIdle}, turning: true}
	parts := ops.Parts{Metrics: metricsOf(s), Streams: func() []ops.Stream { return []ops.Stream{s} }}
	return &site{handler: ops.ProbeHandler(cfg, parts)}
}

// The probes accept the host of their address, as healthcheck names it.
func TestProbeAddrWithAName(t *testing.T) {
	t.Parallel()
	const host = "bridge-0.internal:8081"
	for _, addr := range []string{"off", ":8080"} {
		w := newProbeSite(ops.Config{Addr: addr, ProbeAddr: host}).do(ask{line: "GET /readyz", host: host})
		if w.Code != 200 {
			t.Errorf("HTTP_ADDR %s: %d %s", addr, w.Code, w.Body)
		}
	}
}

// A standby without an owner is not calm: nobody runs the stream, or nobody knows.
func TestStandbyWithoutAnOwner(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		report control.Report
		want   bridge.State
	}{
		"only standbys": {
			control.Report{MembersKnown: true, Members: []bridge.Member{{Process: "bridge-0"}}}, control.StateUnknown,
		},
		"nobody":       {control.Report{MembersKnown: true}, control.StateNone},
		"servers away": {control.Report{Unreachable: []string{"store", "sink"}}, control.StateUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(1)
			f.statuses[0].Leader, f.statuses[0].State, f.statuses[0].CaughtUp = false, bridge.StateStandby, false
			tc.report.Stream, tc.report.CaughtUpIn = "tenant-0000", -1
			f.reports["tenant-0000"] = tc.report
			w := watch(t, handlerOf(f), "tenant-0000")
			<-time.After(20 * time.Second)
			synctest.Wait()
			details := w.took("detail")
			d := decoded[struct{ Brief control.Brief }](t, details[len(details)-1])
			if d.Brief.Condition != tc.want || d.Brief.Owner != "" {
				t.Errorf("%s: %+v, want %s", name, d.Brief, tc.want)
			}
		})
	}
}
