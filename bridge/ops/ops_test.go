package ops_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/metrics"
)

type fakeStream struct {
	status  bridge.Status
	turning bool
}

func (f *fakeStream) Status() bridge.Status { return f.status }
func (f *fakeStream) Alive() bool           { return f.turning }

func metricsOf(s *fakeStream) *metrics.Metrics {
	return metrics.New(metrics.Build{Version: "1"}, metrics.DetailAuto, []string{"events"}, func() []bridge.Status { return []bridge.Status{s.status} })
}

// answerOf is the answer of a server of one stream.
func answerOf(s *fakeStream, m *metrics.Metrics, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h := ops.Handler(ops.Config{}, ops.Parts{Metrics: m, Streams: func() []ops.Stream { return []ops.Stream{s} }})
	h.ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, nil))
	return w
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	kafkaDown := map[string]bridge.Dependency{"kafka": {Up: false, Trouble: "is down", Error: "dial refused"}}
	for _, tc := range []struct {
		name   string
		stream fakeStream
		path   string
		code   int
		body   string
	}{
		{"alive", fakeStream{turning: true}, "/livez", 200, "ok"},
		{"alive though a server is away", fakeStream{bridge.Status{State: bridge.StateBackoff, Dependencies: kafkaDown}, true}, "/livez", 200, "ok"},
		{"alive though blocked", fakeStream{bridge.Status{State: bridge.StateBlocked, Reason: bridge.ReasonAuth}, true}, "/livez", 200, "ok"},
		{"dead when the loop stands still", fakeStream{bridge.Status{Stream: "events"}, false}, "/livez", 503, "commit loop stalled"},
		{"ready", fakeStream{bridge.Status{State: bridge.StateIdle}, true}, "/readyz", 200, "ok"},
		{"ready while retrying", fakeStream{bridge.Status{State: bridge.StateBackoff}, true}, "/readyz", 200, "ok"},
		{"not ready when blocked", fakeStream{bridge.Status{Stream: "events", State: bridge.StateBlocked, Reason: bridge.ReasonCycle, Error: "leads back"}, true}, "/readyz", 503, "stream events: blocked (cycle): leads back"},
		{"not ready when stopped by an error", fakeStream{bridge.Status{Stream: "events", State: bridge.StateStopped}, true}, "/readyz", 503, "stream events: stopped"},
		{"ready when a window is done", fakeStream{bridge.Status{Stream: "events", State: bridge.StateStopped, Ended: "the window ended"}, true}, "/readyz?verbose", 200, "stream events: stopped: the window ended"},
		{"verbose", fakeStream{bridge.Status{Stream: "events", State: bridge.StateIdle}, true}, "/readyz?verbose", 200, "stream events: caught up"},
		{"verbose names who is away", fakeStream{bridge.Status{Stream: "events", State: bridge.StateRunning, Dependencies: kafkaDown}, true}, "/readyz?verbose", 200, "kafka is down since"},
		{"ready by its other name", fakeStream{bridge.Status{State: bridge.StateStandby}, true}, "/ready", 200, "ok"},
		{"alive by its other name", fakeStream{turning: true}, "/ping", 200, "ok"},
		{"metrics", fakeStream{bridge.Status{Stream: "events", State: bridge.StateIdle}, true}, "/metrics", 200, `exportbridge_state{state="idle",stream="events"} 1`},
		{"nothing else", fakeStream{turning: true}, "/", 404, "not found"},
		{"no posts", fakeStream{turning: true}, "POST /livez", 405, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			method, path := http.MethodGet, tc.path
			if m, p, ok := strings.Cut(tc.path, " "); ok {
				method, path = m, p
			}
			w := answerOf(&tc.stream, metricsOf(&tc.stream), method, path)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) {
				t.Errorf("%s = %d %q, want %d with %q", tc.path, w.Code, w.Body, tc.code, tc.body)
			}
		})
	}
}

// TestReadyNamesTheCause: the first line, which healthcheck shows, is about a stream that is not
// ready.
func TestReadyNamesTheCause(t *testing.T) {
	t.Parallel()
	one := &fakeStream{bridge.Status{Stream: "a", State: bridge.StateIdle}, true}
	two := &fakeStream{bridge.Status{Stream: "b", State: bridge.StateBlocked, Reason: bridge.ReasonAuth}, true}
	w := httptest.NewRecorder()
	streams := func() []ops.Stream { return []ops.Stream{one, two} }
	ops.Handler(ops.Config{}, ops.Parts{Metrics: metricsOf(one), Streams: streams}).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "http://localhost/readyz", nil))
	if got := w.Body.String(); got != "stream b: blocked (auth)\nstream a: caught up\n" {
		t.Errorf("%q", got)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		cfg   ops.Config
		wrong []string // variables that the error names
	}{
		{cfg: ops.Config{Addr: "off"}},
		{cfg: ops.Config{Addr: ":8080"}},
		{cfg: ops.Config{Addr: "127.0.0.1:0", AdminToken: "0123456789abcdef", AllowedHosts: []string{"bridge.example.com", "bridge"}}},
		{cfg: ops.Config{Addr: "8080"}, wrong: []string{"HTTP_ADDR"}},
		{cfg: ops.Config{Addr: "localhost"}, wrong: []string{"HTTP_ADDR"}},
		{cfg: ops.Config{Addr: "off", AdminToken: "two words"}, wrong: []string{"HTTP_ADMIN_TOKEN"}},
		{cfg: ops.Config{Addr: "off", AdminToken: "0123456789abcde"}, wrong: []string{"HTTP_ADMIN_TOKEN"}},
		{cfg: ops.Config{Addr: "off", Tokens: "alice act"}, wrong: []string{"HTTP_TOKENS"}},
		{cfg: ops.Config{Addr: "off", Tokens: "# nobody"}, wrong: []string{"HTTP_TOKENS"}},
		{cfg: ops.Config{Addr: "off", AdminToken: "line\n"}, wrong: []string{"HTTP_ADMIN_TOKEN"}},
		{cfg: ops.Config{Addr: "off", AllowedHosts: []string{"https://bridge"}}, wrong: []string{"HTTP_ALLOWED_HOSTS"}},
		{cfg: ops.Config{Addr: "off", AllowedHosts: []string{"bridge:8080"}}, wrong: []string{"HTTP_ALLOWED_HOSTS"}},
		{cfg: ops.Config{Addr: "off", AllowedHosts: []string{"*.example.com"}}, wrong: []string{"HTTP_ALLOWED_HOSTS"}},
		{cfg: ops.Config{Addr: "off", ProbeAddr: ":8081"}},
		{cfg: ops.Config{Addr: "off", ProbeAddr: "off"}, wrong: []string{"HTTP_PROBE_ADDR"}},
		{cfg: ops.Config{Addr: "127.0.0.1:0", ProbeAddr: "127.0.0.1:0"}},
		{cfg: ops.Config{Addr: ":1", ProbeAddr: ":1"}, wrong: []string{"HTTP_PROBE_ADDR is the same address as HTTP_ADDR"}},
		{cfg: ops.Config{Addr: "off", TLSCert: "cert.pem", TLSKey: "y"},
			wrong: []string{"HTTP_TLS_CERT and HTTP_TLS_KEY are not a PEM key pair", "set HTTP_TLS_CERT_FILE="}},
		{cfg: ops.Config{Addr: "off", TLSKey: "y"}, wrong: []string{"HTTP_TLS_CERT is not set, but HTTP_TLS_KEY is"}},
		{cfg: ops.Config{Addr: "off", TLSCert: "x"}, wrong: []string{"HTTP_TLS_KEY is not set, but HTTP_TLS_CERT is"}},
		{cfg: ops.Config{Addr: ":1", ProbeAddr: ":2", TLSClientCA: "x"}, wrong: []string{"HTTP_TLS_CLIENT_CA requires HTTP_TLS_CERT"}},
		{cfg: ops.Config{Addr: ":1", TLSClientCA: "x"}, wrong: []string{"HTTP_TLS_CLIENT_CA requires HTTP_PROBE_ADDR:"}},
		{cfg: ops.Config{Addr: "x", AdminToken: " ", AllowedHosts: []string{""}}, wrong: []string{"HTTP_ADDR", "HTTP_ADMIN_TOKEN", "HTTP_ALLOWED_HOSTS"}},
	} {
		err := tc.cfg.Validate()
		if (err == nil) != (len(tc.wrong) == 0) {
			t.Errorf("%+v: %v", tc.cfg, err)
		}
		for _, name := range tc.wrong {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%+v: %q does not name %s", tc.cfg, err, name)
			}
		}
	}
}

func TestUnsafe(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	for _, tc := range []struct {
		cfg  ops.Config
		want []string
	}{
		{ops.Config{Addr: "127.0.0.1:8080"}, nil},
		{ops.Config{Addr: "localhost:8080"}, nil},
		{ops.Config{Addr: ":8080"}, []string{"HTTP_ADDR"}},
		{ops.Config{Addr: ":8080", AdminToken: token}, []string{"HTTP_ADDR"}},
		{ops.Config{Addr: ":8080", Tokens: "alice read 00"}, nil},
		{ops.Config{Addr: "127.0.0.1:8080", ShowEvents: true}, nil},
		{ops.Config{Addr: "0.0.0.0:8080", AdminToken: token, ShowEvents: true}, []string{"HTTP_ADDR", "HTTP_SHOW_EVENTS"}},
		{ops.Config{Addr: "bridge:8080", ShowEvents: true}, []string{"HTTP_ADDR", "HTTP_SHOW_EVENTS"}},
		{ops.Config{Addr: "off", AdminToken: token, ShowEvents: true}, nil},
		{ops.Config{Addr: "off", ProbeAddr: ":8081"}, nil},
		{ops.Config{Addr: ":8080", ProbeAddr: ":8081"}, []string{"HTTP_ADDR"}},
		{ops.Config{Addr: ":8080", ProbeAddr: ":8081", TLSClientCA: "x"}, nil},
	} {
		if got := tc.cfg.Unsafe(); !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.cfg, got, tc.want)
		}
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.1.2.3:80": true, "[::1]:8080": true, "localhost:8080": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:8080": false, "bridge:8080": false, "off": false,
	} {
		if got := (ops.Config{Addr: addr}).Local(); got != want {
			t.Errorf("Local of %s = %v, want %v", addr, got, want)
		}
	}
}

// A caller that dawdles, or sends more than a request needs, is let go.
func TestBadCallersAreLetGo(t *testing.T) {
	t.Parallel()
	f := startFeed(t, still{}, false)
	for _, tc := range []struct{ name, sent, want string }{
		{"half a request", "GET /livez HTTP/1.1\r\nHost: localhost\r\n", ""},
		{"a body that never comes", "POST /api/v1/streams/events/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{", "404"},
		{"a long header", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", "431"},
		{"two hosts", "GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", "400"},
		{"no host", "GET /livez HTTP/1.0\r\n\r\n", "421"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := must.Get(net.Dial("tcp", strings.TrimPrefix(f.url, "http://")))(t)
			defer c.Close()
			c.SetDeadline(time.Now().Add(15 * time.Second))
			must.Get(c.Write([]byte(tc.sent)))(t)
			answer, err := io.ReadAll(c)
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				t.Fatalf("it is still connected; answer %q", answer)
			}
			if _, code, _ := strings.Cut(string(answer), " "); !strings.HasPrefix(code, tc.want) {
				t.Errorf("answer %q, want %s", answer, tc.want)
			}
		})
	}
}
