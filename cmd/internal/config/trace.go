package config

import (
	"cmp"
	"fmt"
	"net/url"

	"exportbridge/bridge"
)

// The variables of OpenTelemetry that this package reads. The SDK of OpenTelemetry
// reads those of the exporter, the sampler and the resource.
const (
	otlpEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	otlpTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	otlpProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	otlpTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	otelDisabled       = "OTEL_SDK_DISABLED"
	otelTracesExporter = "OTEL_TRACES_EXPORTER"
)

// otlpSupported is the only supported protocol for traces.
const otlpSupported = "http/protobuf"

// traceURL returns the URL of the collector of traces, "" for none.
func (l *loader) traceURL(s *Settings) string {
	get := func(name string) string {
		value, _, _ := l.src.get(name)
		return value
	}
	variable, path := otlpTracesEndpoint, ""
	if get(variable) == "" {
		variable, path = otlpEndpoint, "/v1/traces"
	}
	value := get(variable)
	switch protocol := cmp.Or(get(otlpTracesProtocol), get(otlpProtocol), otlpSupported); {
	case value == "" || get(otelDisabled) == "true" || get(otelTracesExporter) == "none":
		return ""
	case protocol != otlpSupported: // often set for all programs of a machine
		s.Warnings = append(s.Warnings, fmt.Sprintf("no traces: %s asks for %s, and only %s is supported; "+
			"set %s=%s and an %s for it, usually port 4318",
			otlpProtocol, protocol, otlpSupported, otlpTracesProtocol, otlpSupported, otlpTracesEndpoint))
		return ""
	}
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		l.add(variable, variable+" is not a URL, for example http://localhost:4318") // it may hold a password
		return ""
	}
	if u.Scheme == "http" && !bridge.Loopback(u.Hostname()) {
		s.ClearTraces = variable
	}
	return u.JoinPath(path).String()
}
