package ops_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/backfill"
	"exportbridge/bridge/control"
	"exportbridge/bridge/deadletter"
	"exportbridge/bridge/ops"
)

const (
	secretCursor = "c3VyZWx5LW5vYm9keS1tYXktc2VlLXRoaXM="
	rightToken   = "0123456789abcdef"
)

// order is a requested action.
type order struct {
	Action    string
	By        control.Request
	For       time.Duration
	BaseEpoch int64
}

// fakeController records its calls.
type fakeController struct {
	err   error // of every answer
	epoch int64 // of every plan

	mu     sync.Mutex // guards all below
	orders []order
	plans  []control.Target
	query  bridge.HistoryQuery
}

func (c *fakeController) Status(context.Context) control.Report {
	r := control.NewReport("events", bridge.ExactlyOnce)
	r.Checkpoint = control.Mask(&bridge.Checkpoint{
		Format: 1, Stream: "events", Version: bridge.Version{Epoch: 3, Seq: 4}, Cursor: secretCursor,
		Tail: bridge.Tail{{1}, {2}}, Events: 7,
	})
	r.Members = []bridge.Member{{ClientID: "one", Owner: true}}
	return r
}

func (c *fakeController) Glance(ctx context.Context) control.Report { return c.Status(ctx) }

func (c *fakeController) History(_ context.Context, q bridge.HistoryQuery) (control.History, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.query = q
	return control.History{}, c.err
}

func (c *fakeController) Plan(_ context.Context, to control.Target) (*control.Move, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plans = append(c.plans, to)
	return &control.Move{Plan: control.Plan{Stream: "events", BaseEpoch: c.epoch,
		Repeats: control.Repeats{Min: 5, Max: 5}}}, c.err
}

func (c *fakeController) Move(_ context.Context, m *control.Move, by control.Request) (control.Done, error) {
	return c.do(order{Action: "move", By: by, BaseEpoch: m.BaseEpoch})
}

func (c *fakeController) Pause(_ context.Context, by control.Request, length time.Duration) (control.Done, error) {
	return c.do(order{Action: "pause", By: by, For: length})
}

func (c *fakeController) Resume(_ context.Context, by control.Request) (control.Done, error) {
	return c.do(order{Action: "resume", By: by})
}

func (c *fakeController) do(o order) (control.Done, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders = append(c.orders, o)
	return control.Done{Answer: bridge.Answer{Applied: true, By: "one", Version: bridge.Version{Epoch: 4}, At: 1000}},
		c.err
}

// fakeRecords records its calls.
type fakeRecords struct {
	err error // of every answer

	mu   sync.Mutex // guards all below
	dead []deadletter.DeadLetter
	jobs []backfill.Listed
}

func (f *fakeRecords) DeadLetters(_ context.Context, _ string, limit int) ([]deadletter.DeadLetter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead[:min(limit, len(f.dead))], f.err
}

func (f *fakeRecords) Jobs(context.Context) ([]backfill.Listed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jobs, f.err
}

// site is a handler and its controller.
type site struct {
	control *fakeController
	records *fakeRecords
	handler http.Handler
}

func newSite(cfg ops.Config, change ...func(*ops.Parts)) *site {
	s := &fakeStream{status: bridge.Status{Stream: "events", State: bridge.StateIdle, Mode: bridge.ExactlyOnce},
		turning: true}
	c, r := &fakeController{epoch: 3}, new(fakeRecords)
	parts := ops.Parts{
		Version: "v1", Metrics: metricsOf(s), Streams: func() []ops.Stream { return []ops.Stream{s} },
		Controller: func(string) ops.Controller { return c }, Records: r,
	}
	for _, f := range change {
		f(&parts)
	}
	return &site{control: c, records: r, handler: ops.Handler(cfg, parts)}
}

// ask is a request: METHOD PATH, and its differences from an allowed request.
type ask struct {
	line   string
	host   string            // localhost:8080 if empty
	peer   string            // 127.0.0.1:4000 if empty
	header map[string]string // a value of "-" leaves the header out
	body   string
	proto  int             // 10 is HTTP/1.0, 0 the usual one
	ctx    context.Context // of the client, if not nil
}

func (s *site) do(a ask) *httptest.ResponseRecorder {
	method, path, _ := strings.Cut(a.line, " ")
	r := httptest.NewRequest(method, "http://placeholder"+path, strings.NewReader(a.body))
	if a.proto == 10 {
		r.Proto, r.ProtoMinor = "HTTP/1.0", 0
	}
	if a.ctx != nil {
		r = r.WithContext(a.ctx)
	}
	r.Host, r.RemoteAddr = cmp.Or(a.host, "localhost:8080"), cmp.Or(a.peer, "127.0.0.1:4000")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range a.header {
		r.Header.Set(name, value)
		if value == "-" {
			r.Header.Del(name)
		}
	}
	return s.serve(r)
}

func (s *site) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// wantRefusal checks that the answer is an error as documented.
func wantRefusal(t *testing.T, w *httptest.ResponseRecorder, code int, text string) {
	t.Helper()
	var refusal struct{ Error, Hint string }
	if w.Code != code {
		t.Fatalf("status %d %s, want %d", w.Code, w.Body, code)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &refusal); err != nil || !strings.Contains(refusal.Error, text) {
		t.Errorf("answer %s, want an error with %q", w.Body, text)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q, want no-store", got)
	}
}
