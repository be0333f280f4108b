package scan

import "bytes"

// TailCursor finds the next cursor at the end of a page, its usual place, without reading
// the items: parsing a page of 1 MB takes longer than a request on a fast link.
//
// From the closing brace it goes back over one value, which must be a string or null, a
// colon, and one name, which must be field. In a valid document the last brace closes the
// top-level object. A quote before that brace closes a string, and the nearest quote
// without a backslash opens that string. So TailCursor finds the last member of the top
// level, never a decoy inside an item, a string or the metadata. In an invalid document it
// may find anything. The later parse refuses such a document, and one with the member
// twice.
//
// Any other layout is not ok. The cursor is appended to scratch; null appends nothing.
func TailCursor(body []byte, field string, scratch []byte) (cursor []byte, ok bool) {
	rest, ok := cutLast(body, '}')
	if !ok {
		return nil, false
	}
	rest = trimRight(rest)
	last := Value{Kind: Null}
	if literal, isString := lastString(rest); isString {
		rest = rest[:len(rest)-len(literal)]
		last = stringIn(literal)
	} else if rest, ok = bytes.CutSuffix(rest, []byte("null")); !ok {
		return nil, false
	}
	if rest, ok = cutLast(rest, ':'); !ok {
		return nil, false
	}
	rest = trimRight(rest)
	name, ok := lastString(rest)
	if !ok || !stringIn(name).Is(field) {
		return nil, false
	}
	rest = trimRight(rest[:len(rest)-len(name)])
	if !bytes.HasSuffix(rest, []byte(",")) && !bytes.HasSuffix(rest, []byte("{")) {
		return nil, false
	}
	return last.appendCursor(scratch)
}

// cutLast removes trailing white space and then the character.
func cutLast(b []byte, char byte) ([]byte, bool) {
	b = trimRight(b)
	if len(b) == 0 || b[len(b)-1] != char {
		return b, false
	}
	return b[:len(b)-1], true
}

func trimRight(b []byte) []byte { return bytes.TrimRight(b, " \t\r\n") }

// lastString returns the JSON string at the end of b, quotes included.
func lastString(b []byte) ([]byte, bool) {
	end := len(b) - 1
	if end < 1 || b[end] != '"' {
		return nil, false
	}
	for open := end; ; {
		open = bytes.LastIndexByte(b[:open], '"')
		if open < 0 {
			return nil, false
		}
		// Inside a string each quote has a backslash before it. Before the
		// quote that opens the string, JSON allows none.
		if open == 0 || b[open-1] != '\\' {
			return b[open:], true
		}
	}
}
