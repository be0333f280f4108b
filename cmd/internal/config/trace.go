package config

import (
	"cmp"
	"fmt"
	"net/url"

	"exportbridge/bridge"
)

// The variables of OpenTelemetry that are read here. The others that concern
// the exporter, the sampler and the resource are read by its SDK.
const (
	otlpEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	otlpTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	otlpProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	otlpTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	otelDisabled       = "OTEL_SDK_DISABLED"
	otelTracesExporter = "OTEL_TRACES_EXPORTER"
)

// otlpSpoken is the one protocol that traces are sent by.
const otlpSpoken = "http/protobuf"

// TraceURL returns where traces go, empty for nowhere.
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
	switch protocol := cmp.Or(get(otlpTracesProtocol), get(otlpProtocol), otlpSpoken); {
	case value == "" || get(otelDisabled) == "true" || get(otelTracesExporter) == "none":
		return ""
	case protocol != otlpSpoken: // often set for all programs of a machine
		s.Warnings = append(s.Warnings, fmt.Sprintf("no traces: %s is asked for by %s, and only %s is spoken; set %s=%s and an %s for it, usually port 4318",
			protocol, otlpProtocol, otlpSpoken, otlpTracesProtocol, otlpSpoken, otlpTracesEndpoint))
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
