package exportapi

import (
	"slices"
	"strconv"

	"exportbridge/bridge"
)

// kind is the kind of a JSON value.
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

// kinds maps a value's first byte to its kind; escapes in strings are unknown
// at that point.
var kinds = [256]kind{
	'{': kindObject, '[': kindArray, '"': kindString, 't': kindBoolean, 'f': kindBoolean, 'n': kindNull,
	'-': kindNumber, '0': kindNumber, '1': kindNumber, '2': kindNumber, '3': kindNumber, '4': kindNumber,
	'5': kindNumber, '6': kindNumber, '7': kindNumber, '8': kindNumber, '9': kindNumber,
}

// String names the kind in errors.
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

// value is a JSON value as it is in the body, a string without its quotes. The
// slice's capacity ends with it. The zero value is absent.
type value struct {
	raw  []byte
	kind kind
}

// present reports whether there is a value: neither absent nor null.
func (v *value) present() bool {
	return v.kind != kindNone && v.kind != kindNull && (v.kind != kindString || len(v.raw) > 0)
}

// is reports whether a string equals s.
func (v value) is(s string) bool {
	if v.kind != kindEscaped {
		return string(v.raw) == s
	}
	text, exact := appendUnescaped(nil, v.raw)
	return exact && string(text) == s
}

// text returns a string's bytes, or a number or boolean as written; nil for
// other kinds. exact is false if the string has an unpaired surrogate, which
// decodes to U+FFFD.
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

// name returns a non-empty text, or nil.
func (v value) name() []byte {
	if text, _ := v.text(); len(text) > 0 {
		return text
	}
	return nil
}

// id returns a text that identifies an item, or nil: an id that is empty,
// boolean or inexact is shared by different items, of which one would be taken
// for a duplicate.
func (v value) id() []byte {
	text, exact := v.text()
	if !exact || len(text) == 0 || v.kind == kindBoolean {
		return nil
	}
	return text
}

// integer returns a number written as an integer that fits 64 bits and is not
// bridge.NoTime.
func (v value) integer() (n int64, ok bool) {
	if v.kind != kindNumber {
		return 0, false
	}
	const alwaysFits = len("999999999999999999")
	if len(v.raw) > alwaysFits {
		n, err := strconv.ParseInt(string(v.raw), 10, 64)
		return n, err == nil && n != bridge.NoTime
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
