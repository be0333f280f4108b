package scan

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// A word holds eight bytes of a string, the first one lowest. The product of a constant and
// eachByte has the constant in each byte.
const eachByte = 0x0101010101010101

// notPlain marks the bytes of a word that need attention inside a string: quotes,
// backslashes, control characters, and bytes that are not ASCII. A mark is the high bit of
// its byte. Only the lowest mark is certain: the subtraction below may borrow from bytes
// above it.
func notPlain(word uint64) uint64 {
	// Flipping bit 1 exchanges the quote (0x22) and the space (0x20), and keeps the control
	// characters together. All bytes below 0x21 are marked.
	quoteOrControl := (word ^ eachByte*0x02) - eachByte*0x21
	backslash := (word ^ eachByte*'\\') - eachByte*0x01
	// A byte that is not ASCII keeps its high bit in at least one of the two.
	return (quoteOrControl | backslash) & (eachByte * 0x80)
}

// skipPlain returns the position of the first byte from i on, inside a string, that is not
// plain.
func skipPlain(b []byte, i int) int {
	for ; i <= len(b)-8; i += 8 {
		if marks := notPlain(binary.LittleEndian.Uint64(b[i : i+8])); marks != 0 {
			return i + bits.TrailingZeros64(marks)/8
		}
	}
	for i < len(b) && notPlain(uint64(b[i]))&0x80 == 0 {
		i++
	}
	return i
}

// skipString continues a string at a byte that is not plain. It moves past the closing
// quote and reports whether there was an escape.
func skipString(b []byte, i int) (end int, escaped, ok bool) {
	for ; i < len(b); i = skipPlain(b, i) {
		switch c := b[i]; {
		case c == '"':
			return i + 1, escaped, true
		case c == '\\':
			escaped = true
			i, ok = skipEscape(b, i+1)
		case c >= utf8.RuneSelf:
			i, ok = skipRunes(b, i)
		default:
			ok = false // a control character
		}
		if !ok {
			return i, escaped, false
		}
	}
	return i, escaped, false
}

// skipEscape checks the rest of an escape, whose backslash is before i.
func skipEscape(b []byte, i int) (end int, ok bool) {
	if i >= len(b) {
		return i, false
	}
	if b[i] != 'u' {
		if escapes[b[i]] == 0 {
			return i, false
		}
		return i + 1, true
	}
	for range 4 {
		i++
		if i >= len(b) || hexDigits[b[i]] == 0 {
			return i, false
		}
	}
	return i + 1, true
}

// skipRunes checks all UTF-8 up to the next ASCII character. Characters that are not ASCII
// seldom come alone.
func skipRunes(b []byte, i int) (end int, ok bool) {
	for i < len(b) && b[i] >= utf8.RuneSelf {
		_, size := utf8.DecodeRune(b[i:])
		if size == 1 {
			return i, false
		}
		i += size
	}
	return i, true
}

// escapes maps the character after a backslash to the character that the escape encodes.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// hexDigits maps a hexadecimal digit to its value plus 1.
var hexDigits = [256]byte{
	'0': 1, '1': 2, '2': 3, '3': 4, '4': 5, '5': 6, '6': 7, '7': 8, '8': 9, '9': 10,
	'a': 11, 'b': 12, 'c': 13, 'd': 14, 'e': 15, 'f': 16,
	'A': 11, 'B': 12, 'C': 13, 'D': 14, 'E': 15, 'F': 16,
}

// AppendUnescaped appends the decoded value of a checked string. exact is false if an
// escape is an unpaired surrogate, which decodes to U+FFFD.
func AppendUnescaped(dst, raw []byte) (unescaped []byte, exact bool) {
	exact = true
	for {
		plain := bytes.IndexByte(raw, '\\')
		if plain < 0 {
			return append(dst, raw...), exact
		}
		dst = append(dst, raw[:plain]...)
		c := raw[plain+1]
		raw = raw[plain+2:]
		if c != 'u' {
			dst = append(dst, escapes[c])
			continue
		}
		r := hex4(raw)
		raw = raw[4:]
		if utf16.IsSurrogate(r) {
			second := rune(utf8.RuneError)
			if len(raw) > 1 && string(raw[:2]) == `\u` {
				second = hex4(raw[2:])
			}
			if r = utf16.DecodeRune(r, second); r == utf8.RuneError {
				exact = false
			} else {
				raw = raw[6:]
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
}

// unescapedSize returns how many bytes AppendUnescaped appends.
func unescapedSize(raw []byte) (size int) {
	for {
		plain := bytes.IndexByte(raw, '\\')
		if plain < 0 {
			return size + len(raw)
		}
		char, escape := 1, 2
		if raw[plain+1] == 'u' {
			r := hex4(raw[plain+2:])
			char, escape = utf8.RuneLen(r), 6
			if next := raw[plain+6:]; utf16.IsSurrogate(r) {
				char = utf8.RuneLen(utf8.RuneError)
				if len(next) > 1 && string(next[:2]) == `\u` && utf16.DecodeRune(r, hex4(next[2:])) != utf8.RuneError {
					char, escape = utf8.UTFMax, 12
				}
			}
		}
		size, raw = size+plain+char, raw[plain+escape:]
	}
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (r rune) {
	for _, c := range b[:4] {
		r = r<<4 | rune(hexDigits[c]-1)
	}
	return r
}

// stringIn checks a string between two quotes. It returns an absent value if the string is
// invalid.
func stringIn(literal []byte) Value {
	end, escaped, ok := skipString(literal, skipPlain(literal, 1))
	switch {
	case !ok || end != len(literal):
		return Value{}
	case escaped:
		return Value{Raw: literal[1 : end-1], Kind: Escaped}
	}
	return Value{Raw: literal[1 : end-1], Kind: String}
}
