package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/ops/tracing"
)

// ports are a source, a sink and a store whose next call fails on request.
type ports struct {
	bridge.Source
	bridge.Sink
	bridge.Store
	items   int
	err     error
	parents []string // that pages were sent with
	sent    []*bridge.Page
}

func (p *ports) fail() error {
	err := p.err
	p.err = nil
	return err
}

func (p *ports) Fetch(context.Context, bridge.Position) (*bridge.Page, error) {
	if err := p.fail(); err != nil {
		return nil, err
	}
	return &bridge.Page{ArrivedAt: time.Now(), Items: p.items, Events: make([]bridge.Event, p.items)}, nil
}

func (p *ports) Decode(*bridge.Page) error { return p.fail() }

func (p *ports) Send(_ context.Context, page *bridge.Page) error {
	p.parents = append(p.parents, page.Traceparents...)
	if err := p.fail(); err != nil {
		page.Release()
		return err
	}
	p.sent = append(p.sent, page)
	return nil
}

func (p *ports) Publish(context.Context, bridge.Batch) (bridge.Receipt, error) {
	for _, page := range p.sent {
		page.Release()
	}
	p.sent = nil
	return bridge.Receipt{}, p.fail()
}

func (p *ports) Recover(context.Context, func(context.Context) error) (bridge.Checkpoint, error) {
	return bridge.Checkpoint{}, nil
}

func (p *ports) Advance(context.Context, bridge.Checkpoint, bridge.Checkpoint) error { return p.fail() }

// harness is ports behind a tracer.
type harness struct {
	*ports
	source bridge.Source
	sink   bridge.Sink
	store  bridge.Store
	spans  *tracetest.InMemoryExporter
}

func newHarness(t *testing.T, mode bridge.Mode) *harness {
	r := &harness{ports: &ports{items: 3}, spans: tracetest.NewInMemoryExporter()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans))
	t.Cleanup(func() { provider.Shutdown(context.Background()) })
	tracer := tracing.New(provider, tracing.Scope{Stream: "events", Topics: []string{"export.events", "export.orders"}, Host: "api",
		Path: "/events", Mode: mode})
	r.source, r.sink, r.store = tracer.Source(r.ports), tracer.Sink(r.ports), tracer.Store(r.ports)
	return r
}

// page fetches and decodes a page; nil after a failure.
func (r *harness) page() *bridge.Page {
	p, err := r.source.Fetch(context.Background(), bridge.Position{Cursor: "secret"})
	if err != nil {
		return nil
	}
	if r.source.Decode(p) != nil {
		p.Release()
		return nil
	}
	return p
}

// seen returns the spans, as NAME, or NAME!CODE for a failure.
func (r *harness) seen() []string {
	var all []string
	for _, s := range r.spans.GetSpans() {
		name := s.Name
		for _, a := range s.Attributes {
			switch a.Key {
			case "error.type":
				name += "!" + a.Value.AsString()
			case "exportbridge.outcome":
				name += " " + a.Value.AsString()
			}
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func TestTracesOfPages(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	broken := &bridge.Fault{Code: "503", Err: errors.New("text of a server")}
	for _, tc := range []struct {
		name string
		mode bridge.Mode
		do   func(r *harness)
		want []string
	}{
		{"a page", bridge.ExactlyOnce, func(r *harness) {
			r.sink.Send(ctx, r.page())
			r.sink.Publish(ctx, bridge.Batch{})
		}, []string{"GET /events", "commit cursor", "poll committed", "send export.events"}},
		{"two pages in a batch", bridge.ExactlyOnce, func(r *harness) {
			r.sink.Send(ctx, r.page())
			r.sink.Send(ctx, r.page())
			r.sink.Publish(ctx, bridge.Batch{})
		}, []string{"GET /events", "GET /events", "commit cursor", "commit cursor", "poll committed", "poll committed",
			"send export.events", "send export.events"}},
		{"at least once the store commits", bridge.AtLeastOnce, func(r *harness) {
			r.sink.Send(ctx, r.page())
			r.sink.Publish(ctx, bridge.Batch{})
			r.err = broken
			r.store.Advance(ctx, bridge.Checkpoint{}, bridge.Checkpoint{})
			if n := len(r.spans.GetSpans()); n != 2 {
				t.Errorf("%d spans before the store has the cursor", n)
			}
			r.store.Advance(ctx, bridge.Checkpoint{}, bridge.Checkpoint{})
		}, []string{"GET /events", "commit cursor", "poll committed", "send export.events"}},
		{"a page of two topics", bridge.ExactlyOnce, func(r *harness) {
			page := r.page()
			page.Events[1].Route, page.Events[2].Route = 1, bridge.RouteDrop
			r.sink.Send(ctx, page)
			r.sink.Publish(ctx, bridge.Batch{})
			if n := len(r.parents); n != 2 || r.parents[0] == r.parents[1] || r.parents[1] == "" {
				t.Errorf("the records have the contexts %v", r.parents)
			}
		}, []string{"GET /events", "commit cursor", "poll committed", "send export.events", "send export.orders"}},
		{"a page without news", bridge.ExactlyOnce, func(r *harness) { r.page().Release() },
			[]string{"GET /events", "poll unsent"}},
		{"a failed request", bridge.ExactlyOnce, func(r *harness) {
			r.err = broken
			r.page()
		}, []string{"GET /events!503", "poll failed!503"}},
		{"a page that is refused", bridge.ExactlyOnce, func(r *harness) {
			p := r.page()
			r.err = broken
			r.sink.Send(ctx, p)
		}, []string{"GET /events", "poll failed!503", "send export.events"}},
		{"a failed commit", bridge.ExactlyOnce, func(r *harness) {
			r.sink.Send(ctx, r.page())
			r.err = broken
			r.sink.Publish(ctx, bridge.Batch{})
		}, []string{"GET /events", "commit cursor!503", "poll failed!503", "send export.events"}},
		{"a session that ends", bridge.ExactlyOnce, func(r *harness) {
			r.sink.Send(ctx, r.page())
			r.sink.Recover(ctx, nil)
		}, []string{"GET /events", "poll abandoned", "send export.events"}},
		{"a heartbeat", bridge.ExactlyOnce, func(r *harness) { r.sink.Publish(ctx, bridge.Batch{}) }, nil},
	} {
		r := newHarness(t, tc.mode)
		tc.do(r)
		if diff := cmp.Diff(tc.want, r.seen()); diff != "" {
			t.Errorf("%s: spans (-want +got)\n%s", tc.name, diff)
		}
		traces := make(map[string]bool)
		for _, s := range r.spans.GetSpans() {
			traces[s.SpanContext.TraceID().String()] = true
			if s.Name == "send export.events" && !slices.Contains(r.parents,
				fmt.Sprintf("00-%s-%s-01", s.SpanContext.TraceID(), s.SpanContext.SpanID())) {
				t.Errorf("%s: pages were sent with %v, not with the span %v", tc.name, r.parents, s.SpanContext)
			}
		}
		polls := 0
		for _, s := range r.spans.GetSpans() {
			if s.Name == "poll" {
				polls++
			}
		}
		if len(traces) != polls {
			t.Errorf("%s: %d traces of %d pages", tc.name, len(traces), polls)
		}
	}
}

// TestMethod: a request has the method that it is sent with.
func TestMethod(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	tracer := tracing.New(provider, tracing.Scope{Stream: "events", Path: "/search", Method: "POST"})
	page := must.Get(tracer.Source(&ports{}).Fetch(t.Context(), bridge.Position{}))(t)
	page.Release()
	for _, s := range spans.Started() {
		if s.Name() == "POST /search" {
			return
		}
	}
	t.Errorf("no span POST /search among %v", spans.Started())
}
