package delay

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// quotaHeaders are the prefixes of the headers with the limit, the requests left and the
// reset. Services use the first two. The third is that of
// draft-ietf-httpapi-ratelimit-headers up to its sixth version.
var quotaHeaders = [...]string{"X-Ratelimit-", "X-Rate-Limit-", "Ratelimit-"}

// quota holds the three values as the API wrote them.
type quota struct{ limit, left, reset string }

// Quota returns how long to wait until the API accepts requests again; 0 if some are left,
// or if the headers do not say. now replaces a missing Date.
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

// fieldWait reads the header RateLimit of the drafts: a list of quotas such as
// `"hour";r=0;t=30`, or in older drafts `limit=100, remaining=0, reset=30`.
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
		if strings.Contains(part, ";") { // the next quota has its own values
			q = quota{}
		}
	}
	return wait
}

// wait returns the time until the reset if no request is left. Services write the reset as
// seconds from now, or as seconds or milliseconds since the epoch. A limit of 0 or less, or
// fewer than 0 requests left, means that there is no limit.
func (q quota) wait(now time.Time) time.Duration {
	if q.left == "" { // the usual case, in which ParseFloat would allocate an error
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
	const epochSeconds, epochMillis = 1e8, 1e11 // no reset is three years away
	switch since := float64(now.UnixMilli()) / 1000; {
	case n >= epochMillis:
		n = n/1000 - since
	case n >= epochSeconds:
		n -= since
	}
	return time.Duration(min(max(n, 0), Max.Seconds()) * float64(time.Second))
}
