package command

import (
	"testing"
	"time"

	"exportbridge/bridge/control"
)

// TestRepeatsText: a plan always says how many events come again, or why that is
// not known.
func TestRepeatsText(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)
	entries := control.Plan{From: control.Endpoint{At: at.Add(time.Minute)}, FirstPublished: at}
	for want, r := range map[string]control.Repeats{
		"not known: this cursor is not in the history": {Min: control.Unknown, Max: control.Unknown,
			Pages: control.Unknown, Why: "this cursor is not in the history"},
		"no event is published again":                {},
		"at least 5 events, with the same ce_id":     {Min: 5, Max: control.Unknown, Pages: control.Unknown},
		"at most 1 event, with the same ce_id":       {Max: 1, Pages: control.Unknown},
		"5 to 9 events, with the same ce_id":         {Min: 5, Max: 9, Pages: control.Unknown},
		"1,200 to 2,000 events, with the same ce_id": {Min: 1200, Max: 2000, Pages: control.Unknown},
		"9 events, with the same ce_id":              {Min: 9, Max: 9, Pages: control.Unknown},
		"9 events in 2 pages, with the same ce_id,\n         first published between 2026-11-20 13:00:00Z and " +
			"2026-11-20 13:01:00Z": {Min: 9, Max: 9, Pages: 2},
		"8 events in 2 pages, with the same ce_id": {Min: 8, Max: 8, Pages: 2},
	} {
		plan := entries
		if r.Min == 8 { // behind a rewind
			plan.FirstPublished = time.Time{}
		}
		plan.Repeats = r
		if got := repeatsText(&plan); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}
