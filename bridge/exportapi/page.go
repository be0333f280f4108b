package exportapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"exportbridge/bridge"
)

const metadataField = "metadata"

var (
	// errCutShort: the body ends in the middle. Another try may bring the rest.
	errCutShort = errors.New("body ends before the page does")
	// errNoPage: the body is complete and is not a page.
	errNoPage = errors.New("body is not a page")
)

// pageDecoder splits pages into events. It is strict about the page itself,
// where a mistake would read as "no more results", and lenient inside items,
// which Kafka's consumers judge for themselves. One goroutine at a time.
type pageDecoder struct {
	itemsField, cursorField string
	item                    itemReader
	identity                identityReader

	json    *jsontext.Decoder
	options []jsontext.Options
	source  bytes.Buffer // hands the body to json without a copy
	body    []byte
	scratch []byte // holds a cursor that had escapes

	// The page as decoded. cursor is valid until the next page and holds
	// neither null nor absence apart from an empty string.
	events []bridge.Event
	cursor []byte
}

func newPageDecoder(cfg *Config, preset resource) (*pageDecoder, error) {
	item, err := newItemReader(preset, cfg.keyPointer())
	if err != nil {
		return nil, err
	}
	identity, err := newIdentityReader()
	if err != nil {
		return nil, err
	}
	return &pageDecoder{
		itemsField:  cfg.ItemsField,
		cursorField: cfg.CursorField,
		item:        item,
		identity:    identity,
		json:        new(jsontext.Decoder),
		// Lone surrogates inside items pass. Bytes that are not UTF-8 do not:
		// decode looks for them itself.
		options: []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)},
	}, nil
}

// decode splits the body and leaves the result in d. The events are appended
// to events and point into the body. Nothing is allocated for values without
// escapes once events is large enough.
func (d *pageDecoder) decode(body []byte, events []bridge.Event) error {
	d.events, d.cursor, d.body = events, nil, body
	d.identity.forget()
	if !utf8.Valid(body) {
		return fmt.Errorf("%w: it holds bytes that are not UTF-8", errNoPage)
	}
	d.source = *bytes.NewBuffer(body)
	d.json.Reset(&d.source, d.options...)
	defer func() { d.body, d.source = nil, bytes.Buffer{} }()
	if err := d.page(); err != nil {
		return d.explain(err, len(body))
	}
	return nil
}

// page reads the one top-level object and demands that nothing follows it.
func (d *pageDecoder) page() error {
	switch kind := d.json.PeekKind(); kind {
	case '{':
	case '[', '"', '0', 't', 'f', 'n':
		return fmt.Errorf("%w: it is %s, not an object", errNoPage, kindName(kind))
	}
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	var hasItems, hasCursor, hasMetadata bool
	for d.json.PeekKind() != '}' {
		name, err := d.json.ReadValue()
		if err != nil {
			return err
		}
		switch {
		case nameIs(name, d.itemsField):
			err = d.once(&hasItems, d.itemsField, d.items)
		case nameIs(name, d.cursorField):
			err = d.once(&hasCursor, d.cursorField, d.next)
		case nameIs(name, metadataField):
			err = d.once(&hasMetadata, metadataField, d.metadata)
		default:
			_, err = d.json.ReadValue()
		}
		if err != nil {
			return err
		}
	}
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	if !hasItems {
		return fmt.Errorf("%w: it has no member %q", errNoPage, d.itemsField)
	}
	if _, err := d.json.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the object at byte %d", errNoPage, d.json.InputOffset())
	}
	return nil
}

// once reads a member that may come only once: which of two counts would
// decide whether the export goes on.
func (d *pageDecoder) once(seen *bool, name string, read func() error) error {
	if *seen {
		return fmt.Errorf("%w: member %q comes twice", errNoPage, name)
	}
	*seen = true
	return read()
}

// items reads the array of items.
func (d *pageDecoder) items() error {
	if kind := d.json.PeekKind(); kind != '[' {
		return d.wrongKind(d.itemsField, kind, "an array")
	}
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	for index := 0; d.json.PeekKind() != ']'; index++ {
		d.events = append(d.events, bridge.Event{Index: index})
		if err := d.event(&d.events[len(d.events)-1]); err != nil {
			return err
		}
	}
	_, err := d.json.ReadToken()
	return err
}

// event reads one item: its bytes, and on the way the values it is asked for.
func (d *pageDecoder) event(e *bridge.Event) error {
	if d.json.PeekKind() != '{' {
		raw, err := d.json.ReadValue()
		e.Raw, e.Defect = slices.Clip(raw), bridge.DefectNotObject
		return err
	}
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	start := d.json.InputOffset() - 1
	if err := d.item.read(d.json); err != nil {
		return err
	}
	end := d.json.InputOffset()
	e.Raw = d.body[start:end:end]
	d.item.fill(e)
	return nil
}

// next reads the cursor. It must decode exactly: a cursor with a replacement
// character in it is another cursor.
func (d *pageDecoder) next() error {
	raw, err := d.json.ReadValue()
	if err != nil {
		return err
	}
	switch raw.Kind() {
	case 'n':
		return nil
	case '"':
	default:
		return d.wrongKind(d.cursorField, raw.Kind(), "a string or null")
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		d.cursor = raw[1 : len(raw)-1]
		return nil
	}
	if d.scratch, err = jsontext.AppendUnquote(d.scratch[:0], raw); err != nil {
		return fmt.Errorf("%w: member %q does not decode exactly", errNoPage, d.cursorField)
	}
	d.cursor = d.scratch
	return nil
}

// metadata reads whose export it is. Another shape than expected says nothing.
func (d *pageDecoder) metadata() error {
	if d.json.PeekKind() != '{' {
		_, err := d.json.ReadValue()
		return err
	}
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	return d.identity.read(d.json)
}

// wrongKind reports a member of the wrong type; kind 0 is no JSON at all.
func (d *pageDecoder) wrongKind(name string, kind jsontext.Kind, want string) error {
	if kind == 0 {
		_, err := d.json.ReadToken()
		return err
	}
	return fmt.Errorf("%w: member %q is %s, not %s", errNoPage, name, kindName(kind), want)
}

// explain turns a parser's error into one that says where and nothing of what:
// bodies hold personal data, and errors go to logs.
func (d *pageDecoder) explain(err error, size int) error {
	if errors.Is(err, errNoPage) {
		return err
	}
	at := d.json.InputOffset()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at = syntax.ByteOffset
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: after %d bytes", errCutShort, size)
	}
	return fmt.Errorf("%w: not JSON at byte %d of %d", errNoPage, at, size)
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 't', 'f':
		return "a boolean"
	}
	return "null"
}
