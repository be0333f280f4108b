// Package delay reads how long a client must wait from the headers of a response.
package delay

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Max is the longest delay that the API can request.
const Max = 10 * time.Minute

// Of returns the delay that a response requests: its Retry-After, or else its Quota.
func Of(resp *http.Response) time.Duration {
	now := time.Now()
	if wait := RetryAfter(resp.Header, now); wait > 0 {
		return wait
	}
	return Quota(resp.Header, now)
}

// RetryAfter parses a Retry-After header, which has seconds or a date. Seconds are rounded
// up. A date is compared with the response's own Date, so that clock errors cancel out; now
// replaces a missing Date. RetryAfter returns 0 if the header is absent or unreadable, or
// the date has passed.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.Trim(h.Get("Retry-After"), " \t")
	if value == "" {
		return 0
	}
	seconds, err := strconv.ParseFloat(value, 64)
	// ParseFloat makes a number infinite that is too large.
	if strings.Trim(value, "0123456789.") == "" && !errors.Is(err, strconv.ErrSyntax) {
		return time.Duration(min(math.Ceil(seconds), Max.Seconds())) * time.Second
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

// ServerTime returns the response's Date header, or the zero time.
func ServerTime(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}
