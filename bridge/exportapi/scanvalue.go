package exportapi

import (
	"slices"
	"strconv"
)

// kind is what a JSON value is.
type kind uint8

const (
	kindNone kind = iota // none: absent, or not JSON
	kindObject
	kindArray
	kindString  // without escapes
	kindEscaped // a string with escapes
	kindNumber
	kindBoolean
	kindNull
)

// kinds tells a value's kind by its first byte; of a string's escapes that
// says nothing yet.
var kinds = [256]kind{
	'{': kindObject, '[': kindArray, '"': kindString, 't': kindBoolean, 'f': kindBoolean, 'n': kindNull,
	'-': kindNumber, '0': kindNumber, '1': kindNumber, '2': kindNumber, '3': kindNumber, '4': kindNumber,
	'5': kindNumber, '6': kindNumber, '7': kindNumber, '8': kindNumber, '9': kindNumber,
}

// String names the kind for errors.
func (k kind) String() string {
	switch k {
	case kindObject:
		return "an object"
	case kindArray:
		return "an array"
	case kindString, kindEscaped:
		return "a string"
	case kindNumber:
		return "a number"
	case kindBoolean:
		return "a boolean"
	case kindNull:
		return "null"
	}
	return "absent"
}

// value is a JSON value as it stands in the body, a string without its quotes.
// The slice's capacity ends with it. The zero value is absent.
type value struct {
	raw  []byte
	kind kind
}

// is reports whether a string says s.
func (v value) is(s string) bool {
	if v.kind != kindEscaped {
		return string(v.raw) == s
	}
	text, exact := appendUnescaped(nil, v.raw)
	return exact && string(text) == s
}

// text returns a string's bytes, and a number or a boolean as it is written;
// nil for everything else. exact is false if the string has half a character,
// which then reads as U+FFFD.
func (v value) text() (text []byte, exact bool) {
	switch v.kind {
	case kindString, kindNumber, kindBoolean:
		return v.raw, true
	case kindEscaped:
		text, exact = appendUnescaped(make([]byte, 0, len(v.raw)), v.raw)
		return slices.Clip(text), exact
	}
	return nil, true
}

// name returns a text that says something, nil for an empty one.
func (v value) name() []byte {
	if text, _ := v.text(); len(text) > 0 {
		return text
	}
	return nil
}

// id returns a text that can name an item, nil where v cannot: an id that is
// empty, a boolean or not exact is shared by items that differ, and one of
// them would be taken for a repetition.
func (v value) id() []byte {
	text, exact := v.text()
	if !exact || len(text) == 0 || v.kind == kindBoolean {
		return nil
	}
	return text
}

// integer returns a number that is written as an integer and fits.
func (v value) integer() (n int64, ok bool) {
	if v.kind != kindNumber {
		return 0, false
	}
	const alwaysFits = len("999999999999999999")
	if len(v.raw) > alwaysFits {
		n, err := strconv.ParseInt(string(v.raw), 10, 64)
		return n, err == nil
	}
	digits := v.raw
	if digits[0] == '-' {
		digits = digits[1:]
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false // a fraction or an exponent
		}
		n = n*10 + int64(c-'0')
	}
	if len(digits) < len(v.raw) {
		n = -n
	}
	return n, true
}
