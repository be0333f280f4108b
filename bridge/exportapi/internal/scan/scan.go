// Package scan checks JSON documents in one pass, without allocating. Values are slices
// of their document.
package scan

import "bytes"

// MaxDepth is the greatest depth of nested objects and arrays, the page's own object
// included.
const MaxDepth = 10_000

// Scanner checks a JSON document (RFC 8259) from left to right, each byte once, and returns
// values as slices of it. It allocates nothing. A level of nesting takes a bit, not a call,
// so that no document can exhaust the stack.
//
// Its functions take the position at which something begins. They return the position after
// it, and ok. Without ok the position is that of the first invalid byte, or the end of a
// document that was cut short.
//
// The scanner leaves two things to consumers: an object may have a name twice, and an
// escape may be half of a surrogate pair.
type Scanner struct {
	// Body is the document.
	Body []byte
	// depth counts the objects and arrays around the position.
	depth int
	mode  mode
	notes *Extents // of noting
	known Known    // of knowing
	// objects has a bit for each depth that skip entered. The bit is set for an object.
	objects [MaxDepth/64 + 1]uint64
}

// mode is how a scanner reads.
type mode uint8

const (
	strict  mode = iota
	loose        // see Loosen
	noting       // strict, see Note
	knowing      // strict, see Know
)

// Reset starts a document.
func (s *Scanner) Reset(body []byte) {
	s.Body, s.depth, s.mode, s.notes, s.known = body, 0, strict, nil, Known{}
}

// KindAt returns the kind of the value at i by its first byte.
func (s *Scanner) KindAt(i int) Kind {
	if i >= len(s.Body) {
		return None
	}
	return kinds[s.Body[i]]
}

// Read checks the value at i and returns it.
func (s *Scanner) Read(i int) (v Value, end int, ok bool) {
	kind := s.KindAt(i)
	if kind == String {
		return s.readString(i)
	}
	if end, ok = s.Skip(i); ok {
		v = Value{Raw: s.Body[i:end:end], Kind: kind}
		if s.mode == loose && s.isBad(i) {
			v.Kind = Bad
		}
	}
	return v, end, ok
}

// readString checks the string with its opening quote at i and returns it.
func (s *Scanner) readString(i int) (v Value, end int, ok bool) {
	b, start := s.Body, i+1
	if i = skipPlain(b, start); i < len(b) && b[i] == '"' {
		return Value{Raw: b[start:i:i], Kind: String}, i + 1, true
	}
	end, escaped, ok := skipString(b, i)
	if !ok && s.mode == loose {
		if end, ok = s.anyString(end); ok {
			v = Value{Raw: b[start : end-1 : end-1], Kind: Bad}
		}
		return v, end, ok
	}
	if ok {
		v = Value{Raw: b[start : end-1 : end-1], Kind: String}
	}
	if escaped {
		v.Kind = Escaped
	}
	return v, end, ok
}

// Skip checks the value at i.
func (s *Scanner) Skip(i int) (end int, ok bool) {
	if s.mode != strict {
		return s.skipSpecial(i)
	}
	return s.skip(i)
}

// skip is Skip for a strict scanner.
func (s *Scanner) skip(i int) (end int, ok bool) {
	b, depth := s.Body, s.depth
	closer := byte(0) // ends the innermost object or array
	atName := false   // a member begins at i, not a value
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			// Nearly all strings have no escapes. This saves a call.
			if i = skipPlain(b, i+1); i < len(b) && b[i] == '"' {
				i++
			} else if i, _, ok = skipString(b, i); !ok {
				return i, false
			}
			if atName {
				if i, ok = SkipColon(b, i); !ok {
					return i, false
				}
				atName = false
				continue
			}
		case atName:
			return i, false
		case c == '{' || c == '[':
			if depth == MaxDepth {
				return i, false
			}
			if i = SkipSpace(b, i+1); i < len(b) && b[i] == closerOf(c) {
				i++ // empty: a value like a literal
				break
			}
			depth++
			closer = closerOf(c)
			s.enter(depth, closer)
			atName = closer == '}'
			continue
		case c <= '9':
			if i, ok = skipNumber(b, i); !ok {
				return i, false
			}
		default:
			if i, ok = skipLiteral(b, i); !ok {
				return i, false
			}
		}
		// A value has ended. It may be the last one of its object or array.
		for {
			if depth == s.depth {
				return i, true
			}
			if i = SkipSpace(b, i); i >= len(b) {
				return i, false
			}
			if b[i] == ',' {
				break
			}
			if b[i] != closer {
				return i, false
			}
			i++
			depth--
			closer = s.closer(depth)
		}
		i = SkipSpace(b, i+1)
		atName = closer == '}'
	}
	return i, false
}

// closerOf returns the closing character of an opening one. In ASCII both pairs have the
// same distance.
func closerOf(opener byte) byte { return opener + '}' - '{' }

// enter records the closing character at a depth.
func (s *Scanner) enter(depth int, closer byte) {
	bit := uint64(1) << (depth % 64)
	if closer == '}' {
		s.objects[depth/64] |= bit
	} else {
		s.objects[depth/64] &^= bit
	}
}

// closer returns the closing character at an entered depth.
func (s *Scanner) closer(depth int) byte {
	if s.objects[depth/64]>>(depth%64)&1 != 0 {
		return '}'
	}
	return ']'
}

// Step is how an object or array continues.
type Step uint8

// The steps: the document is invalid, the object or array has ended, or it has
// another member or element.
const (
	Broken Step = iota
	Ended
	More
)

// Open enters the object or array at i. It moves to the first member or element, or past an
// empty object or array.
func (s *Scanner) Open(i int) (int, Step) {
	if s.depth == MaxDepth {
		return i, Broken
	}
	closer := closerOf(s.Body[i])
	if i = SkipSpace(s.Body, i+1); i < len(s.Body) && s.Body[i] == closer {
		return i + 1, Ended
	}
	s.depth++
	return i, More
}

// Next moves from the end of a member or element to the next one, or past the
// closing character.
func (s *Scanner) Next(i int, closer byte) (int, Step) {
	i = SkipSpace(s.Body, i)
	switch {
	case i >= len(s.Body):
		return i, Broken
	case s.Body[i] == ',':
		return SkipSpace(s.Body, i+1), More
	case s.Body[i] == closer:
		s.depth--
		return i + 1, Ended
	}
	return i, Broken
}

// Name reads the member name at i.
func (s *Scanner) Name(i int) (v Value, end int, ok bool) {
	if s.KindAt(i) == String {
		return s.readString(i)
	}
	return Value{}, i, false
}

// SkipColon moves from the end of a name to its value.
func SkipColon(b []byte, i int) (int, bool) {
	i = SkipSpace(b, i)
	if i >= len(b) || b[i] != ':' {
		return i, false
	}
	return SkipSpace(b, i+1), true
}

// SkipMark returns the position after a byte order mark, with which a document may begin.
func SkipMark(b []byte) int {
	if bytes.HasPrefix(b, []byte("\ufeff")) {
		return len("\ufeff")
	}
	return 0
}

// SkipSpace returns the position of the first byte from i on that is not white space.
func SkipSpace(b []byte, i int) int {
	const space = 1<<' ' | 1<<'\t' | 1<<'\n' | 1<<'\r'
	for i < len(b) && b[i] <= ' ' && space>>b[i]&1 != 0 {
		i++
	}
	return i
}

// skipNumber checks the number at i.
func skipNumber(b []byte, i int) (end int, ok bool) {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++ // the caller refuses a digit after it
	} else if i, ok = skipDigits(b, i); !ok {
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		if i, ok = skipDigits(b, i+1); !ok {
			return i, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i, true
}

// skipDigits skips at least one digit. One byte at a time is faster than eight: the
// position need not wait for the load.
func skipDigits(b []byte, i int) (end int, ok bool) {
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i, i > start
}

// skipLiteral checks the true, false or null at i and rejects anything else.
func skipLiteral(b []byte, i int) (end int, ok bool) {
	switch b[i] {
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	}
	return i, false
}

func skipWord(b []byte, i int, word string) (end int, ok bool) {
	if end = i + len(word); end <= len(b) && string(b[i:end]) == word {
		return end, true
	}
	for n := 0; i < len(b) && b[i] == word[n]; n++ {
		i++
	}
	return i, false
}
