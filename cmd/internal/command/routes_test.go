package command

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"exportbridge/cmd/internal/cli"
)

// TestOtherRoutes: with other routes than the stream has, no command publishes to its topics,
// until the stream has started with these routes.
func TestOtherRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"] = serveItems(t, func(*http.Request) ([]string, string) {
		return []string{event("a", 0), event("b", 1), `{"eventId":"c","timestamp":"never"}`}, "null"
	})
	w.env["KAFKA_ROUTES"] = "order*=drop"
	w.runOnce(t)
	span := aroundEvents()
	publish := [][]string{
		append([]string{"verify", "--repair"}, span...), append([]string{"backfill", "--allow-overlap"}, span...),
		{"dlq", "retry", "--all"},
	}
	for _, routes := range []string{"", "order*=drop,x=drop"} {
		w.env["KAFKA_ROUTES"] = routes
		for _, args := range publish {
			for _, args := range [][]string{args, slices.Concat(args, []string{"--execute"})} {
				got := runProgram(t, w.env, args...)
				if got.code != cli.ExitUsage || !strings.Contains(got.stderr, `KAFKA_ROUTES is "`+routes+
					`", but stream events publishes by "order*=drop"`) || !strings.Contains(got.stderr, "Try: set KAFKA_TOPIC and KAFKA_ROUTES") {
					t.Errorf("routes %q, %s: %+v", routes, args, got)
				}
			}
		}
		if got := runProgram(t, w.env, append([]string{"verify"}, span...)...); got.code != cli.ExitOK {
			t.Errorf("routes %q: a comparison: %+v", routes, got)
		}
	}
	w.runOnce(t)
	other := maps.Clone(w.env)
	other["KAFKA_TOPIC"], other["KAFKA_DLQ_TOPIC"] = "export.other", "dlq.export.events"
	succeed(t, other, "topics", "create", "--execute")
	for _, args := range publish {
		if got := runProgram(t, other, args...); got.code != cli.ExitUsage ||
			!strings.Contains(got.stderr, "KAFKA_TOPIC is export.other, but stream events publishes to export.events") {
			t.Errorf("another topic, %s: %+v", args, got)
		}
		if got := runProgram(t, w.env, args...); strings.Contains(got.stderr, "KAFKA_ROUTES") {
			t.Errorf("after a start, %s: %+v", args, got)
		}
	}
}
