package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// oldestInstant is the smallest number taken for milliseconds since the epoch
// (3 March 1973). Smaller ones are seconds that somebody forgot to multiply.
const oldestInstant = 100_000_000_000

// ParseInstant reads a point in time and returns it in milliseconds since the
// epoch; 0 is the earliest. It takes RFC 3339, now, earliest, a time before
// now (-24h, -7d), or milliseconds since the epoch.
func ParseInstant(text string, now time.Time) (int64, error) {
	switch text {
	case "now":
		return now.UnixMilli(), nil
	case "earliest", "0":
		return 0, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < oldestInstant {
			return 0, fmt.Errorf("%q is too small for milliseconds since the epoch, for example %d", text, now.UnixMilli())
		}
		return n, nil
	}
	if strings.HasPrefix(text, "-") {
		before, err := ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q %w, for example -24h", text, err)
		}
		return afterEpoch(text, now.Add(before))
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time, for example %s, -24h, now or earliest", text, now.UTC().Format(time.RFC3339))
	}
	return afterEpoch(text, t)
}

func afterEpoch(text string, t time.Time) (int64, error) {
	if ms := t.UnixMilli(); ms > 0 {
		return ms, nil
	}
	return 0, fmt.Errorf("%q is before the epoch, for example earliest", text)
}
