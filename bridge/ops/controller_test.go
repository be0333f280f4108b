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
	"exportbridge/bridge/ops"
)

const (
	secretCursor = "c3VyZWx5LW5vYm9keS1tYXktc2VlLXRoaXM="
	rightToken   = "0123456789abcdef"
)

// fakeDesk notes what it is asked.
type fakeDesk struct {
	err error // of every answer

	mu     sync.Mutex // guards all below
	orders []ops.Order
	plans  []ops.Destination
	query  ops.HistoryQuery
	limit  int
}

func (d *fakeDesk) Reports(context.Context) ([]ops.Report, error) {
	r := ops.NewReport("events", bridge.ExactlyOnce)
	r.Checkpoint = &bridge.Checkpoint{
		Version: 1, Stream: "events", Place: bridge.Place{Epoch: 3, Seq: 4}, Cursor: secretCursor, Tail: bridge.Tail{{1}, {2}}, Events: 7,
	}
	r.Members = []ops.Member{{ClientID: "one", Owner: true}}
	return []ops.Report{r}, d.err
}

func (d *fakeDesk) History(_ context.Context, _ string, q ops.HistoryQuery) (ops.History, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.query = q
	return ops.History{Source: ops.SourceRedis}, d.err
}

func (d *fakeDesk) Letters(_ context.Context, _ string, limit int) (ops.Letters, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = limit
	return ops.Letters{}, d.err
}

func (d *fakeDesk) Jobs(context.Context) ([]ops.Job, error) { return nil, d.err }

func (d *fakeDesk) Plan(_ context.Context, stream string, to ops.Destination) (ops.Plan, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plans = append(d.plans, to)
	return ops.Plan{Stream: stream, BaseEpoch: 3, AgainEvents: 5}, d.err
}

func (d *fakeDesk) Do(_ context.Context, _ string, o ops.Order) (ops.Done, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orders = append(d.orders, o)
	return ops.Done{Applied: true, By: "one", Place: bridge.Place{Epoch: 4}, At: time.UnixMilli(1000).UTC()}, d.err
}

// site is a handler with a desk behind it.
type site struct {
	desk    *fakeDesk
	handler http.Handler
}

func newSite(cfg ops.Config, change ...func(*ops.Parts)) *site {
	s := &fakeStream{status: bridge.Status{Stream: "events", State: bridge.StateIdle, Mode: bridge.ExactlyOnce}, turning: true}
	desk := new(fakeDesk)
	parts := ops.Parts{Version: "v1", Metrics: metricsOf(s), Streams: []ops.Stream{s}, Desk: desk}
	for _, f := range change {
		f(&parts)
	}
	return &site{desk: desk, handler: ops.Handler(cfg, parts)}
}

// ask is a request: METHOD PATH, and what differs from one that is allowed.
type ask struct {
	line   string
	host   string            // localhost:8080 if empty
	peer   string            // 127.0.0.1:4000 if empty
	header map[string]string // a value of "-" leaves the header out
	body   string
}

func (s *site) do(a ask) *httptest.ResponseRecorder {
	method, path, _ := strings.Cut(a.line, " ")
	r := httptest.NewRequest(method, "http://placeholder"+path, strings.NewReader(a.body))
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
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

// wantRefusal wants an error as the contract has it.
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
