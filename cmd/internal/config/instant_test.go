package config

import (
	"testing"
	"time"
)

func TestParseInstant(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		text string
		want int64
		err  string
	}{
		{text: "now", want: now.UnixMilli()},
		{text: "earliest"},
		{text: "0"},
		{text: "-24h", want: now.Add(-24 * time.Hour).UnixMilli()},
		{text: "-7d", want: now.Add(-7 * 24 * time.Hour).UnixMilli()},
		{text: "2026-11-01T00:00:00Z", want: 1793491200000},
		{text: "2026-11-01T01:00:00.5+01:00", want: 1793491200500},
		{text: "1793491200000", want: 1793491200000},
		{text: "1793491200", err: `"1793491200" is too small for milliseconds since the epoch, for example 1795262400000`},
		{text: "-5", err: `"-5" is too small for milliseconds since the epoch, for example 1795262400000`},
		{text: "-soon", err: `"-soon" is not a duration, for example -24h`},
		{text: "-90000d", err: `"-90000d" is before the epoch, for example earliest`},
		{text: "1969-12-31T23:59:59Z", err: `"1969-12-31T23:59:59Z" is before the epoch, for example earliest`},
		{text: "24h", err: `"24h" is not a time, for example 2026-11-21T12:00:00Z, -24h, now or earliest`},
		{text: "2026-11-01", err: `"2026-11-01" is not a time, for example 2026-11-21T12:00:00Z, -24h, now or earliest`},
		{text: "", err: `"" is not a time, for example 2026-11-21T12:00:00Z, -24h, now or earliest`},
	} {
		got, err := ParseInstant(test.text, now)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if got != test.want || problem != test.err {
			t.Errorf("parseInstant(%q) = %d, %q, want %d, %q", test.text, got, problem, test.want, test.err)
		}
	}
}
