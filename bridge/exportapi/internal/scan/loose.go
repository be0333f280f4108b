package scan

// Loosen makes the scanner pass over text that is none, where the bounds of a
// value are certain all the same, from a depth that Level returned: any byte in
// a string but its closing quote, and NaN and Infinity. Such a value is Bad.
func (s *Scanner) Loosen(level int) { s.depth, s.loose = level, true }

// Tighten ends what Loosen began.
func (s *Scanner) Tighten() { s.loose = false }

// Level returns the depth of the position.
func (s *Scanner) Level() int { return s.depth }

// anyString continues a string that was refused at i. A backslash belongs to the
// byte behind it.
func (s *Scanner) anyString(i int) (end int, ok bool) {
	if !s.loose {
		return i, false
	}
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

// noNumbers are what programs write for numbers that JSON does not have, the
// longest first.
var noNumbers = [...]string{"infinity", "inf", "nan"}

// anyNumber passes over the word at i, which was refused at failed.
func (s *Scanner) anyNumber(i, failed int) (end int, ok bool) {
	if !s.loose {
		return failed, false
	}
	if s.Body[i] == '-' || s.Body[i] == '+' {
		i++
	}
	for _, word := range noNumbers {
		if end = i + len(word); end <= len(s.Body) && equalFold(s.Body[i:end], word) {
			return end, true
		}
	}
	return failed, false
}

// equalFold compares ASCII letters with a word in small letters.
func equalFold(b []byte, word string) bool {
	for i, c := range b {
		if c|0x20 != word[i] {
			return false
		}
	}
	return true
}
