//go:build proof

package engine_test

import (
	"slices"
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest"
	"exportbridge/bridge/internal/failpoint"
)

// TestBorderBroken takes the rules about borders away, one at a time: events come twice
// where its rule is missing, and nowhere else. The rules are the process's, so nothing
// runs beside it.
func TestBorderBroken(t *testing.T) {
	defer failpoint.SetBroken("")
	overlapping := inclusive(func() int { return 12 }, 5, 1, "none")
	for _, rule := range []failpoint.Break{"", failpoint.BreakBorder, failpoint.BreakFirstPage} {
		failpoint.SetBroken(rule)
		for breaks, serve := range map[failpoint.Break][2]func(bridge.Position) bridgetest.Answer{
			failpoint.BreakBorder:    {overlapping, overlapping},
			failpoint.BreakFirstPage: {forgetful(false), forgetful(true)},
		} {
			inBubble(t, bridgetest.Export{PageSize: 5}, func(r *harness) {
				for _, answers := range serve {
					r.source.Serve(answers)
					r.start()
					r.after(time.Minute)
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
