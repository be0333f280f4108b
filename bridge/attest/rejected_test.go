package attest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportbridge/bridge/attest"
	"exportbridge/bridge/bridgetest/must"
	"exportbridge/bridge/reconcile"
)

// TestRejected: where a period cannot be compared, the hint is the command that is rejected for the same reason, and
// says what to do.
func TestRejected(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.attestor("a")
		a.Compare = func(context.Context, int64, int64, reconcile.Mode) (*reconcile.Report, error) {
			return nil, fmt.Errorf("other rules: %w", &reconcile.RejectedError{Reason: reconcile.OtherRules})
		}
		w.run(time.Minute, a)
		w.chain(0)
		got := a.Status(w.position).Warnings("events")
		const want = "exportbridge verify --stream events --from 1999-12-31T23:00:00Z --to 2000-01-01T00:00:00Z"
		if len(got) != 1 || got[0].Hint != want {
			t.Errorf("the warnings are %+v, want the hint %s", got, want)
		}
	})
}

// TestOtherRules: periods whose events have other ids are left out. The record of the next
// period says so, and proves nothing about them.
func TestOtherRules(t *testing.T) {
	inWorld(t, func(w *world) {
		w.run(90*time.Minute, w.attestor("a"))
		had := w.chain(2)
		a := w.attestor("a")
		compare, asked := a.Compare, 0
		begin, end := had[1].To, had[1].To.Add(2*time.Hour)
		a.Compare = func(ctx context.Context, from, to int64, mode reconcile.Mode) (*reconcile.Report, error) {
			if from < end.UnixMilli() {
				asked++
				return nil, fmt.Errorf("other rules: %w", &reconcile.RejectedError{Reason: reconcile.OtherRules})
			}
			return compare(ctx, from, to, mode)
		}
		w.run(time.Hour-5*time.Second, a) // between two steps
		w.chain(2)
		got := a.Status(w.position).Warnings("events")
		if len(got) != 1 || !strings.Contains(got[0].Text, "other rules") {
			t.Errorf("the warnings are %+v", got)
		}
		w.run(3*time.Hour, a)
		all := w.chain(4)
		if len(all) != 4 {
			return
		}
		if r := all[2]; r.NotComparedFrom == nil || !r.NotComparedFrom.Equal(begin) || !r.From.Equal(end) ||
			all[3].NotComparedFrom != nil || asked != 2 {
			t.Errorf("record 3 is %+v after %d comparisons", r, asked)
		}
		if got := a.Status(w.position).Warnings("events"); len(got) > 0 {
			t.Errorf("the warnings are %+v", got)
		}
		c := must.Get(attest.Read(t.Context(), w.topic, "events"))(t)
		for name, test := range map[string]struct {
			from, to time.Time
			proven   bool
		}{
			"before": {had[0].From, begin, true},
			"across": {had[0].From, all[3].To, false},
			"inside": {begin.Add(time.Hour), all[3].To, false},
			"after":  {end, all[3].To, true},
			"up to":  {had[0].From, begin.Add(time.Minute), false},
		} {
			if breaks := c.Uncovered(test.from.UnixMilli(), test.to.UnixMilli()); (len(breaks) == 0) != test.proven {
				t.Errorf("%s: %v", name, breaks)
			}
		}
		if len(c.Uncovered(0, 0)) != 1 {
			t.Errorf("all: %v", c.Uncovered(0, 0))
		}
	})
}
