package exportapi

// maxDepth is the nesting limit of objects and arrays, the page's own object
// included.
const maxDepth = 10_000

// scanner checks a JSON document (RFC 8259) from left to right, each byte
// once, and hands out values as slices of it. It allocates nothing, and a level
// of nesting costs it a bit, not a call, so that no document can exhaust the
// stack.
//
// Its functions take the position where something begins and return the one
// behind it, with ok. Without ok they return the position of the first byte
// that cannot be there; if that is the end, the document was cut short.
//
// It is strict but for two things that consumers may judge for themselves: an
// object may have a name twice, and an escape may name half a character.
type scanner struct {
	body []byte
	// depth counts the objects and arrays around the position.
	depth int
	// objects has a bit for each depth that skip went down to, set for an
	// object.
	objects [maxDepth/64 + 1]uint64
}

// reset starts a document.
func (s *scanner) reset(body []byte) { s.body, s.depth = body, 0 }

// kindAt returns the kind of the value at i by its first byte.
func (s *scanner) kindAt(i int) kind {
	if i >= len(s.body) {
		return kindNone
	}
	return kinds[s.body[i]]
}

// read checks the value at i and returns it.
func (s *scanner) read(i int) (v value, end int, ok bool) {
	kind := s.kindAt(i)
	if kind == kindString {
		return s.readString(i)
	}
	if end, ok = s.skip(i); ok {
		v = value{raw: s.body[i:end:end], kind: kind}
	}
	return v, end, ok
}

// readString checks the string with its opening quote at i and returns it.
func (s *scanner) readString(i int) (v value, end int, ok bool) {
	b, start := s.body, i+1
	if i = skipPlain(b, start); i < len(b) && b[i] == '"' {
		return value{raw: b[start:i:i], kind: kindString}, i + 1, true
	}
	end, escaped, ok := skipString(b, i)
	if ok {
		v = value{raw: b[start : end-1 : end-1], kind: kindString}
	}
	if escaped {
		v.kind = kindEscaped
	}
	return v, end, ok
}

// skip checks the value at i.
func (s *scanner) skip(i int) (end int, ok bool) {
	b, depth := s.body, s.depth
	closer := byte(0) // ends the innermost object or array
	atName := false   // a member begins at i, not a value
	for i < len(b) {
		switch c := b[i]; {
		case c == '"':
			// A call less for strings without escapes: nearly all.
			if i = skipPlain(b, i+1); i < len(b) && b[i] == '"' {
				i++
			} else if i, _, ok = skipString(b, i); !ok {
				return i, false
			}
			if atName {
				if i, ok = skipColon(b, i); !ok {
					return i, false
				}
				atName = false
				continue
			}
		case atName:
			return i, false
		case c == '{' || c == '[':
			if depth == maxDepth {
				return i, false
			}
			if i = skipSpace(b, i+1); i < len(b) && b[i] == closerOf(c) {
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
		// A value has ended, and with it perhaps what it is the last of.
		for {
			if depth == s.depth {
				return i, true
			}
			if i = skipSpace(b, i); i >= len(b) {
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
		i = skipSpace(b, i+1)
		atName = closer == '}'
	}
	return i, false
}

// closerOf returns the closing character of an opening one: in ASCII both pairs
// have the same distance.
func closerOf(opener byte) byte { return opener + '}' - '{' }

// enter records the closing character at this depth.
func (s *scanner) enter(depth int, closer byte) {
	bit := uint64(1) << (depth % 64)
	if closer == '}' {
		s.objects[depth/64] |= bit
	} else {
		s.objects[depth/64] &^= bit
	}
}

// closer returns the closing character at an entered depth.
func (s *scanner) closer(depth int) byte {
	if s.objects[depth/64]>>(depth%64)&1 != 0 {
		return '}'
	}
	return ']'
}

// step is how an object or array continues.
type step uint8

const (
	broken step = iota
	ended
	more
)

// open enters the object or array at i: to its first member or element, or past
// it if it is empty.
func (s *scanner) open(i int) (int, step) {
	if s.depth == maxDepth {
		return i, broken
	}
	closer := closerOf(s.body[i])
	if i = skipSpace(s.body, i+1); i < len(s.body) && s.body[i] == closer {
		return i + 1, ended
	}
	s.depth++
	return i, more
}

// next moves from the end of a member or element to the next one, or past the
// closing character.
func (s *scanner) next(i int, closer byte) (int, step) {
	i = skipSpace(s.body, i)
	switch {
	case i >= len(s.body):
		return i, broken
	case s.body[i] == ',':
		return skipSpace(s.body, i+1), more
	case s.body[i] == closer:
		s.depth--
		return i + 1, ended
	}
	return i, broken
}

// name reads the member name at i. Another value is checked before it is
// rejected: if the document ends in it, it is truncated.
func (s *scanner) name(i int) (v value, end int, ok bool) {
	if s.kindAt(i) == kindString {
		return s.readString(i)
	}
	if end, ok = s.skip(i); ok {
		end = i
	}
	return value{}, end, false
}

// skipColon moves from the end of a name to its value.
func skipColon(b []byte, i int) (int, bool) {
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != ':' {
		return i, false
	}
	return skipSpace(b, i+1), true
}

// skipSpace returns the position of the first byte from i on that is not
// white space.
func skipSpace(b []byte, i int) int {
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
		i++ // a digit behind it is an error of what follows
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

// skipDigits skips at least one digit. Byte by byte is faster than eight at a
// time, where the position waits for the load.
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
