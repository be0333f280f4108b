//go:build proof

package windows_test

import (
	"testing"

	"exportbridge/bridge/bridgetest/rules"
)

// TestFollowBroken takes the rules of the lists away, one at a time: a schedule must
// notice each.
func TestFollowBroken(t *testing.T) { noticeEach(t, rules.Lists, follow) }

// TestRangeBroken takes the rules of the ranges away.
func TestRangeBroken(t *testing.T) { noticeEach(t, rules.Ranges, playRange) }

func noticeEach(t *testing.T, by rules.Test, play func(t *testing.T, seed uint64) (wrong string)) {
	t.Helper()
	defer rules.Break("")
	const most = 3000
	for _, rule := range rules.Names(by) {
		rules.Break(rule)
		wrong, seed := "", uint64(0)
		for ; wrong == "" && seed < most; seed++ {
			wrong = play(t, seed)
		}
		if wrong == "" {
			t.Errorf("%s is not noticed in %d schedules", rule, most)
			continue
		}
		t.Logf("%s is noticed after %d schedules: %s", rule, seed, wrong)
	}
}
