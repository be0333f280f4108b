package exportapi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/exportapi/jsonpointer"
)

// PageMapping configures where a page has its next cursor and what marks the last page. Its
// zero value means the defaults.
type PageMapping struct {
	CursorIn      string `env:"EXPORT_CURSOR_IN" stream:"yes" values:"body,header,last-item,next-url,link,page-number,offset" desc:"where the next cursor is: a member of the body, a response header, a member of the last item, a next URL in the body, or the Link header with rel=next; or pages are numbered, or begin at an offset, which requires EXPORT_FOLLOW=windows"`
	CursorFirst   string `env:"EXPORT_CURSOR_FIRST" stream:"yes" desc:"number of the first page, or the first offset; empty for 1 with EXPORT_CURSOR_IN=page-number, and 0 with offset" example:"0"`
	MoreField     string `env:"EXPORT_MORE_FIELD" stream:"yes" desc:"member or JSON pointer of the page that is true while more results follow, with ! in front while none follow; empty for none" example:"has_more"`
	EmptyBodyEnds bool   `env:"EXPORT_EMPTY_BODY_ENDS" stream:"yes" desc:"take a response with status 200 and an empty body, or with no EXPORT_ITEMS_FIELD and no other list, for an empty page that ends the results, as one with status 204; by default it is an error"`
	OnPartial     string `env:"EXPORT_ON_PARTIAL" stream:"yes" values:"retry,ignore" desc:"action for a page that has error, errors, or timed_out or incomplete_results that is true, beside its items: request it again, since items may be missing, or take it as whole"`
	MetadataField string `env:"EXPORT_METADATA_FIELD" stream:"yes" desc:"member of the page with the names of organization, workspace and application, for ce_source and to notice another export; none if the API has none"`
}

// The values of EXPORT_CURSOR_IN.
const (
	inBody     = "body"
	inHeader   = "header"
	inLastItem = "last-item"
	inNextURL  = "next-url"
	inLink     = "link"
	inPage     = "page-number"
	inOffset   = "offset"
)

// The settings of a page, for errors.
const (
	itemsSetting  = "EXPORT_ITEMS_FIELD"
	cursorSetting = "EXPORT_CURSOR_FIELD"
	inSetting     = "EXPORT_CURSOR_IN"
	moreSetting   = "EXPORT_MORE_FIELD"
	metaSetting   = "EXPORT_METADATA_FIELD"
)

const (
	// rootField is the value of EXPORT_ITEMS_FIELD for a page that is the array
	// of items.
	rootField = "root"
	// defaultCursorField is the default of EXPORT_CURSOR_FIELD: a member of the body.
	defaultCursorField             = "nextCursor"
	partialRetried, partialIgnored = "retry", "ignore" // of EXPORT_ON_PARTIAL
)

func (p *PageMapping) cursorIn() string { return cmp.Or(p.CursorIn, inBody) }
func (p *PageMapping) metadata() string { return cmp.Or(p.MetadataField, metadataField) }

// leads reports whether the next page is named by a URL.
func (p *PageMapping) leads() bool { return p.cursorIn() == inNextURL || p.cursorIn() == inLink }

// Numbered reports whether pages have numbers or offsets in place of cursors. A number is
// valid for one listing only: an item that is listed late, or deleted, moves the items
// after it.
func (p *PageMapping) Numbered() bool { return p.cursorIn() == inPage || p.cursorIn() == inOffset }

// Overlaps reports whether a page begins with the last item of the page before.
func (p *PageMapping) Overlaps() bool { return p.cursorIn() == inOffset }

// FirstNumber returns the number of the first page, or the first offset, if pages are
// Numbered.
func (p *PageMapping) FirstNumber() string {
	if p.Overlaps() {
		return cmp.Or(p.CursorFirst, "0")
	}
	return cmp.Or(p.CursorFirst, "1")
}

// nextNumber returns the cursor after a page of so many items, or "" at the end. A page at
// an offset begins with the last item of the page before, which shows whether the list has
// moved. A page without any other item is the end.
func (p *PageMapping) nextNumber(cursor string, items int) (string, error) {
	step := 1
	if p.Overlaps() {
		step = items - 1
	}
	n, err := strconv.Atoi(cmp.Or(cursor, p.FirstNumber()))
	if err != nil {
		return "", &partError{fmt.Sprintf("cursor %q is no number", cursor), inSetting}
	}
	if items == 0 || p.Overlaps() && items == 1 && cursor != "" {
		return "", nil
	}
	return strconv.Itoa(n + step), nil
}

// checkPages reports all problems of the settings of a page.
func (c *Config) checkPages(p *bridge.Problems) {
	in := c.cursorIn()
	p.Check(c.ItemsField != "", itemsSetting, "is empty, for example items")
	p.Check(c.CursorField != "" || in == inLink || c.Numbered(), cursorSetting, "is empty, for example nextCursor")
	p.Check(c.MoreField != "!", moreSetting, "\"!\" names no member, for example !done")
	field, ends := strings.CutPrefix(c.MoreField, "!")
	p.Check(!nextlink.Contradicts(field, ends), moreSetting,
		"%q: by its name, it says the opposite: ! is for a member that is true while none follow; "+
			"write it as a pointer, with / in front of its name, if the name is wrong", c.MoreField)
	if first := c.CursorFirst; first != "" {
		n, err := strconv.Atoi(first)
		p.Check(err == nil && n >= 0 && c.Numbered(), "EXPORT_CURSOR_FIRST",
			"%q: must be a number, for EXPORT_CURSOR_IN=page-number or offset", first)
	}
	switch in {
	case inHeader:
		p.Check(isToken(c.CursorField) && c.CursorField != defaultCursorField, cursorSetting,
			"%q is not the name of a header, for example X-Next-Cursor", c.CursorField)
	case inLastItem:
		p.Check(strings.HasPrefix(c.CursorField, "/"), cursorSetting,
			"%q is not a JSON pointer inside the last item, for example /id", c.CursorField)
	case inOffset:
		p.Check(c.PageSize > 1, "EXPORT_PAGE_SIZE", "must be at least 2 with EXPORT_CURSOR_IN=offset: "+
			"a page begins with the last item of the page before")
		fallthrough
	case inPage:
		p.Check(c.CursorField == "" || c.CursorField == defaultCursorField, cursorSetting,
			"%q names a next cursor, but with EXPORT_CURSOR_IN=%s pages have numbers; leave it empty", c.CursorField, in)
	case inLink:
		p.Check(c.CursorField == "" || c.CursorField == defaultCursorField, cursorSetting,
			"%q names another next cursor than the Link header of EXPORT_CURSOR_IN=link; set only one", c.CursorField)
	}
	if c.ItemsField == rootField {
		p.Check(in != inBody && in != inNextURL, inSetting,
			"%s is a member of the page, but with EXPORT_ITEMS_FIELD=root the page is the array of items; "+
				"set header, last-item or link", in)
		p.Check(c.MoreField == "", moreSetting,
			"%q is a member of the page, but with EXPORT_ITEMS_FIELD=root the page is the array of items", c.MoreField)
	}
	p.Check(!c.leads() || !c.posts(), "EXPORT_METHOD",
		"is POST, but a next URL (EXPORT_CURSOR_IN=%s) is requested by GET; "+
			"set EXPORT_METHOD=GET, or EXPORT_CURSOR_IN=body, header or last-item", in)
	p.Check(!strings.HasPrefix(c.MetadataField, "/"), metaSetting,
		"%q is a JSON pointer, not a member, for example metadata", c.MetadataField)
	if c.ItemsField != "" {
		p.Add(new(pageDecoder).layOut(c.mapping()))
	}
}

// part is a member of the page that a setting selects, or that contains such a member. A
// part that occurs twice is rejected: the choice between the two could end the export.
type part struct {
	name string
	// field and setting select the part. Errors name them.
	field, setting string
	// read reads the value at i and returns the position after it. It is nil if the part
	// only contains others.
	read func(d *pageDecoder, i int) (int, error)
	// parts are the parts inside this one.
	parts []*part
	// negated is set if true means that nothing follows.
	negated bool
	seen    bool
}

// part returns the part inside with this name; nil if no setting needs the member.
func (p *part) part(name scan.Value) *part {
	for _, inside := range p.parts {
		if name.Is(inside.name) {
			return inside
		}
	}
	return nil
}

// String names the part in errors.
func (p *part) String() string {
	if p.field == "" {
		return "it"
	}
	return "member " + strconv.Quote(p.field)
}

// partError is the error of a page that lacks what a setting selects.
type partError struct{ text, setting string }

func (p *partError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("%v: %s (%s)", errNoPage, p.text, p.setting), " ()")
}

func (p *partError) Unwrap() error { return errNoPage }

// fault returns the error of a page on which the part is wrong.
func (p *part) fault(format string, args ...any) error {
	return &partError{fmt.Sprintf(format, args...), p.setting}
}

// layOut builds the parts of a page. Its error has all problems of the fields.
func (d *pageDecoder) layOut(m *mapping) error {
	var p bridge.Problems
	add := func(to *part, field, setting string, read func(*pageDecoder, int) (int, error)) *part {
		leaf, err := d.add(to, field, setting, read)
		if err != nil {
			p.Add(bridge.Problemf(setting, "%q %s", field, err.Error()))
			return &part{}
		}
		return leaf
	}
	if m.items == rootField {
		d.page.setting, d.page.read = itemsSetting, (*pageDecoder).readItems
		d.items = &d.page
	} else {
		d.items = add(&d.page, m.items, itemsSetting, (*pageDecoder).readItems)
	}
	switch in := m.cursorIn(); in {
	case inBody, inNextURL:
		d.cursor.url = in == inNextURL
		if m.cursor != "" && m.items != rootField {
			d.cursor.part = add(&d.page, m.cursor, cursorSetting, (*pageDecoder).readCursor)
		}
	case inLastItem:
		d.last = &part{field: "the last item", setting: cursorSetting}
		d.cursor.part = add(d.last, m.cursor, cursorSetting, (*pageDecoder).readCursor)
	}
	if field, negated := strings.CutPrefix(m.MoreField, "!"); m.MoreField != "" && m.items != rootField {
		d.more = add(&d.page, field, moreSetting, (*pageDecoder).readMore)
		d.more.negated = negated
	}
	switch field, meta := m.metadata(), d.page.named(m.metadata()); {
	case d.page.read != nil || field == none: // an array has no members
	case meta == nil:
		add(&d.page, field, "", (*pageDecoder).readMetadata)
	case meta.read == nil:
		meta.read = (*pageDecoder).readMetadata // beside the parts inside
	case field != metadataField: // the default need not exist
		p.Add(bridge.Problemf(metaSetting, "%q is the member of %s", field, meta.setting))
	}
	return p.Err()
}

// add adds the part that a field selects, and the parts that contain it.
func (d *pageDecoder) add(to *part, field, setting string, read func(*pageDecoder, int) (int, error)) (*part, error) {
	names, err := jsonpointer.Path(field)
	if err != nil {
		return nil, err
	}
	at := to
	for i, name := range names {
		next := at.named(name)
		if next == nil {
			next = &part{name: name, field: field, setting: setting}
			if i < len(names)-1 {
				next.field = "/" + strings.Join(names[:i+1], "/")
			}
			at.parts = append(at.parts, next)
			d.parts = append(d.parts, next)
		} else if next.read != nil || i == len(names)-1 {
			return nil, errors.New("and " + next.setting + " select members that overlap")
		}
		at = next
	}
	at.read = read
	return at, nil
}

// pageAround returns a page with one item at a valid field.
func pageAround(field string, item []byte) []byte {
	list := slices.Concat([]byte("["), item, []byte("]"))
	if field == rootField {
		return list
	}
	return jsonpointer.Wrap(field, list)
}

func (p *part) named(name string) *part {
	return p.part(scan.Value{Kind: scan.String, Raw: []byte(name)})
}
