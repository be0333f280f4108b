package exportapi

import "exportbridge/bridge/exportapi/internal/itemtime"

// timeFormats are the values of EXPORT_ITEM_TIME_FORMAT. Without times the
// format does not matter.
var timeFormats = map[string]itemtime.Format{
	"": itemtime.Millis, "ms": itemtime.Millis, "s": itemtime.Seconds, "us": itemtime.Micros, "rfc3339": itemtime.RFC3339, none: itemtime.Millis,
}

// longestTime bounds the text of a time with its escapes; six bytes a character.
const longestTime = 6 * 64

// millis returns a time in milliseconds since the epoch, rounded down. It does
// not allocate.
func (v *value) millis(f itemtime.Format) (int64, bool) {
	if f == itemtime.Millis {
		if n, ok := v.integer(); ok {
			return n, true
		}
	}
	return v.parseTime(f)
}

// parseTime is millis for all but integers in milliseconds.
func (v *value) parseTime(f itemtime.Format) (int64, bool) {
	var memory [longestTime]byte
	text := v.raw
	switch {
	case len(text) > longestTime:
		return 0, false
	case v.kind == kindEscaped: // some encoders escape the + of an offset
		text, _ = appendUnescaped(memory[:0], text)
	case v.kind != kindString && v.kind != kindNumber:
		return 0, false
	}
	return f.Parse(text, v.kind == kindNumber)
}
