package scan

import "strings"

// Loosen makes the scanner accept values that are no text but have a certain end: strings
// with any bytes, NaN and Infinity. Such a value is Bad. level is the depth of the
// position, see Level. A loose scanner needs a call for each level of nesting.
func (s *Scanner) Loosen(level int) { s.depth, s.mode = level, loose }

// Tighten ends what Loosen began.
func (s *Scanner) Tighten() {
	if s.mode = strict; s.notes != nil {
		s.mode = noting
	}
}

// Level returns the depth of the position.
func (s *Scanner) Level() int { return s.depth }

// skipLoose is Skip for a loose scanner.
func (s *Scanner) skipLoose(i int) (end int, ok bool) {
	switch kind := s.KindAt(i); {
	case i >= len(s.Body):
		return i, false
	case kind == String:
		_, end, ok = s.readString(i)
		return end, ok
	case kind == Object || kind == Array:
		return s.skipNest(i, kind == Object)
	case s.isBad(i):
		return i + s.noNumber(i), true
	case kind == Number:
		return skipNumber(s.Body, i)
	}
	return skipLiteral(s.Body, i)
}

// skipNest skips the object or array at i.
func (s *Scanner) skipNest(i int, object bool) (end int, ok bool) {
	closer := closerOf(s.Body[i])
	i, step := s.Open(i)
	for step == More {
		if object {
			if s.KindAt(i) != String { // refuse it where it begins
				return i, false
			}
			if _, i, ok = s.readString(i); !ok {
				return i, false
			}
			if i, ok = SkipColon(s.Body, i); !ok {
				return i, false
			}
		}
		if i, ok = s.skipLoose(i); !ok {
			return i, false
		}
		i, step = s.Next(i, closer)
	}
	return i, step == Ended
}

// anyString continues a string that was refused at i. A backslash escapes any byte.
func (s *Scanner) anyString(i int) (end int, ok bool) {
	for ; i < len(s.Body); i++ {
		switch s.Body[i] {
		case '"':
			return i + 1, true
		case '\\':
			i++
		}
	}
	return len(s.Body), false
}

// noNumbers are what programs write for numbers that JSON does not have. The longest come
// first.
var noNumbers = [...]string{"infinity", "inf", "nan"}

// isBad reports whether one of noNumbers is at i.
func (s *Scanner) isBad(i int) bool { return s.noNumber(i) > 0 }

// noNumber returns the length of the one at i, sign included, or 0.
func (s *Scanner) noNumber(i int) int {
	b := s.Body[i:]
	sign := 0
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		sign = 1
	}
	for _, word := range noNumbers {
		if b := b[sign:]; len(b) >= len(word) && strings.EqualFold(string(b[:len(word)]), word) {
			return sign + len(word)
		}
	}
	return 0
}
