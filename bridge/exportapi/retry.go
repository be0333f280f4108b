package exportapi

import (
	"net/http"
	"strings"
	"time"
)

// maxRetryAfter bounds the delay that the API can request.
const maxRetryAfter = 10 * time.Minute

// waitOf returns the delay that a response requests: Retry-After, or without it
// the time until there are requests left.
func waitOf(resp *http.Response) time.Duration {
	now := time.Now()
	if wait := retryAfter(resp.Header, now); wait > 0 {
		return wait
	}
	return quotaWait(resp.Header, now)
}

// retryAfter parses a Retry-After header: seconds, or a date, which is compared
// with the response's own Date so that clock errors cancel out; now is used
// without one. It returns 0 for an absent or unreadable header and for a past
// time.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.Trim(h.Get("Retry-After"), " \t")
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		return seconds(value)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date := serverTime(h); !date.IsZero() {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// seconds parses digits, limited to maxRetryAfter.
func seconds(digits string) time.Duration {
	var wait time.Duration
	for _, d := range []byte(digits) {
		wait = wait*10 + time.Duration(d-'0')*time.Second
		if wait >= maxRetryAfter {
			return maxRetryAfter
		}
	}
	return wait
}

// serverTime returns the response's Date header, or the zero time.
func serverTime(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}
