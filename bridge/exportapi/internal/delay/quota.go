package delay

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// quotaHeaders begin the headers that say how many requests there are, how many
// are left, and when there are more: two spellings that services use, and that
// of the drafts of draft-ietf-httpapi-ratelimit-headers up to the sixth.
var quotaHeaders = [...]string{"X-Ratelimit-", "X-Rate-Limit-", "Ratelimit-"}

// quota is what an API says about its limit, as written.
type quota struct{ limit, left, reset string }

// Quota returns for how long an API that counts requests has none left; 0
// if its headers do not say so. now is the time if the response has no Date.
func Quota(h http.Header, now time.Time) time.Duration {
	if date := ServerTime(h); !date.IsZero() {
		now = date
	}
	var wait time.Duration
	for _, name := range quotaHeaders {
		wait = max(wait, quota{h.Get(name + "Limit"), h.Get(name + "Remaining"), h.Get(name + "Reset")}.wait(now))
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
	var q quota
	for part := range strings.SplitSeq(line, ",") {
		for member := range strings.SplitSeq(part, ";") {
			switch name, value, _ := strings.Cut(strings.TrimSpace(member), "="); name {
			case "limit":
				q.limit = value
			case "r", "remaining":
				q.left = value
			case "t", "reset":
				q.reset = value
			}
		}
		wait = max(wait, q.wait(now))
		if strings.Contains(part, ";") { // the next one has values of its own
			q = quota{}
		}
	}
	return wait
}

// wait returns the time until the reset if no request is left. Services write
// the reset as seconds from now, or as seconds or milliseconds since the epoch,
// and no limit as one of 0 or less, or as less than 0 left.
func (q quota) wait(now time.Time) time.Duration {
	if q.left == "" { // as of most services: not an error to allocate for each page
		return 0
	}
	if limit, err := strconv.ParseFloat(q.limit, 64); err == nil && limit <= 0 {
		return 0
	}
	if n, err := strconv.ParseFloat(q.left, 64); err != nil || !(n >= 0 && n < 1) {
		return 0
	}
	n, err := strconv.ParseFloat(q.reset, 64)
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
