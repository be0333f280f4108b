//go:build proof

package engine_test

import (
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/bridgetest/rules"
)

// TestBorderBroken takes the rules about borders away, one at a time: events come twice
// where its rule is missing, and nowhere else. The rules are the process's, so nothing
// runs beside it.
func TestBorderBroken(t *testing.T) {
	defer rules.Break("")
	overlapping := inclusive(func() int { return 12 }, 5, 1, "none")
	for _, rule := range []string{"", "any-border", "trust-any-page"} {
		rules.Break(rule)
		for breaks, serve := range map[string][2]func(bridge.Position) bridgetest.Answer{
			"any-border":     {overlapping, overlapping},
			"trust-any-page": {forgetful(false), forgetful(true)},
		} {
			inBubble(t, bridgetest.Export{PageSize: 5}, func(r *harness) {
				for _, answers := range serve {
					r.source.Serve(answers)
					r.startFor(time.Minute)
					r.end()
				}
				values := slices.Sorted(slices.Values(r.values()))
				if twice := len(values) - len(slices.Compact(slices.Clone(values))); (twice > 0) != (rule == breaks) {
					t.Errorf("without %q, %d events come twice where %q matters", rule, twice, breaks)
				}
			})
		}
	}
}
