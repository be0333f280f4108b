package config

import (
	"slices"
	"testing"

	"exportbridge/bridge/bridgetest/must"
)

// TestUnsafeTraces: traces in clear text to another machine are an unsafe setting, by the
// variable that sends them there.
func TestUnsafeTraces(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		environ []string
		want    []string
	}{
		{nil, nil},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318"}, []string{"OTEL_EXPORTER_OTLP_ENDPOINT"}},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://192.0.2.7"}, []string{"OTEL_EXPORTER_OTLP_ENDPOINT"}},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=https://collector:4318"}, nil},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318"}, nil},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://[::1]:4318"}, nil},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://traces"}, nil},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=https://collector", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://traces/v1"},
			[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector", "OTEL_SDK_DISABLED=true"}, nil},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, nil},
	} {
		s := must.Get(Load(Sources{Environ: append([]string{"EXPORT_API_KEY=sesame"}, test.environ...)}, UsesAll))(t)
		if got := s.Unsafe(); !slices.Equal(got, test.want) {
			t.Errorf("%q: %q, want %q", test.environ, got, test.want)
		}
	}
	if why, remedy := UnsafeReason(otlpEndpoint); why == "disables a protection" || remedy == "use it in tests only" {
		t.Errorf("no reason of its own: %s; %s", why, remedy)
	}
}
