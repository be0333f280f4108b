package exportapi

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"unicode/utf8"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/exportapi/jsonpointer"
)

// cursorPart is the part of a page that names the next page.
type cursorPart struct {
	*part
	url   bool       // the cursor is a next URL
	found scan.Value // as the page has it
	// text is the decoded value, valid until the next page, and empty if the value is null
	// or absent. number is set if the value is an integer.
	text    []byte
	number  bool
	scratch []byte // the memory of a text with escapes
}

// forget drops the cursor of the page before.
func (c *cursorPart) forget() { c.found, c.text, c.number = scan.Value{}, nil, false }

// take decodes the value that was found. It refuses an inexact one: a replacement character
// or a rounded number would make another cursor.
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
		// This is not the end: more may follow, and the same page would be requested forever.
		return d.cursor.fault("the last item has no %s", d.cursor)
	}
	return nil
}

// pageReader decodes pages and finds their next cursors.
type pageReader struct {
	cfg      *Config
	requests *requests
	faults   *faults
	decoders *decoders
	simple   string // the member of a simple page with the cursor, "" if pages are not simple
	nothing  []byte // a page without items, which replaces an empty body
	// listed is set once a page had an array of items, which proves EXPORT_ITEMS_FIELD
	// right.
	listed atomic.Bool

	// Owned by the goroutine that calls next.
	scratch []byte   // the memory of a cursor that is being decoded
	told    bool     // a page has said whether more results follow
	lacking []string // see Inspector.Lacking
}

// init prepares the pageReader of a valid configuration.
func (r *pageReader) init(cfg *Config, requests *requests, faults *faults, decoders *decoders) {
	r.cfg, r.requests, r.faults, r.decoders = cfg, requests, faults, decoders
	path, err := jsonpointer.Path(cfg.CursorField)
	if err == nil && len(path) == 1 && cfg.cursorIn() == inBody && cfg.MoreField == "" && cfg.ItemsField != rootField &&
		!cfg.posts() {
		r.simple = path[0]
	}
	r.nothing = pageAround(cfg.ItemsField, nil)
}

// lookout inspects a page between decoding and the reuse of its decoder.
type lookout func(d *pageDecoder)

// next sets the cursor of a page. It finds the cursor of a simple page at the end of the
// body. It decodes any other page, and a page that seems to end the results, which may say
// otherwise elsewhere. look, if not nil, gets the decoder of a decoded page.
func (r *pageReader) next(p *bridge.Page, asked *url.URL, h http.Header, look lookout) *bridge.Fault {
	if r.simple != "" {
		if cursor, ok := scan.TailCursor(p.Body, r.simple, r.scratch[:0]); ok && len(cursor) > 0 {
			p.Next = string(cursor)
			r.scratch = cursor[:0]
			return nil
		}
	}
	d := r.decoders.borrow()
	defer r.decoders.giveBack(d)
	fault := d.fill(p)
	if fault == nil {
		fault = r.follow(p, d, asked, h)
	}
	if fault == nil {
		fault = r.unlisted(p, d)
	}
	if fault == nil && look != nil {
		look(d)
	}
	return fault
}

// decode decodes a page whose cursor is known. It may run concurrently with next.
func (r *pageReader) decode(p *bridge.Page) *bridge.Fault {
	d := r.decoders.borrow()
	defer r.decoders.giveBack(d)
	fault := d.fill(p)
	if fault == nil {
		fault = r.unlisted(p, d)
	}
	if fault == nil && r.simple != "" && string(d.cursor.text) != p.Next {
		fault = schemaFault(fmt.Errorf("%w: the cursor at its end differs from the parsed one", errNoPage))
	}
	return fault
}

// follow sets the cursor of a decoded page, wherever the cursor is.
func (r *pageReader) follow(p *bridge.Page, d *pageDecoder, asked *url.URL, h http.Header) *bridge.Fault {
	if fault := r.untold(p, d); fault != nil || d.ended {
		return fault
	}
	next, fault := r.named(p, d, asked, h)
	if fault != nil {
		return fault
	}
	if d.told && (next == "" || next == p.At.Cursor) {
		return schemaFault(d.more.fault("%s says that more results follow, but the page names no other cursor", d.more))
	}
	switch p.Next = next; {
	case next != "":
	case p.At.Cursor != "":
		p.Unread = nextlink.Follows(p.Body)
	case p.Items > 0:
		p.Unread = r.unread(p, d, h)
	}
	return nil
}

// unread returns what looks like a next cursor on a first page that names no next page. If
// the page has the member of the cursor, only a member that says that more follow counts.
func (r *pageReader) unread(p *bridge.Page, d *pageDecoder, h http.Header) bridge.Unread {
	items, there := p.Items, d.cursor.part != nil && d.cursor.seen
	if there || p.At.Start != 0 || p.At.End != 0 || len(r.cfg.Events) > 0 {
		items = 0
	}
	u := nextlink.Unread(p.Body, h, items)
	if there && u.Says == "" {
		return bridge.Unread{}
	}
	return u
}

// untold judges a page by whether it says that more results follow. Some APIs omit the
// member if it is false. If no page had the member, it may have another name. Then the
// cursor decides, and a first page is rejected unless it has a cursor and the member marks
// the end.
func (r *pageReader) untold(p *bridge.Page, d *pageDecoder) *bridge.Fault {
	switch {
	case d.more == nil, bytes.Equal(p.Body, r.nothing):
	case d.told:
		r.told = true
	case r.told:
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
func (r *pageReader) named(
	p *bridge.Page, d *pageDecoder, asked *url.URL, h http.Header,
) (next string, fault *bridge.Fault) {
	var err error
	switch r.cfg.cursorIn() {
	case inLastItem:
		err = d.lastCursor(p.Events)
	case inHeader:
		next, err = cursorHeader(h, r.cfg.CursorField)
	case inLink:
		var empty bool
		switch next, empty, err = nextlink.Next(h); {
		case err != nil:
			err = &partError{err.Error(), inSetting}
		case empty && p.Items < r.cfg.PageSize && (p.At.Cursor != "" || !r.cfg.AnyOrder):
			next = "" // behind the first page of a window, the next one shows that the API has other pages
		}
	case inPage, inOffset:
		if next, err = r.cfg.nextNumber(p.At.Cursor, p.Items); err == nil {
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
	case r.cfg.leads():
		return r.nextURL(next, p.At, asked)
	case r.cfg.posts() && !d.cursor.number:
		return nextlink.Quote(next), nil
	}
	return next, nil
}

// cursorHeader returns the only value of a header.
func cursorHeader(h http.Header, name string) (string, error) {
	values := h.Values(name)
	for _, v := range values {
		if v != values[0] {
			return "", &partError{fmt.Sprintf("header %s occurs %d times with different values", name, len(values)),
				cursorSetting}
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
