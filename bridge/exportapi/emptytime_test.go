package exportapi_test

import (
	"testing"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/bridgetest/must"
)

// An empty string is not a time. The next pointer counts.
func TestEmptyTime(t *testing.T) {
	t.Parallel()
	c := connect(t, config(t, map[string]string{"EXPORT_ITEM_TIME": "/t,/timestamp",
		"EXPORT_ITEM_TIME_FORMAT": "rfc3339"}))
	for item, want := range map[string]time.Time{
		`{"eventId":"a","t":"","timestamp":"2026-11-22T10:57:00Z"}`: time.Date(2026, 11, 22, 10, 57, 0, 0, time.UTC),
		`{"eventId":"a","t":"","timestamp":""}`:                     {},
	} {
		p := must.Get(c.DecodeItem([]byte(item)))(t)
		e := &p.Events[0]
		if want.IsZero() != (e.Defect == bridge.DefectTime) || !want.IsZero() && e.Time != want.UnixMilli() {
			t.Errorf("%s: time %d, defect %q, want %s", item, e.Time, e.Defect, want)
		}
	}
}
