package nextlink

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Quote returns the cursor for a string that an API takes back in a JSON body. It quotes a
// string that Unquote would take for a number.
func Quote(text string) string {
	if IsInteger(text) || strings.HasPrefix(text, `"`) {
		return strconv.Quote(text)
	}
	return text
}

// Unquote is the inverse of Quote. It returns the cursor as a JSON value.
func Unquote(cursor string) any {
	if IsInteger(cursor) {
		return json.Number(cursor)
	}
	if text, err := strconv.Unquote(cursor); err == nil && strings.HasPrefix(cursor, `"`) {
		return text
	}
	return cursor
}

// IsInteger reports whether a number is an integer that its digits represent exactly.
func IsInteger[T []byte | string](number T) bool {
	digits := string(number)
	digits = strings.TrimPrefix(digits, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == "" && (digits[0] != '0' || string(number) == "0")
}
