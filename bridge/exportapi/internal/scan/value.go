package scan

import (
	"bytes"
	"strconv"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/itemtime"
)

// Kind is the kind of a JSON value.
type Kind uint8

// The kinds.
const (
	None Kind = iota // none: absent, or not JSON
	Object
	Array
	String  // without escapes
	Escaped // a string with escapes
	Number
	Boolean
	Null
	Bad // not JSON, see Scanner.Loosen
)

// kinds maps a value's first byte to its kind. The byte does not tell whether a string has
// escapes.
var kinds = [256]Kind{
	'{': Object, '[': Array, '"': String, 't': Boolean, 'f': Boolean, 'n': Null,
	'-': Number, '0': Number, '1': Number, '2': Number, '3': Number, '4': Number,
	'5': Number, '6': Number, '7': Number, '8': Number, '9': Number,
}

// String names the kind in errors.
func (k Kind) String() string {
	switch k {
	case Object:
		return "an object"
	case Array:
		return "an array"
	case String, Escaped:
		return "a string"
	case Number:
		return "a number"
	case Boolean:
		return "a boolean"
	case Null:
		return "null"
	case Bad:
		return "not text"
	}
	return "absent"
}

// Value is a JSON value as it is in the body; a string is without its quotes. The slice's
// capacity ends with the value. The zero value is absent.
type Value struct {
	Raw  []byte
	Kind Kind
}

// Present reports whether there is a value other than null and "".
func (v *Value) Present() bool {
	return v.Kind != None && v.Kind != Null && (v.Kind != String || len(v.Raw) > 0)
}

// Is reports whether a string equals s.
func (v Value) Is(s string) bool {
	if v.Kind != Escaped {
		return string(v.Raw) == s
	}
	text, exact := AppendUnescaped(nil, v.Raw)
	return exact && string(text) == s
}

// Text returns the bytes of a string, or a number or boolean as written; nil for other
// kinds. exact is false if the string has an unpaired surrogate, which decodes to U+FFFD.
func (v Value) Text() (text []byte, exact bool) {
	switch v.Kind {
	case String, Number, Boolean:
		return v.Raw, true
	case Escaped:
		return AppendUnescaped(make([]byte, 0, unescapedSize(v.Raw)), v.Raw)
	}
	return nil, true
}

// Name returns a non-empty text without control characters, or nil. An attribute of
// CloudEvents cannot have control characters.
func (v Value) Name() []byte {
	if text, _ := v.Text(); len(text) > 0 && !hasControl(text) {
		return text
	}
	return nil
}

// ID returns a text that identifies an item, or nil. Different items may share an id that
// is empty, boolean or inexact: one of them would be dropped as a duplicate. An id with
// control characters cannot be sent.
func (v Value) ID() []byte {
	text, exact := v.Text()
	if !exact || len(text) == 0 || v.Kind == Boolean || hasControl(text) {
		return nil
	}
	return text
}

// hasControl reports whether a text has a control character (C0, DEL or C1).
func hasControl(text []byte) bool {
	for i := skipPlain(text, 0); i < len(text); i = skipPlain(text, i+1) {
		if c := text[i]; c < ' ' || c == 0xc2 && i+1 < len(text) && text[i+1] < 0xa0 {
			return true
		}
	}
	return bytes.IndexByte(text, 0x7f) >= 0
}

// integer returns a number that is written as an integer, fits 64 bits and is not
// bridge.NoTime.
func (v Value) integer() (n int64, ok bool) {
	if v.Kind != Number {
		return 0, false
	}
	const alwaysFits = len("999999999999999999")
	if len(v.Raw) > alwaysFits {
		n, err := strconv.ParseInt(string(v.Raw), 10, 64)
		return n, err == nil && n != bridge.NoTime
	}
	digits := v.Raw
	if digits[0] == '-' {
		digits = digits[1:]
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false // a fraction or an exponent
		}
		n = n*10 + int64(c-'0')
	}
	if len(digits) < len(v.Raw) {
		n = -n
	}
	return n, true
}

// LongestTime is the most bytes of a time, at six bytes an escape.
const LongestTime = 6 * 64

// Millis returns a time in milliseconds since the epoch, rounded down. It does not
// allocate.
func (v *Value) Millis(f itemtime.Format) (int64, bool) {
	if f == itemtime.Millis {
		if n, ok := v.integer(); ok {
			return n, true
		}
	}
	return v.parseTime(f)
}

// parseTime is Millis for all but integers in milliseconds.
func (v *Value) parseTime(f itemtime.Format) (int64, bool) {
	var memory [LongestTime]byte
	text := v.Raw
	switch {
	case len(text) > LongestTime:
		return 0, false
	case v.Kind == Escaped: // some encoders escape the + of an offset
		text, _ = AppendUnescaped(memory[:0], text)
	case v.Kind != String && v.Kind != Number:
		return 0, false
	}
	return f.Parse(text, v.Kind == Number)
}

// appendCursor appends the cursor of a checked value; null appends nothing. ok is false for
// other kinds, and for a string that does not decode exactly.
func (v Value) appendCursor(to []byte) (cursor []byte, ok bool) {
	switch v.Kind {
	case Null:
		return to, true
	case String:
		return append(to, v.Raw...), true
	case Escaped:
		return AppendUnescaped(to, v.Raw)
	}
	return nil, false
}
