// Package tracing records an OpenTelemetry trace of each page, by wrapping the ports
// of a bridge.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"exportbridge/bridge"
)

// Scope has the attributes of a stream's spans.
type Scope struct {
	// Stream is the target of pages. Topics are its topics by Event.Route. Host and Path
	// are the source.
	Stream     string
	Topics     []string
	Host, Path string
	// Method is the method of requests; empty is GET.
	Method string
	// Mode is the delivery guarantee.
	Mode bridge.Mode
}

// Tracer records a trace of each page: the span poll with a child named after the request's
// method, a child send for each topic, and a child commit cursor. A Tracer wraps the ports
// of one stream. Spans contain no payload and no key. Of a cursor they have only the hash.
type Tracer struct {
	about  Scope
	tracer trace.Tracer

	mu    sync.Mutex                  // guards pages
	pages map[*bridge.Page]*pageTrace // fetched and not yet sent

	// sent are the pages of the current batch, published those whose checkpoint
	// is not yet in the store. Owned by the commit loop.
	sent, published []*pageTrace
	began           time.Time // when the commit began
}

// New returns a Tracer of one stream.
func New(p trace.TracerProvider, about Scope) *Tracer {
	return &Tracer{about: about, tracer: p.Tracer("exportbridge"), pages: make(map[*bridge.Page]*pageTrace)}
}

// Source returns s with traced requests.
func (t *Tracer) Source(s bridge.Source) bridge.Source { return tracedSource{s, t} }

// Sink returns s with traced sends and commits.
func (t *Tracer) Sink(s bridge.Sink) bridge.Sink { return tracedSink{s, t} }

// Store returns s with traced commits, in at-least-once mode.
func (t *Tracer) Store(s bridge.Store) bridge.Store {
	if t.about.Mode == bridge.ExactlyOnce {
		return s // the sink commits
	}
	return tracedStore{s, t}
}

// pageTrace is the trace of one page.
type pageTrace struct {
	ctx context.Context //nolint:containedctx // the parent of the spans to come

	mu     sync.Mutex // guards all below: any goroutine may release a page
	root   trace.Span
	sends  []trace.Span // those in progress
	handed bool         // the sink has the page: a commit ends the trace
}

// take removes a page and returns the trace of the page, nil if there is none.
func (t *Tracer) take(p *bridge.Page) *pageTrace {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.pages[p]
	delete(t.pages, p)
	return r
}

func (t *Tracer) of(p *bridge.Page) *pageTrace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pages[p]
}

type tracedSource struct {
	bridge.Source
	t *Tracer
}

func (s tracedSource) Fetch(ctx context.Context, at bridge.Position) (*bridge.Page, error) {
	r, get := s.t.begin(at)
	p, err := s.Source.Fetch(ctx, at)
	if err != nil {
		fail(get, err)
		get.End()
		r.end("failed", err)
		return nil, err
	}
	get.End(trace.WithTimestamp(p.ArrivedAt))
	s.t.mu.Lock()
	s.t.pages[p] = r
	s.t.mu.Unlock()
	recycle := p.Recycle
	p.Recycle = func(p *bridge.Page) {
		s.t.take(p)
		if recycle != nil {
			recycle(p)
		}
		r.released()
	}
	return p, nil
}

func (s tracedSource) Decode(p *bridge.Page) error {
	err := s.Source.Decode(p)
	r := s.t.of(p)
	if r == nil {
		return err
	}
	if err != nil {
		r.end("failed", err)
		return err
	}
	r.root.SetAttributes(attribute.Int("exportbridge.page.items", p.Items))
	return nil
}

// begin begins a trace and the span of its request. The caller ends that span.
func (t *Tracer) begin(at bridge.Position) (*pageTrace, trace.Span) {
	ctx, root := t.tracer.Start(context.Background(), "poll", trace.WithNewRoot(), trace.WithAttributes(
		attribute.String("exportbridge.stream", t.about.Stream),
		attribute.String("exportbridge.cursor.hash", bridge.CursorHash(at.Cursor)),
	))
	method := cmp.Or(t.about.Method, "GET")
	_, get := t.tracer.Start(ctx, method+" "+t.about.Path, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", method),
		attribute.String("server.address", t.about.Host),
		attribute.String("url.path", t.about.Path),
	))
	return &pageTrace{ctx: ctx, root: root}, get
}

// released ends the send spans of a page that was handed to the sink, and the trace of
// any other page.
func (p *pageTrace) released() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.handed:
		outcome(p.root, "unsent")
		p.root.End()
	default:
		p.endSends(nil)
	}
}

// endSends ends the send spans. The caller holds mu.
func (p *pageTrace) endSends(err error) {
	for _, send := range p.sends {
		fail(send, err)
		send.End()
	}
	p.sends = nil
}

// end ends the trace.
func (p *pageTrace) end(how string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endSends(err)
	outcome(p.root, how)
	fail(p.root, err)
	p.root.End()
}

func outcome(s trace.Span, how string) {
	s.SetAttributes(attribute.String("exportbridge.outcome", how))
}

// fail marks a span as failed. It records the error's code only: the text may quote a server.
func fail(s trace.Span, err error) {
	if err == nil {
		return
	}
	s.SetAttributes(attribute.String("error.type", codeOf(err)))
	s.SetStatus(codes.Error, "")
}

type tracedSink struct {
	bridge.Sink
	t *Tracer
}

func (s tracedSink) Recover(ctx context.Context, owned func(context.Context) error) (bridge.Checkpoint, error) {
	s.t.abandon()
	return s.Sink.Recover(ctx, owned)
}

func (s tracedSink) Send(ctx context.Context, p *bridge.Page) error {
	r := s.t.take(p)
	if r == nil {
		return s.Sink.Send(ctx, p)
	}
	p.Traceparents = s.t.send(r, p.Events)
	if err := s.Sink.Send(ctx, p); err != nil {
		r.end("failed", err)
		return err
	}
	s.t.sent = append(s.t.sent, r)
	return nil
}

// send begins a span for each topic that gets events of the page, and returns the traceparents
// of their records, by Event.Route.
func (t *Tracer) send(r *pageTrace, events []bridge.Event) []string {
	counts := make([]int, len(t.about.Topics))
	for i := range events {
		if to := int(events[i].Route); to < len(counts) { // other events are dropped
			counts[to]++
		}
	}
	parents := make([]string, len(counts))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handed = true
	for to, n := range counts {
		if n == 0 {
			continue
		}
		topic, kind := t.about.Topics[to], trace.WithSpanKind(trace.SpanKindProducer)
		_, span := t.tracer.Start(r.ctx, "send "+topic, kind, trace.WithAttributes(
			attribute.String("messaging.system", "kafka"),
			attribute.String("messaging.operation.name", "send"),
			attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.destination.name", topic),
			attribute.Int("messaging.batch.message_count", n),
		))
		c := span.SpanContext()
		r.sends, parents[to] = append(r.sends, span), fmt.Sprintf("00-%s-%s-%s", c.TraceID(), c.SpanID(), c.TraceFlags())
	}
	return parents
}

func (s tracedSink) Publish(ctx context.Context, b bridge.Batch) (bridge.Receipt, error) {
	s.t.began = time.Now()
	receipt, err := s.Sink.Publish(ctx, b)
	s.t.published, s.t.sent = append(s.t.published, s.t.sent...), nil
	if err != nil || s.t.about.Mode == bridge.ExactlyOnce {
		s.t.committed(err)
	}
	return receipt, err
}

// committed ends the traces of the current batch.
func (t *Tracer) committed(err error) {
	how := "committed"
	if err != nil {
		how = "failed"
	}
	for _, r := range t.published {
		_, span := t.tracer.Start(r.ctx, "commit cursor", trace.WithTimestamp(t.began))
		fail(span, err)
		span.End()
		r.end(how, err)
	}
	t.published = nil
}

// abandon ends the traces of pages that will not be committed.
func (t *Tracer) abandon() {
	for _, r := range append(t.sent, t.published...) {
		r.end("abandoned", nil)
	}
	t.sent, t.published = nil, nil
}

type tracedStore struct {
	bridge.Store
	t *Tracer
}

// Advance implements bridge.Store. Only the commit loop calls it in at-least-once
// mode. After an error it is retried, or the session ends.
func (s tracedStore) Advance(ctx context.Context, from, to bridge.Checkpoint) error {
	err := s.Store.Advance(ctx, from, to)
	if err == nil {
		s.t.committed(nil)
	}
	return err
}

// codeOf returns the code of an error.
func codeOf(err error) string {
	if f, ok := errors.AsType[*bridge.Fault](err); ok && f.Code != "" {
		return f.Code
	}
	return "error"
}
