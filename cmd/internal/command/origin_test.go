package command

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"exportbridge/cmd/internal/cli"
)

// TestOtherEvents: with other event types, or other ids, than the stream has, no command
// publishes to its topic.
func TestOtherEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env["EXPORT_URL"] = serveItems(t, func(*http.Request) (items []string, next string) {
		for n := range 20 {
			items = append(items, fmt.Sprintf(`{"uid":"u%d","timestamp":%d,"payload":{"@type":"kept"}}`, n,
				firstEvent.UnixMilli()+int64(n)*1000))
		}
		return append(items, `{"uid":"u20","timestamp":"never"}`), "null"
	})
	w.env["EXPORT_EVENTS"], w.env["EXPORT_ITEM_ID"] = "kept", "/uid"
	w.runOnce(t)
	span := aroundEvents()
	for _, variable := range []string{"EXPORT_EVENTS", "EXPORT_ITEM_ID"} {
		other := maps.Clone(w.env)
		delete(other, variable) // the shell of the operator lacks it
		for _, args := range [][]string{
			append([]string{"verify", "--repair"}, span...), append([]string{"backfill", "--allow-overlap"}, span...),
			{"dlq", "retry", "--all"},
		} {
			for _, args := range [][]string{args, slices.Concat(args, []string{"--execute"})} {
				got := runProgram(t, other, args...)
				if got.code != cli.ExitUsage || !strings.Contains(got.stderr, "the stream exports events (kept), ids at /uid") ||
					!strings.Contains(got.stderr, "Try: set EXPORT_RESOURCE, EXPORT_EVENTS and EXPORT_ITEM_ID") {
					t.Errorf("without %s, %s: %+v", variable, args, got)
				}
			}
		}
	}
}
