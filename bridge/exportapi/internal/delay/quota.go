package delay

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// quotaHeaders are the pairs of headers that say how many requests are left,
// and when there are more: two spellings that services use, and that of the
// drafts of draft-ietf-httpapi-ratelimit-headers up to the sixth.
var quotaHeaders = [...][2]string{
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
	{"Ratelimit-Remaining", "Ratelimit-Reset"},
}

// Quota returns for how long an API that counts requests has none left; 0
// if its headers do not say so. now is the time if the response has no Date.
func Quota(h http.Header, now time.Time) time.Duration {
	if date := ServerTime(h); !date.IsZero() {
		now = date
	}
	var wait time.Duration
	for _, names := range quotaHeaders {
		wait = max(wait, untilReset(h.Get(names[0]), h.Get(names[1]), now))
	}
	for _, line := range h["Ratelimit"] {
		wait = max(wait, fieldWait(line, now))
	}
	return wait
}

// fieldWait reads the field RateLimit of the drafts: `"hour";r=0;t=30` with one
// quota after the other, or before them `limit=100, remaining=0, reset=30`.
func fieldWait(line string, now time.Time) time.Duration {
	var wait time.Duration
	var left, reset string
	for quota := range strings.SplitSeq(line, ",") {
		for member := range strings.SplitSeq(quota, ";") {
			switch name, value, _ := strings.Cut(strings.TrimSpace(member), "="); name {
			case "r", "remaining":
				left = value
			case "t", "reset":
				reset = value
			}
		}
		wait = max(wait, untilReset(left, reset, now))
		if strings.Contains(quota, ";") { // the next one has values of its own
			left, reset = "", ""
		}
	}
	return wait
}

// untilReset returns the time until the reset if no request is left. Services
// write the reset as seconds from now, or as seconds or milliseconds since the
// epoch.
func untilReset(left, reset string, now time.Time) time.Duration {
	if n, err := strconv.ParseFloat(left, 64); err != nil || n >= 1 {
		return 0
	}
	n, err := strconv.ParseFloat(reset, 64)
	if err != nil || !(n > 0) {
		return 0
	}
	const epochSeconds, epochMillis = 1e8, 1e11 // in 1973, and more than three years from now
	switch since := float64(now.UnixMilli()) / 1000; {
	case n >= epochMillis:
		n = n/1000 - since
	case n >= epochSeconds:
		n -= since
	}
	return time.Duration(min(max(n, 0), Max.Seconds()) * float64(time.Second))
}
