package reconcile

import (
	"testing"
	"time"

	"exportbridge/bridge"
)

// TestLateness: percentiles are right to 1 %, over parts of a range too, and
// what is not late or not known is not counted.
func TestLateness(t *testing.T) {
	t.Parallel()
	var window Lateness
	const n = 1000
	for part := range 10 {
		var l Lateness
		note := func(e bridge.Event, ingested int64) { l.note(&e, ingested, time.Minute) }
		for i := part; i < n; i += 10 {
			late := int64(i+1) * 60_000 // 1 to 1,000 minutes
			note(bridge.Event{Time: 5000}, 5000+late)
		}
		note(bridge.Event{Time: 5000}, 0)
		note(bridge.Event{Defect: bridge.DefectTime}, 99999999)
		window.add(&l)
	}
	if window.Known != n || window.Events != n-1 || window.Max != n*60_000 {
		t.Errorf("%+v, want %d known, all but one of them late", window, n)
	}
	for name, c := range map[string]struct{ got, want int64 }{"p50": {window.P50, 500 * 60_000},
		"p99": {window.P99, 990 * 60_000}} {
		if off := float64(c.got)/float64(c.want) - 1; off < -0.015 || off > 0.015 {
			t.Errorf("%s is %d, want about %d", name, c.got, c.want)
		}
	}
	if empty := new(Lateness); empty.percentile(99) != 0 {
		t.Error("nothing is late")
	}
}
