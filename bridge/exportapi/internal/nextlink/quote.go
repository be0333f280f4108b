package nextlink

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Quote returns the cursor of a page that named it by a string, for an API
// that takes it in a JSON body: what would read as a number is quoted.
func Quote(text string) string {
	if IsInteger(text) || strings.HasPrefix(text, `"`) {
		return strconv.Quote(text)
	}
	return text
}

// Unquote is the inverse of Quote: the cursor as a JSON value.
func Unquote(cursor string) any {
	if IsInteger(cursor) {
		return json.Number(cursor)
	}
	if text, err := strconv.Unquote(cursor); err == nil && strings.HasPrefix(cursor, `"`) {
		return text
	}
	return cursor
}

// IsInteger reports whether a JSON number can be sent back by its digits.
func IsInteger[T []byte | string](number T) bool {
	digits := string(number)
	digits = strings.TrimPrefix(digits, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == "" && (digits[0] != '0' || string(number) == "0")
}
