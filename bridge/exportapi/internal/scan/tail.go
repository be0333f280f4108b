package scan

import "bytes"

// TailCursor finds the next cursor of a page that ends in it, without reading
// the items: the usual layout, and the parse of a page of 1 MB costs more than
// its request on a fast link.
//
// It walks back from the closing brace over one value, which must be a string
// or null, a colon, and one name, which must be the field's. In a valid
// document the last brace closes the top-level object, a quote before it
// closes a string, and the quote that opens this string is the nearest one
// without a backslash. So what it finds is the last member of the top level,
// never a decoy inside an item, a string or the metadata. In an invalid
// document it may find anything; the parse refuses that document, as it does
// one with the member twice.
//
// Any other layout is not ok. The cursor is appended to scratch, nothing for null.
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
		// Inside a string every quote has a backslash before it; before the
		// quote that opens it JSON allows none.
		if open == 0 || b[open-1] != '\\' {
			return b[open:], true
		}
	}
}
