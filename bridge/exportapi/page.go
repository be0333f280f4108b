package exportapi

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/problem"
	"exportbridge/bridge/exportapi/internal/scan"
)

// metadataField is the default of EXPORT_METADATA_FIELD.
const metadataField = "metadata"

var (
	// errCutShort: the body is truncated. A retry may succeed.
	errCutShort = errors.New("body is truncated")
	// errNoPage: the body is complete but not a page.
	errNoPage = errors.New("body is not a page")
	// errTooMany: the page exceeds maxItems.
	errTooMany = errors.New("page has too many items")
)

// maxItems is the item limit of a page, ten times the page size limit. An event
// takes about as much memory as a hundred bytes of the body, and more in the
// Sink, while an item can be two bytes.
const maxItems = 10 * maxPageSize

// pageDecoder splits pages into events in one pass over the body. It is strict about the
// page: a misread page would look like the end of the results. It is lenient inside items,
// which consumers validate. One goroutine at a time may use it.
type pageDecoder struct {
	scan scan.Scanner
	// page is the whole page. parts are all parts, in the page and in its last item; items
	// and more are two of them. more is nil without EXPORT_MORE_FIELD.
	page        part
	last        *part // the last item; nil if cursors are elsewhere
	parts       []*part
	items, more *part
	cursor      cursorPart
	item        itemReader
	identity    identityReader
	ruled       bool          // by rules for private data
	notes       *scan.Extents // of the page that fill decodes; nil if it is not ruled

	// The decoded page. ended is set if the page says that nothing follows, told if it says
	// whether more follow, listed if it has an array of items, and foreign if it has
	// members that no setting selects.
	events                       []bridge.Event
	ended, told, listed, foreign bool
	errors                       [][]byte // the members of problem.Partial
}

// newPageDecoder returns a decoder of a valid mapping.
func newPageDecoder(m *mapping) *pageDecoder {
	d := &pageDecoder{item: newItemReader(m), identity: newIdentityReader(), ruled: len(m.ruled) > 0}
	_ = d.layOut(m) // validated
	return d
}

// decode splits the body and keeps the result in d. It appends events, which point into the
// body, to events. If events has capacity, only values with escapes need an allocation. The
// error is errCutShort, errNoPage or errTooMany; then the result is invalid.
func (d *pageDecoder) decode(body []byte, events []bridge.Event) error {
	d.forget()
	d.events, d.ended, d.told, d.listed, d.foreign = events, false, false, false, false
	d.item.extra = 0
	for _, p := range d.parts {
		p.seen = false
	}
	d.scan.Reset(body)
	defer d.scan.Reset(nil)
	if d.notes != nil {
		d.notes.Reset()
		d.scan.Note(d.notes)
	}
	err := d.document()
	if err == nil && !d.ended { // a page that ends may have any cursor
		err = d.cursor.take()
	}
	if err != nil && !errors.Is(err, errCutShort) && !utf8.Valid(body) {
		// This says more than the position at which the scanner stopped.
		return fmt.Errorf("%w: invalid UTF-8", errNoPage)
	}
	return err
}

// fill decodes the events, items and source of a page.
func (d *pageDecoder) fill(p *bridge.Page) *bridge.Fault {
	if d.ruled {
		if d.notes, _ = p.Notes.(*scan.Extents); d.notes == nil {
			d.notes = new(scan.Extents)
		}
		p.Notes = d.notes
	}
	err := d.decode(p.Body, p.Events[:0])
	p.Events, d.events, d.notes = d.events, nil, nil
	if err != nil {
		p.Events = p.Events[:0]
		return schemaFault(err)
	}
	p.Items, p.Source = len(p.Events), d.identity.identity()
	p.Extra += d.item.extra
	return nil
}

// forget drops the references to the page before. They would keep its body as long as a
// quiet stream has no next page.
func (d *pageDecoder) forget() {
	d.errors = nil
	d.cursor.forget()
	d.identity.Forget()
	d.item.Forget()
}

// document reads the page and rejects trailing data.
func (d *pageDecoder) document() error {
	i, err := d.part(scan.SkipSpace(d.scan.Body, scan.SkipMark(d.scan.Body)), &d.page)
	if err != nil {
		return err
	}
	if i = scan.SkipSpace(d.scan.Body, i); i < len(d.scan.Body) {
		kind := "object"
		if d.page.read != nil {
			kind = "array"
		}
		return fmt.Errorf("%w: unexpected data after the %s at byte %d", errNoPage, kind, i)
	}
	return nil
}

// part reads the value of a part.
func (d *pageDecoder) part(i int, p *part) (end int, err error) {
	p.seen = true
	if p.read != nil {
		if end, err = p.read(d, i); err != nil || len(p.parts) == 0 {
			return end, err
		}
	}
	switch kind := d.scan.KindAt(i); {
	case kind == scan.Object:
		return d.object(i, p)
	case p != &d.page && (kind == scan.Null || kind == scan.Array && d.emptyArray(i)):
		return d.checked(d.scan.Skip(i)) // as if it were absent
	default:
		return i, d.wrongKind(i, p, kind, "an object")
	}
}

// object reads the parts of an object.
func (d *pageDecoder) object(i int, of *part) (int, error) {
	i, step := d.scan.Open(i)
	for step == scan.More {
		var err error
		if i, err = d.member(i, of); err != nil {
			return i, err
		}
		i, step = d.scan.Next(i, '}')
	}
	return d.checked(i, step == scan.Ended)
}

// member reads one member of an object.
func (d *pageDecoder) member(i int, of *part) (int, error) {
	name, i, ok := d.scan.Name(i)
	if !ok {
		return i, d.refuse(i)
	}
	p := of.part(name)
	if p != nil && p.seen {
		return i, p.fault("%s occurs twice", p)
	}
	if i, ok = scan.SkipColon(d.scan.Body, i); !ok {
		return i, d.refuse(i)
	}
	if p == nil {
		d.foreign = true
		end, ok := d.scan.Skip(i)
		if ok && of == &d.page && problem.Partial(name.Is, d.scan.Body[i:end]) {
			d.errors = append(d.errors, d.scan.Body[i:end])
		}
		return d.checked(end, ok)
	}
	return d.part(i, p)
}

// emptyArray reports whether the array at i is empty. Some languages write an object
// without members as an empty array.
func (d *pageDecoder) emptyArray(i int) bool {
	i = scan.SkipSpace(d.scan.Body, i+1)
	return i < len(d.scan.Body) && d.scan.Body[i] == ']'
}

// readItems reads the array of items. Null counts as an empty array.
func (d *pageDecoder) readItems(i int) (int, error) {
	switch kind := d.scan.KindAt(i); kind {
	case scan.Array:
	case scan.Null:
		return d.checked(d.scan.Skip(i))
	default:
		return i, d.wrongKind(i, d.items, kind, "an array")
	}
	d.listed = true
	i, step := d.scan.Open(i)
	level := d.scan.Level()
	for index := 0; step == scan.More; index++ {
		if index == maxItems {
			return i, errTooMany
		}
		d.events = append(d.events, bridge.Event{Index: index})
		if d.notes != nil {
			d.notes.Item(i)
		}
		start, ok := i, false
		if i, ok = d.event(i, &d.events[len(d.events)-1]); !ok {
			if i, ok = d.badText(start, i, level); !ok {
				return i, d.refuse(i)
			}
		}
		i, step = d.scan.Next(i, ']')
	}
	return d.checked(i, step == scan.Ended)
}

// badText reads the item at i again after it was refused at failed. If only its text is
// broken and its end is certain, the item becomes a dead letter and the page goes on. level
// is the depth of the items.
func (d *pageDecoder) badText(i, failed, level int) (end int, ok bool) {
	e := &d.events[len(d.events)-1]
	d.scan.Loosen(level)
	end, ok = d.event(i, e)
	d.scan.Tighten()
	if !ok && end < len(d.scan.Body) {
		return failed, false
	}
	if e.Defect != bridge.DefectNone {
		e.Time = bridge.NoTime
	}
	e.Defect, e.Route = bridge.DefectBadText, 0
	return end, ok
}

// event reads one item: its bytes and its selected values.
func (d *pageDecoder) event(i int, e *bridge.Event) (end int, ok bool) {
	if d.scan.KindAt(i) != scan.Object {
		e.Defect = bridge.DefectNotObject
		end, ok = d.scan.Skip(i)
	} else if end, ok = d.item.Read(&d.scan, i); ok {
		d.item.fill(e)
	}
	if ok {
		e.Raw = d.scan.Body[i:end:end]
	}
	return end, ok
}

// readCursor reads the cursor, or the next URL.
func (d *pageDecoder) readCursor(i int) (end int, err error) {
	var ok bool
	d.cursor.found, end, ok = d.scan.Read(i)
	return d.checked(end, ok)
}

// readMore reads whether more results follow.
func (d *pageDecoder) readMore(i int) (int, error) {
	v, end, ok := d.scan.Read(i)
	if !ok {
		return end, d.refuse(end)
	}
	if v.Kind == scan.Null { // as if it were absent
		return end, nil
	}
	if v.Kind != scan.Boolean {
		return i, d.wrongKind(i, d.more, v.Kind, "a boolean")
	}
	d.told, d.ended = true, (v.Raw[0] == 't') == d.more.negated
	return end, nil
}

// readMetadata reads the identity of the export. An unexpected shape is ignored.
func (d *pageDecoder) readMetadata(i int) (int, error) {
	if d.scan.KindAt(i) != scan.Object {
		return d.checked(d.scan.Skip(i))
	}
	return d.checked(d.identity.Read(&d.scan, i))
}

// wrongKind returns the error of a value that is of the wrong kind or missing.
func (d *pageDecoder) wrongKind(at int, p *part, got scan.Kind, want string) error {
	if got == scan.None {
		return d.refuse(at)
	}
	return p.fault("%s is %s, not %s", p, got, want)
}

// checked turns a scanner failure into an error.
func (d *pageDecoder) checked(end int, ok bool) (int, error) {
	if !ok {
		return end, d.refuse(end)
	}
	return end, nil
}

// refuse returns an error with the position where the body stops being JSON. The error has
// none of the content: bodies hold personal data, and errors are logged.
func (d *pageDecoder) refuse(at int) error {
	size := len(d.scan.Body)
	if at == size {
		return fmt.Errorf("%w after %d bytes", errCutShort, size)
	}
	return fmt.Errorf("%w: not JSON at byte %d of %d", errNoPage, at, size)
}
