package exportapi

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"exportbridge/bridge"
)

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

// pageDecoder splits pages into events in one pass over the body. It is strict
// about the page, where an error would read as "end of results", and lenient
// inside items, which consumers validate themselves. One goroutine at a time.
type pageDecoder struct {
	scan     scanner
	parts    [3]part
	item     itemReader
	identity identityReader
	scratch  []byte // holds a cursor that had escapes

	// The decoded page. cursor is valid until the next page; null, absent and
	// empty are the same.
	events []bridge.Event
	cursor []byte
}

// part is a decoded member of the page. Duplicates are rejected: which one
// counts would decide whether the export continues.
type part struct {
	name string
	// read reads the value at the position and returns the position after it.
	read func(d *pageDecoder, i int) (int, error)
	seen bool
}

// String names the part in errors.
func (p *part) String() string { return "member " + strconv.Quote(p.name) }

// The parts in pageDecoder.parts.
const (
	partItems = iota
	partCursor
	partMetadata
)

func newPageDecoder(cfg *Config, preset resource) (*pageDecoder, error) {
	item, err := newItemReader(cfg, preset)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", cfg.KeyPointer, err)
	}
	identity, err := newIdentityReader()
	if err != nil {
		return nil, err
	}
	return &pageDecoder{
		parts: [...]part{
			partItems:    {name: cfg.ItemsField, read: (*pageDecoder).items},
			partCursor:   {name: cfg.CursorField, read: (*pageDecoder).next},
			partMetadata: {name: metadataField, read: (*pageDecoder).metadata},
		},
		item:     item,
		identity: identity,
	}, nil
}

// decode splits the body and keeps the result in d. Events are appended to
// events and point into the body. It does not allocate for values without
// escapes if events has capacity, and never for more than maxItems. Its error
// is errCutShort, errNoPage or errTooMany; then the result is invalid.
func (d *pageDecoder) decode(body []byte, events []bridge.Event) error {
	d.events, d.cursor = events, nil
	d.identity.forget()
	for i := range d.parts {
		d.parts[i].seen = false
	}
	d.scan.reset(body)
	defer d.scan.reset(nil)
	err := d.page()
	if err != nil && !utf8.Valid(body) {
		// More to the point than where the scanner stopped.
		return fmt.Errorf("%w: invalid UTF-8", errNoPage)
	}
	return err
}

// page reads the top-level object and rejects trailing data.
func (d *pageDecoder) page() error {
	s := &d.scan
	i := skipSpace(s.body, 0)
	if kind := s.kindAt(i); kind != kindObject {
		return d.wrongKind(i, "it", kind, "an object")
	}
	i, step := s.open(i)
	for step == more {
		var err error
		if i, err = d.member(i); err != nil {
			return err
		}
		i, step = s.next(i, '}')
	}
	if step == broken {
		return d.refuse(i)
	}
	if items := &d.parts[partItems]; !items.seen {
		return fmt.Errorf("%w: it has no %s", errNoPage, items)
	}
	if i = skipSpace(s.body, i); i < len(s.body) {
		return fmt.Errorf("%w: unexpected data after the object at byte %d", errNoPage, i)
	}
	return nil
}

// member reads the member of the page at i.
func (d *pageDecoder) member(i int) (int, error) {
	name, i, ok := d.scan.name(i)
	if !ok {
		return i, d.refuse(i)
	}
	part := d.part(name)
	if part != nil && part.seen {
		return i, fmt.Errorf("%w: %s occurs twice", errNoPage, part)
	}
	if i, ok = skipColon(d.scan.body, i); !ok {
		return i, d.refuse(i)
	}
	if part == nil {
		return d.checked(d.scan.skip(i))
	}
	part.seen = true
	return part.read(d, i)
}

// part finds the part by its name; nil if the member is skipped.
func (d *pageDecoder) part(name value) *part {
	for i := range d.parts {
		if name.is(d.parts[i].name) {
			return &d.parts[i]
		}
	}
	return nil
}

// items reads the array of items.
func (d *pageDecoder) items(i int) (int, error) {
	if kind := d.scan.kindAt(i); kind != kindArray {
		return i, d.wrongKind(i, d.parts[partItems].String(), kind, "an array")
	}
	i, step := d.scan.open(i)
	for index := 0; step == more; index++ {
		if index == maxItems {
			return i, errTooMany
		}
		d.events = append(d.events, bridge.Event{Index: index})
		var ok bool
		if i, ok = d.event(i, &d.events[len(d.events)-1]); !ok {
			return i, d.refuse(i)
		}
		i, step = d.scan.next(i, ']')
	}
	return d.checked(i, step == ended)
}

// event reads one item: its bytes and its selected values.
func (d *pageDecoder) event(i int, e *bridge.Event) (end int, ok bool) {
	if d.scan.kindAt(i) != kindObject {
		e.Defect = bridge.DefectNotObject
		end, ok = d.scan.skip(i)
	} else if end, ok = d.item.read(&d.scan, i); ok {
		d.item.fill(e)
	}
	if ok {
		e.Raw = d.scan.body[i:end:end]
	}
	return end, ok
}

// next reads the cursor. It must decode exactly: a replacement character would
// make another cursor.
func (d *pageDecoder) next(i int) (int, error) {
	v, end, ok := d.scan.read(i)
	if !ok {
		return end, d.refuse(end)
	}
	part := &d.parts[partCursor]
	switch v.kind {
	case kindNull:
	case kindString:
		d.cursor = v.raw
	case kindEscaped:
		if d.scratch, ok = appendUnescaped(d.scratch[:0], v.raw); !ok {
			return i, fmt.Errorf("%w: %s does not decode exactly", errNoPage, part)
		}
		d.cursor = d.scratch
	default:
		return i, d.wrongKind(i, part.String(), v.kind, "a string or null")
	}
	return end, nil
}

// metadata reads the identity of the export. An unexpected shape is ignored.
func (d *pageDecoder) metadata(i int) (int, error) {
	if d.scan.kindAt(i) != kindObject {
		return d.checked(d.scan.skip(i))
	}
	return d.checked(d.identity.read(&d.scan, i))
}

// wrongKind reports a value of the wrong type, or a missing one.
func (d *pageDecoder) wrongKind(at int, what string, got kind, want string) error {
	if got == kindNone {
		return d.refuse(at)
	}
	return fmt.Errorf("%w: %s is %s, not %s", errNoPage, what, got, want)
}

// checked turns a scanner failure into an error.
func (d *pageDecoder) checked(end int, ok bool) (int, error) {
	if !ok {
		return end, d.refuse(end)
	}
	return end, nil
}

// refuse reports where the body stops being JSON, but none of its content:
// bodies hold personal data, and errors go to logs.
func (d *pageDecoder) refuse(at int) error {
	size := len(d.scan.body)
	if at == size {
		return fmt.Errorf("%w after %d bytes", errCutShort, size)
	}
	return fmt.Errorf("%w: not JSON at byte %d of %d", errNoPage, at, size)
}
