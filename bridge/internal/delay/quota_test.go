package delay

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestQuotaWait(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for line, want := range map[string]time.Duration{
		"": 0,
		"X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1800000030500": 30500 * time.Millisecond,

		"X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1800000030":                                     30 * time.Second,
		"X-Rate-Limit-Remaining: 0|X-Rate-Limit-Reset: 1800000030":                                   30 * time.Second,
		"X-RateLimit-Remaining: 0|X-RateLimit-Reset: 45":                                             45 * time.Second,
		"X-RateLimit-Remaining: 1|X-RateLimit-Reset: 45":                                             0,
		"X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1799999999":                                     0,
		"X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1900000000":                                     Max,
		"X-RateLimit-Remaining: 0|X-RateLimit-Reset: soon":                                           0,
		"X-RateLimit-Remaining: 0|X-RateLimit-Reset: NaN":                                            0,
		"X-RateLimit-Remaining: NaN|X-RateLimit-Reset: 5":                                            0,
		"X-RateLimit-Remaining: -1|X-RateLimit-Reset: 3600":                                          0,
		"X-RateLimit-Remaining: -1|X-RateLimit-Reset: 1800000030":                                    0,
		"X-RateLimit-Remaining: 0.5|X-RateLimit-Reset: 5":                                            5 * time.Second,
		"X-RateLimit-Limit: 0|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 5":                         0,
		"X-RateLimit-Limit: -1|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 5":                        0,
		"X-RateLimit-Limit: 60|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 5":                        5 * time.Second,
		"X-RateLimit-Limit: many|X-RateLimit-Remaining: 0|X-RateLimit-Reset: 5":                      5 * time.Second,
		"X-Rate-Limit-Limit: 0|X-Rate-Limit-Remaining: 0|X-Rate-Limit-Reset: 5":                      0,
		"RateLimit-Limit: 0|RateLimit-Remaining: 0|RateLimit-Reset: 5":                               0,
		"RateLimit-Limit: 100, 100;w=10|RateLimit-Remaining: 0|RateLimit-Reset: 5":                   5 * time.Second,
		"X-RateLimit-Limit: 0|RateLimit-Remaining: 0|RateLimit-Reset: 5":                             5 * time.Second,
		"RateLimit: limit=0, remaining=0, reset=5":                                                   0,
		"RateLimit: limit=100, remaining=-1, reset=5":                                                0,
		`RateLimit: "hour";r=-1;t=5`:                                                                 0,
		`RateLimit: "hour";r=-1;t=5, "day";r=0;t=7`:                                                  7 * time.Second,
		"X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1e309":                                          0,
		"RateLimit-Remaining: 0|RateLimit-Reset: 5":                                                  5 * time.Second,
		"RateLimit: limit=100, remaining=0, reset=5":                                                 5 * time.Second,
		"RateLimit: limit=100, remaining=1, reset=5":                                                 0,
		`RateLimit: "hour";r=0;t=5`:                                                                  5 * time.Second,
		`RateLimit: "hour";r=10;t=50, "day";r=0;t=7`:                                                 7 * time.Second,
		`RateLimit: "hour";r=0, "day";r=5;t=7`:                                                       0,
		"X-RateLimit-Remaining: 0|X-RateLimit-Reset: 60|Date: !":                                     time.Minute,
		"X-RateLimit-Remaining: 0|X-RateLimit-Reset: 1800000030|Date: Fri, 15 Jan 2027 08:00:20 GMT": 10 * time.Second,
	} {
		h := http.Header{}
		for field := range strings.SplitSeq(line, "|") {
			if name, value, ok := strings.Cut(field, ": "); ok {
				h.Add(name, value)
			}
		}
		if got := Quota(h, now); got != want {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

func FuzzQuota(f *testing.F) {
	f.Add("0", "1800000030", `"hour";r=0;t=5`)
	f.Fuzz(func(t *testing.T, left, reset, field string) {
		wait := Quota(http.Header{"X-Ratelimit-Remaining": {left}, "X-Ratelimit-Reset": {reset}, "Ratelimit": {field}},
			retryNow)
		if wait < 0 || wait > Max {
			t.Fatal(wait)
		}
	})
}
