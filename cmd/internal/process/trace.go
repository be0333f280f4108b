package process

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"exportbridge/bridge/engine"
	"exportbridge/bridge/ops/tracing"
	"exportbridge/cmd/internal/config"
)

// traceFlush bounds the export of the last traces.
const traceFlush = 2 * time.Second

// startTraces returns a provider that exports spans to the URL to.
func startTraces(ctx context.Context, to, version string, log *slog.Logger) (*sdktrace.TracerProvider, error) {
	log = log.With(logComponent, "traces")
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("trace export failed", logError, err) }))
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to))
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "exportbridge"),
			attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err != nil {
		log.Warn("resource attributes of traces incomplete", logError, err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)), nil
}

// trace wraps the ports of a stream with a tracer, if tracing is on.
func (p *Process) trace(st *config.Stream, ports *engine.Ports, s *stream) {
	if p.traces == nil {
		return
	}
	host, path := s.api.Endpoint()
	topics := st.Kafka.Topics()
	t := tracing.New(p.traces, tracing.Scope{Stream: st.Name, Topics: topics.OfEvents(), Host: host, Path: path,
		Method: st.Export.Method, Mode: st.Engine.Mode})
	ports.Source, ports.Sink, ports.Store = t.Source(ports.Source), t.Sink(ports.Sink), t.Store(ports.Store)
}

// flushTraces exports the last traces. A failure is not an error of the run.
func (p *Process) flushTraces() {
	if p.traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceFlush)
	defer cancel()
	if err := p.traces.Shutdown(ctx); err != nil {
		p.log.Warn("export of the last traces failed", logComponent, "traces", logError, err)
	}
}
