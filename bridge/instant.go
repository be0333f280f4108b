package bridge

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// oldestInstant is the smallest number taken for milliseconds since the epoch (3 March
// 1973). Smaller numbers are probably seconds.
const oldestInstant = 100_000_000_000

// instantForms lists the forms that ParseInstant accepts, for its errors.
const instantForms = "use 2026-11-22T10:57:00Z, 2026-11-22 10:57Z, 2026-11-22 (UTC), " +
	"-2h, -7d, -PT2H, now, earliest, or milliseconds since the epoch"

// layouts are the forms of absolute times: RFC 3339, the forms that this program prints,
// and a day in UTC. A fraction of a second may follow the seconds.
var layouts = []string{
	time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04Z07:00", "2006-01-02T15:04Z07:00", time.DateOnly,
}

// ParseInstant parses a point in time and returns it in milliseconds since the epoch; 0 is
// the earliest. It accepts RFC 3339, the forms that this program prints, a date (midnight
// in UTC), now, earliest, a time before now (-24h, -7d, -PT2H), or milliseconds since the
// epoch. Its error says what the text lacks, or lists the forms.
func ParseInstant(text string, now time.Time) (int64, error) {
	ms, err := parseInstant(text, now)
	if errors.Is(err, errNoInstant) {
		return 0, noInstant(text, now)
	}
	return ms, err
}

// ErrFuture means that a time is in the future, but must not be.
var ErrFuture = errors.New("is in the future")

// ParsePast is ParseInstant, except that it returns an ErrFuture for a time after now.
func ParsePast(text string, now time.Time) (int64, error) {
	ms, err := ParseInstant(text, now)
	if err == nil && ms > now.UnixMilli() {
		return 0, fmt.Errorf("%s %w", text, ErrFuture)
	}
	return ms, err
}

var errNoInstant = errors.New("not a time")

// parseInstant is ParseInstant, except that it returns errNoInstant for a text in no known
// form.
func parseInstant(text string, now time.Time) (int64, error) {
	switch text {
	case "now":
		return now.UnixMilli(), nil
	case "earliest", "0":
		return 0, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < oldestInstant {
			return 0, fmt.Errorf("%q is too small for milliseconds since the epoch, for example %d",
				text, now.UnixMilli())
		}
		return n, nil
	}
	if strings.HasPrefix(text, "-") {
		if before, err := ParseDuration(text); err == nil {
			return afterEpoch(text, now.Add(before))
		}
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return afterEpoch(text, t)
		}
	}
	return 0, errNoInstant
}

// Common other forms of a zone: the name UTC, and an offset without a colon or without
// minutes.
var (
	namedUTC   = regexp.MustCompile(`(?i)\s*(utc|gmt|z|z00:?00)$`)
	bareOffset = regexp.MustCompile(`(:\d\d(?:\.\d+)?)\s*([+-]\d\d):?(\d\d)?$`)
)

// noInstant returns an error that says what a text lacks to be a point in time.
func noInstant(text string, now time.Time) error {
	if _, err := parseInstant(text+"Z", now); err == nil {
		return fmt.Errorf("%q has no zone: %sZ for UTC", text, text)
	}
	before := "-" + strings.TrimPrefix(text, "+")
	if ms, err := parseInstant(before, now); err == nil {
		return fmt.Errorf("%q is a duration: did you mean %s, which is %s?",
			text, before, time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05Z"))
	}
	offset := bareOffset.ReplaceAllString(text, "$1$2:$3")
	if strings.HasSuffix(offset, ":") {
		offset += "00"
	}
	for _, zoned := range []string{namedUTC.ReplaceAllString(text, "Z"), offset} {
		if _, err := parseInstant(zoned, now); err == nil {
			return fmt.Errorf("%q has its zone in another form: did you mean %s?", text, zoned)
		}
	}
	return fmt.Errorf("%q is not a time: %s", text, instantForms)
}

func afterEpoch(text string, t time.Time) (int64, error) {
	if ms := t.UnixMilli(); ms > 0 {
		return ms, nil
	}
	return 0, fmt.Errorf("%q is before the epoch, for example earliest", text)
}

var (
	errNoDuration       = errors.New("is not a duration (90s, 2h30m, 7d, PT2H)")
	errDurationTooLarge = errors.New("is out of range")
)

// isoDuration matches ISO 8601 durations. It excludes years and months, whose lengths vary.
var isoDuration = regexp.MustCompile(`^P(\d+D)?(?:T(\d+H)?(\d+M)?(\d+(?:\.\d+)?S)?)?$`)

// ParseDuration parses Go's syntax with days (90s, 7d, 1d12h) and ISO 8601 (PT2H, P1DT12H),
// each with an optional minus sign.
func ParseDuration(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	rest, negative := strings.CutPrefix(text, "-")
	if iso := isoDuration.FindStringSubmatch(rest); iso != nil {
		if strings.HasSuffix(rest, "T") {
			return 0, errNoDuration
		}
		rest = strings.ToLower(strings.Join(iso[1:], ""))
	}
	var total time.Duration
	if head, tail, ok := strings.Cut(rest, "d"); ok {
		days, err := strconv.ParseUint(head, 10, 63)
		if err != nil {
			return 0, errNoDuration
		}
		if days > uint64(math.MaxInt64/day) {
			return 0, errDurationTooLarge
		}
		total, rest = time.Duration(days)*day, tail
		if rest == "" {
			rest = "0"
		}
	}
	if _, err := strconv.ParseFloat(rest, 64); err == nil && rest != "0" {
		return 0, errors.New("has no unit")
	}
	d, err := time.ParseDuration(rest)
	if err != nil || strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, errNoDuration
	}
	if d > math.MaxInt64-total {
		return 0, errDurationTooLarge
	}
	if total += d; negative {
		total = -total
	}
	return total, nil
}

// Millis returns t in milliseconds since the epoch, the unit of a checkpoint; 0 for the
// zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// InstantText formats a time, in milliseconds since the epoch, for people: RFC 3339 in UTC,
// in whole seconds.
func InstantText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// Instant is the inverse of Millis.
func Instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
