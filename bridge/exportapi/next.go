package exportapi

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"unicode/utf8"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/scan"
)

// cursorPart is the part of a page that names the next one.
type cursorPart struct {
	*part
	url   bool       // it is a next URL
	found scan.Value // as the page has it
	// text is what it says, valid until the next page; null, absent and empty
	// are the same. number is set for an integer, in its digits.
	text    []byte
	number  bool
	scratch []byte // holds a text that had escapes
}

// forget drops the cursor of the page before.
func (c *cursorPart) forget() { c.found, c.text, c.number = scan.Value{}, nil, false }

// take reads the value that was found. It must decode exactly: a replacement
// character would make another cursor, and so would a rounded number.
func (c *cursorPart) take() error {
	want := "a string, an integer or null"
	if c.url {
		want = "a string or null"
	}
	switch v := c.found; {
	case v.Kind == scan.None, v.Kind == scan.Null:
	case v.Kind == scan.String:
		c.text = v.Raw
	case v.Kind == scan.Escaped:
		var exact bool
		if c.scratch, exact = scan.AppendUnescaped(c.scratch[:0], v.Raw); !exact {
			return c.fault("%s does not decode exactly", c)
		}
		c.text = c.scratch
	case v.Kind == scan.Number && !c.url:
		if !nextlink.IsInteger(v.Raw) {
			return c.fault("%s is a number with a fraction or exponent or minus zero, not %s", c, want)
		}
		c.text, c.number = v.Raw, true
	default:
		return c.fault("%s is %s, not %s", c, v.Kind, want)
	}
	return nil
}

// lastCursor reads the cursor in the last item of a page.
func (d *pageDecoder) lastCursor(events []bridge.Event) error {
	if len(events) == 0 {
		return nil
	}
	last := &events[len(events)-1]
	if d.scan.Reset(last.Raw); last.Defect == bridge.DefectBadText {
		d.scan.Loosen(0)
	}
	defer d.scan.Reset(nil)
	if _, err := d.part(0, d.last); err != nil {
		return err
	}
	if err := d.cursor.take(); err != nil {
		return err
	}
	if len(d.cursor.text) == 0 {
		// Not the end: more may follow, and the same page would come forever.
		return d.cursor.fault("the last item has no %s", d.cursor)
	}
	return nil
}

// follow sets the cursor of a page that has arrived and is decoded: the general
// form of next, for every place of a cursor.
func (c *Client) follow(p *bridge.Page, asked *url.URL, h http.Header) *bridge.Fault {
	d := c.ahead
	if fault := c.untold(p); fault != nil || d.ended {
		return fault
	}
	next, fault := c.named(p, asked, h)
	if fault != nil {
		return fault
	}
	if d.told && (next == "" || next == p.At.Cursor) {
		return schemaFault(d.more.fault("%s says that more results follow, but the page names no other cursor", d.more))
	}
	if p.Next = next; next == "" && p.At.Cursor == "" && p.Items > 0 {
		p.Unread = c.unread(p, h)
	}
	return nil
}

// unread returns what a first page without a next one has of one. Where the member
// of the cursor is there, only a member that says that more follow counts.
func (c *Client) unread(p *bridge.Page, h http.Header) bridge.Unread {
	items, there := p.Items, c.ahead.cursor.part != nil && c.ahead.cursor.seen
	if there || p.At.Start != 0 || p.At.End != 0 || len(c.cfg.Events) > 0 {
		items = 0
	}
	u := nextlink.Unread(p.Body, h, items)
	if there && u.Says == "" {
		return bridge.Unread{}
	}
	return u
}

// untold judges a page that may not say whether more results follow. Some APIs
// leave out what is false. But a member that was never there may have another
// name: then the cursor decides, and the first page is refused unless a cursor
// leads on and false means that more follows.
func (c *Client) untold(p *bridge.Page) *bridge.Fault {
	d := c.ahead
	switch {
	case d.more == nil, bytes.Equal(p.Body, c.nothing):
	case d.told:
		c.told = true
	case c.told:
		d.ended = !d.more.negated
	case p.At.Cursor != "" || d.more.negated && d.cursor.part != nil && len(d.cursor.text) > 0:
	case d.more.seen:
		return schemaFault(d.more.fault("%s is null, not a boolean", d.more))
	default:
		return schemaFault(d.more.fault("it has no %s", d.more))
	}
	return nil
}

// named returns the cursor that a decoded page names.
func (c *Client) named(p *bridge.Page, asked *url.URL, h http.Header) (next string, fault *bridge.Fault) {
	d, err := c.ahead, error(nil)
	switch c.cfg.cursorIn() {
	case inLastItem:
		err = d.lastCursor(p.Events)
	case inHeader:
		next, err = cursorHeader(h, c.cfg.CursorField)
	case inLink:
		if next, err = nextlink.Next(h); err != nil {
			err = &partError{err.Error(), inSetting}
		}
	case inPage, inOffset:
		if next, err = c.cfg.nextNumber(p.At.Cursor, p.Items); err == nil {
			return next, nil
		}
	}
	if err != nil {
		return "", schemaFault(err)
	}
	if next == "" {
		next = string(d.cursor.text)
	}
	switch {
	case next == "":
		return "", nil
	case c.cfg.leads():
		return c.nextURL(next, p.At, asked)
	case c.cfg.posts() && !d.cursor.number:
		return nextlink.Quote(next), nil
	}
	return next, nil
}

// cursorHeader returns the only value of a header.
func cursorHeader(h http.Header, name string) (string, error) {
	values := h.Values(name)
	for _, v := range values {
		if v != values[0] {
			return "", &partError{fmt.Sprintf("header %s is there %d times with different values", name, len(values)), cursorSetting}
		}
		if !utf8.ValidString(v) {
			return "", &partError{fmt.Sprintf("header %s is not UTF-8", name), cursorSetting}
		}
	}
	if len(values) == 0 {
		return "", nil
	}
	return values[0], nil
}
