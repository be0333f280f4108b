package exportapi

import (
	"net/http"
	"strings"
	"time"
)

// maxRetryAfter is the longest wait that the API can ask for.
const maxRetryAfter = 10 * time.Minute

// retryAfter reads a Retry-After header: seconds, or a date, which is compared
// with the response's own Date so that a wrong clock on either side cancels
// out; now stands in where there is none. 0 means that the header says nothing
// that can be read, or a time that has passed.
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

// seconds reads digits. Every number above the ceiling is the ceiling, however
// many digits it has.
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

// serverTime returns what the response's Date header says, or the zero time.
func serverTime(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}
