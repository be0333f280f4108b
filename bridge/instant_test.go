package bridge

import (
	"errors"
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
		{text: "2026-11-01 00:00:00Z", want: 1793491200000},
		{text: "2026-11-01 00:00:00.5Z", want: 1793491200500},
		{text: "2026-11-01 00:00Z", want: 1793491200000},
		{text: "2026-11-01T00:00Z", want: 1793491200000},
		{text: "2026-11-01 01:00+01:00", want: 1793491200000},
		{text: "2026-11-01", want: 1793491200000},
		{text: "-PT2H", want: now.Add(-2 * time.Hour).UnixMilli()},
		{text: "-P1DT30M", want: now.Add(-24*time.Hour - 30*time.Minute).UnixMilli()},
		{text: "-90000d", err: `"-90000d" is before the epoch, for example earliest`},
		{text: "1969-12-31T23:59:59Z", err: `"1969-12-31T23:59:59Z" is before the epoch, for example earliest`},
		{text: "-soon", err: `"-soon" is not a time: ` + instantForms},
		{text: "24h", err: `"24h" is a duration: did you mean -24h, which is 2026-11-20 12:00:00Z?`},
		{text: "PT2H", err: `"PT2H" is a duration: did you mean -PT2H, which is 2026-11-21 10:00:00Z?`},
		{text: "+7d", err: `"+7d" is a duration: did you mean -7d, which is 2026-11-14 12:00:00Z?`},
		{text: "2026-11-01 00:00", err: `"2026-11-01 00:00" has no zone: 2026-11-01 00:00Z for UTC`}, // whose?
		{text: "2026-11-01T00:00:00.5", err: `"2026-11-01T00:00:00.5" has no zone: 2026-11-01T00:00:00.5Z for UTC`},
		{text: "2026-11-01T01:00:00+0100",
			err: `"2026-11-01T01:00:00+0100" has its zone in another form: did you mean 2026-11-01T01:00:00+01:00?`},
		{text: "2026-11-01 01:00 +0100",
			err: `"2026-11-01 01:00 +0100" has its zone in another form: did you mean 2026-11-01 01:00+01:00?`},
		{text: "2026-11-01 01:00:00.5-05",
			err: `"2026-11-01 01:00:00.5-05" has its zone in another form: did you mean 2026-11-01 01:00:00.5-05:00?`},
		{text: "2026-11-01 01:00 +01:00",
			err: `"2026-11-01 01:00 +01:00" has its zone in another form: did you mean 2026-11-01 01:00+01:00?`},
		{text: "2026-11-01 00:00 UTC",
			err: `"2026-11-01 00:00 UTC" has its zone in another form: did you mean 2026-11-01 00:00Z?`},
		{text: "2026-11-01T00:00:00z",
			err: `"2026-11-01T00:00:00z" has its zone in another form: did you mean 2026-11-01T00:00:00Z?`},
		{text: "2026-11-01 01:00 CET", err: `"2026-11-01 01:00 CET" is not a time: ` + instantForms},
		{text: "2026-13-01 01:00", err: `"2026-13-01 01:00" is not a time: ` + instantForms},
		{text: "--2h", err: `"--2h" is not a time: ` + instantForms},
		{text: "", err: `"" is not a time: ` + instantForms},
	} {
		got, err := ParseInstant(test.text, now)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if got != test.want || problem != test.err {
			t.Errorf("ParseInstant(%q) = %d, %q, want %d, %q", test.text, got, problem, test.want, test.err)
		}
	}
}

// TestParseISODuration: ISO 8601 reads as Go's syntax does.
func TestParseISODuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"PT2H": "2h", "-PT2H": "-2h", "P1D": "1d", "P1DT12H": "1d12h", "PT1H30M2.5S": "1h30m2.5s", "PT90M": "90m",
		"PT0S": "0s",
		"P":    "", "PT": "", "P1DT": "", "P1M": "", "P1Y": "", "P1W": "", "PT2": "", "PT-2H": "", "pt2h": "", "PT2MS": "",
		"P106752D": "",
	} {
		got, err := ParseDuration(text)
		if want == "" {
			if err == nil {
				t.Errorf("%s reads as %s, want an error", text, got)
			}
			continue
		}
		if same, _ := ParseDuration(want); err != nil || got != same {
			t.Errorf("%s reads as %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestParsePast(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"now": "", "earliest": "", "-1s": "", "2026-11-21": "", "2026-11-21T12:00:00Z": "",
		"2026-11-21T12:00:00.001Z": "2026-11-21T12:00:00.001Z is in the future", "2999-01-01": "2999-01-01 is in the future",
	} {
		_, err := ParsePast(text, now)
		if (want != "") != errors.Is(err, ErrFuture) || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
