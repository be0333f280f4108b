// Package delay reads from HTTP headers for how long no request is to be sent.
package delay

import (
	"net/http"
	"strings"
	"time"
)

// Max bounds the delay that the API can request.
const Max = 10 * time.Minute

// Of returns the delay that a response requests: Retry-After, or without it
// the time until there are requests left.
func Of(resp *http.Response) time.Duration {
	now := time.Now()
	if wait := RetryAfter(resp.Header, now); wait > 0 {
		return wait
	}
	return Quota(resp.Header, now)
}

// RetryAfter parses a Retry-After header: seconds, of which a part counts as
// one, or a date, which is compared
// with the response's own Date so that clock errors cancel out; now is used
// without one. It returns 0 for an absent or unreadable header and for a past
// time.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.Trim(h.Get("Retry-After"), " \t")
	if value == "" {
		return 0
	}
	if whole, part, fraction := strings.Cut(value, "."); strings.Trim(whole+part, "0123456789") == "" && whole+part != "" {
		wait := seconds(whole)
		if fraction && strings.Trim(part, "0") != "" {
			wait = min(wait+time.Second, Max)
		}
		return wait
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date := ServerTime(h); !date.IsZero() {
		now = date
	}
	return min(max(at.Sub(now), 0), Max)
}

// seconds parses digits, limited to Max.
func seconds(digits string) time.Duration {
	var wait time.Duration
	for _, d := range []byte(digits) {
		wait = wait*10 + time.Duration(d-'0')*time.Second
		if wait >= Max {
			return Max
		}
	}
	return wait
}

// ServerTime returns the response's Date header, or the zero time.
func ServerTime(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}
