package exportapi

import (
	"bytes"
	"regexp"
	"slices"
	"unicode/utf8"
)

// repair replaces invalid text by JSON of the same length, and returns the positions: in
// strings, by a sentinel byte that the body does not have, and for numbers that JSON does
// not have, by empty arrays.
func repair(body []byte) (fixed []byte, marks []int, sentinel byte) {
	for sentinel = '~'; bytes.IndexByte(body, sentinel) >= 0; sentinel-- {
	}
	fixed = bytes.Clone(body)
	fix := func(i, n int) {
		marks = append(marks, i)
		for j := i; j < min(i+n, len(fixed)); j++ {
			fixed[j] = sentinel
		}
	}
	for i := 0; i < len(body); {
		if body[i] != '"' {
			if m := oracleNoNumber.Find(body[i:]); m != nil {
				fix(i, len(m))
				copy(fixed[i:], "["+string(bytes.Repeat([]byte(" "), len(m)-2))+"]")
				i += len(m)
				continue
			}
			i++
			continue
		}
		for i++; i < len(body) && body[i] != '"'; {
			switch c := body[i]; {
			case c == '\\':
				n := len(oracleEscape.Find(body[i:]))
				if n == 0 && i+1 < len(body) && !oracleEscapeCut.Match(body[i:]) {
					n = 2
					fix(i, n)
				}
				i += max(n, 2)
			case c < ' ':
				fix(i, 1)
				i++
			default:
				r, n := utf8.DecodeRune(body[i:])
				if r == utf8.RuneError && n == 1 {
					fix(i, 1)
				}
				i += n
			}
		}
		i++
	}
	if len(marks) == 0 {
		return body, nil, sentinel
	}
	return fixed, marks, sentinel
}

var (
	oracleNoNumber  = regexp.MustCompile(`^(?i)[-+]?(nan|infinity|inf)`)
	oracleEscape    = regexp.MustCompile(`^\\(["\\/bfnrt]|u[0-9a-fA-F]{4})`)
	oracleEscapeCut = regexp.MustCompile(`^\\(u[0-9a-fA-F]{0,3})?$`)
)

// span is the place of an item in the body. An open span has no end.
type span struct {
	from, to int
	open     bool
}

// outside reports whether a mark before a position lies in no item.
func (o *oracle) outside(before int) bool {
	return slices.ContainsFunc(o.marks, func(mark int) bool {
		return mark < before && !slices.ContainsFunc(o.spans,
			func(s span) bool { return mark >= s.from && (s.open || mark < s.to) })
	})
}

// bad reports whether a value had to be repaired.
func (o *oracleItem) bad(raw []byte) bool {
	return o.repaired && raw[0] == '"' && bytes.IndexByte(raw, o.sentinel) >= 0
}
