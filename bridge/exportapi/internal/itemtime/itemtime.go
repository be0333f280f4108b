// Package itemtime parses the times of items. It does not allocate.
package itemtime

// Format is the format of a time.
type Format uint8

// The formats: a number of milliseconds, seconds or microseconds since the
// epoch, with an optional fraction; RFC 3339; and RFC 3339 in which a time without a zone
// is UTC.
const (
	Millis Format = iota
	Seconds
	Micros
	RFC3339
	RFC3339UTC
)

// String returns the name of the format.
func (f Format) String() string { return [...]string{"ms", "s", "us", "rfc3339", "rfc3339-utc"}[f] }

// The range of times: the years 1 to 9999 in milliseconds since the epoch. A
// number outside this range has another unit.
const (
	minMillis = -62_135_596_800_000
	maxMillis = 253_402_300_799_999
)

// Parse returns a time in milliseconds since the epoch, rounded down. number is set if text
// is a JSON number, not the content of a string.
func (f Format) Parse(text []byte, number bool) (ms int64, ok bool) {
	switch {
	case f < RFC3339:
		ms, ok = f.decimal(text, number)
	case !number:
		ms, ok = parseRFC3339(text, f == RFC3339UTC)
	}
	if !ok || ms < minMillis || ms > maxMillis {
		return 0, false
	}
	return ms, true
}

// mostDigits is the number of digits that always fit in 64 bits.
const mostDigits = 18

// decimal parses digits with an optional fraction in the format's unit. signed allows a
// minus sign. An exponent is refused, because its digits are not exact.
func (f Format) decimal(text []byte, signed bool) (ms int64, ok bool) {
	negative := signed && len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	end, ok := skipDigits(text, 0)
	if !ok || end > mostDigits {
		return 0, false
	}
	whole, fraction := digits(text[:end]), text[end:]
	if len(fraction) > 0 {
		if fraction[0] != '.' {
			return 0, false
		}
		if end, ok = skipDigits(fraction, 1); !ok || end < len(fraction) {
			return 0, false
		}
		fraction = fraction[1:]
	}
	inexact := false // something is left below a millisecond
	switch f {
	case Seconds:
		if whole > maxMillis/1000 {
			return 0, false
		}
		ms = 1000*whole + thousandths(fraction)
		fraction = fraction[min(3, len(fraction)):]
	case Micros:
		ms, inexact = whole/1000, whole%1000 != 0
	default:
		ms = whole
	}
	if !negative {
		return ms, true
	}
	for _, c := range fraction {
		inexact = inexact || c != '0'
	}
	if inexact {
		ms++
	}
	return -ms, true
}

// digits returns the value of at most mostDigits digits.
func digits(text []byte) (n int64) {
	for _, c := range text {
		n = 10*n + int64(c-'0')
	}
	return n
}

// thousandths returns the first three digits of a fraction.
func thousandths(fraction []byte) (n int64) {
	for i := range 3 {
		n *= 10
		if i < len(fraction) {
			n += int64(fraction[i] - '0')
		}
	}
	return n
}

// parseRFC3339 parses an RFC 3339 time. T and Z may be lower case, T may be a space, and
// the offset may lack its colon as in ISO 8601. utc allows a time without an offset. A leap
// second, at the end of a day in UTC, is read as the beginning of the next day.
func parseRFC3339(b []byte, utc bool) (ms int64, ok bool) {
	const date = len("2006-01-02T15:04:05")
	if len(b) < date || b[4] != '-' || b[7] != '-' || b[13] != ':' || b[16] != ':' ||
		b[10] != 'T' && b[10] != 't' && b[10] != ' ' {
		return 0, false
	}
	century, ok1 := twoDigits(b, 0)
	year, ok2 := twoDigits(b, 2)
	month, ok3 := twoDigits(b, 5)
	day, ok4 := twoDigits(b, 8)
	hour, ok5 := twoDigits(b, 11)
	minute, ok6 := twoDigits(b, 14)
	second, ok7 := twoDigits(b, 17)
	year += 100 * century
	ok = ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7
	if !ok || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) ||
		hour > 23 || minute > 59 || second > 60 {
		return 0, false
	}
	rest, leap := b[date:], second == 60
	ms = ((daysSinceEpoch(year, month, day)*24+hour)*60+minute)*60_000 + second*1000
	if len(rest) > 0 && rest[0] == '.' {
		end, ok := skipDigits(rest, 1)
		if !ok {
			return 0, false
		}
		if !leap {
			ms += thousandths(rest[1:end])
		}
		rest = rest[end:]
	}
	if ok = utc; len(rest) > 0 {
		var offset int64
		offset, ok = zoneMinutes(rest)
		ms -= offset * 60_000
	}
	return ms, ok && (!leap || ms%86_400_000 == 0)
}

// zoneMinutes parses the offset of an RFC 3339 time.
func zoneMinutes(b []byte) (minutes int64, ok bool) {
	if len(b) == 1 {
		return 0, b[0] == 'Z' || b[0] == 'z'
	}
	if len(b) < len("+0700") || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	at := 3
	if b[at] == ':' {
		at++
	}
	if len(b) != at+2 {
		return 0, false
	}
	hour, ok1 := twoDigits(b, 1)
	minute, ok2 := twoDigits(b, at)
	minutes = 60*hour + minute
	if b[0] == '-' {
		minutes = -minutes
	}
	return minutes, ok1 && ok2 && hour <= 23 && minute <= 59
}

// twoDigits returns the number that the two digits at i make.
func twoDigits(b []byte, i int) (n int64, ok bool) {
	tens, ones := b[i]-'0', b[i+1]-'0'
	return int64(tens)*10 + int64(ones), tens <= 9 && ones <= 9
}

func daysIn(year, month int64) int64 {
	if month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		return 29
	}
	return [...]int64{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[month-1]
}

// daysSinceEpoch returns the days from 1970-01-01 to a date of the Gregorian calendar, in
// the years 0 to 9999. Its years begin in March, so that the leap day is the last. Parsing
// takes half the time that it takes with time.Date.
func daysSinceEpoch(year, month, day int64) int64 {
	month -= 3
	if month < 0 {
		month += 12
		year--
	}
	year += 400 // above 0, by a whole cycle of leap years
	return 365*year + year/4 - year/100 + year/400 + (153*month+2)/5 + day - 1 - 719_468 - 146_097
}

// skipDigits returns the position after the digits at i. ok is false if there are none.
func skipDigits(b []byte, i int) (end int, ok bool) {
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i, i > start
}
