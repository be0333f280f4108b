package delay

import (
	"net/http"
	"testing"
	"time"
)

var retryNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) string { return retryNow.Add(d).Format(http.TimeFormat) }
	for name, tc := range map[string]struct {
		value, date string
		want        time.Duration
	}{
		"absent":                        {"", "", 0},
		"seconds":                       {"120", "", 2 * time.Minute},
		"zero":                          {"0", "", 0},
		"zeros in front":                {"0007", "", 7 * time.Second},
		"spaces":                        {" 7 ", "", 7 * time.Second},
		"the ceiling":                   {"600", "", 10 * time.Minute},
		"above the ceiling":             {"601", "", 10 * time.Minute},
		"more digits than any number":   {"99999999999999999999999999999999", "", 10 * time.Minute},
		"negative":                      {"-1", "", 0},
		"negative fraction":             {"-0.5", "", 0},
		"fraction":                      {"2.5", "", 3 * time.Second},
		"a fraction alone":              {".4", "", time.Second},
		"less than a second":            {"0.4", "", time.Second},
		"a fraction of zero":            {"2.000", "", 2 * time.Second},
		"no digits behind the point":    {"3.", "", 3 * time.Second},
		"spaces around":                 {"  3 ", "", 3 * time.Second},
		"a fraction above the ceiling":  {"599.5", "", 10 * time.Minute},
		"a fraction at the ceiling":     {"600.5", "", 10 * time.Minute},
		"two points":                    {"1.5.2", "", 0},
		"a point":                       {".", "", 0},
		"an exponent":                   {"1e3", "", 0},
		"words":                         {"soon", "", 0},
		"a date":                        {at(90 * time.Second), "", 90 * time.Second},
		"a date that has passed":        {at(-time.Hour), "", 0},
		"a date far away":               {at(1000 * time.Hour), "", 10 * time.Minute},
		"against the server's clock":    {at(time.Hour + 30*time.Second), at(time.Hour), 30 * time.Second},
		"against a server that is slow": {at(-time.Hour + 30*time.Second), at(-time.Hour), 30 * time.Second},
		"a broken Date":                 {at(30 * time.Second), "yesterday", 30 * time.Second},
		"RFC 850":                       {"Saturday, 21-Nov-26 12:00:30 GMT", "", 30 * time.Second},
		"asctime":                       {"Sat Nov 21 12:00:30 2026", "", 30 * time.Second},
	} {
		h := http.Header{}
		h.Set("Retry-After", tc.value)
		h.Set("Date", tc.date)
		if got := RetryAfter(h, retryNow); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "")
	f.Add("99999999999999999999", "Sat, 21 Nov 2026 12:00:30 GMT")
	f.Add("Sat, 21 Nov 2026 12:00:30 GMT", "Sat, 21 Nov 2026 12:00:00 GMT")
	f.Add("Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT")
	f.Fuzz(func(t *testing.T, value, date string) {
		wait := RetryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, retryNow)
		if wait < 0 || wait > Max {
			t.Fatalf("%v", wait)
		}
	})
}
