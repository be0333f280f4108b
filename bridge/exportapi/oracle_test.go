package exportapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"exportbridge/bridge"
)

// oracle reads pages with the tokens of jsontext. The scanner must have the same results,
// and errors of the same kinds.
type oracle struct {
	itemsField, cursorField string
	item                    oracleItem

	json    jsontext.Decoder
	source  bytes.Buffer // gives the body to json without a copy
	body    []byte
	marks   []int  // where the body was repaired
	spans   []span // of the items
	scratch []byte // the memory of a cursor with escapes

	// The decoded page. cursor is valid until the next page, and empty if it is null or
	// absent.
	events   []bridge.Event
	cursor   []byte
	found    jsontext.Value // the cursor as written
	listed   bool           // there is an array of items
	identity bridge.SourceIdentity
}

// oracleOptions accept lone surrogates inside items. decode checks UTF-8 itself.
var oracleOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func newOracle(cfg *Config, preset resource) *oracle {
	return &oracle{itemsField: cfg.ItemsField, cursorField: cfg.CursorField, item: newOracleItem(cfg, preset)}
}

// decode splits the body and keeps the result in o. It appends events, which point into the
// body, to events. If events is large enough, only values with escapes need an allocation.
func (o *oracle) decode(body []byte, events []bridge.Event) error {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	o.events, o.cursor, o.found, o.body, o.listed = events, nil, nil, body, false
	o.identity = bridge.SourceIdentity{}
	var fixed []byte
	fixed, o.marks, o.item.sentinel = repair(body)
	o.item.repaired, o.spans = o.marks != nil, o.spans[:0]
	o.body = fixed
	o.source = *bytes.NewBuffer(fixed)
	o.json.Reset(&o.source, oracleOptions...)
	defer func() { o.body, o.source = nil, bytes.Buffer{} }()
	err := o.page()
	if err == nil {
		err = o.takeCursor()
	}
	if err != nil {
		at := int(o.json.InputOffset())
		if err = o.explain(err, len(body)); errors.Is(err, errCutShort) {
			at = len(body)
		}
		if o.outside(at) {
			return fmt.Errorf("%w: bad text", errNoPage)
		}
		return err
	}
	if o.outside(len(body)) {
		return fmt.Errorf("%w: bad text", errNoPage)
	}
	for i, s := range o.spans {
		o.events[i].Raw = body[s.from:s.to:s.to]
		if slices.ContainsFunc(o.marks, func(mark int) bool { return mark >= s.from && mark < s.to }) {
			if o.events[i].Defect != bridge.DefectNone {
				o.events[i].Time = bridge.NoTime
			}
			o.events[i].Defect = bridge.DefectBadText
		}
	}
	return nil
}

// page reads the top-level object, which nothing may follow.
func (o *oracle) page() error {
	switch kind := o.json.PeekKind(); kind {
	case '{':
	case '[', '"', '0', 't', 'f', 'n':
		return fmt.Errorf("%w: it is %s, not an object", errNoPage, oracleKindName(kind))
	}
	if _, err := o.json.ReadToken(); err != nil {
		return err
	}
	var hasItems, hasCursor, hasMetadata bool
	for o.json.PeekKind() != '}' {
		kind := o.json.PeekKind()
		name, err := o.json.ReadValue()
		switch {
		case kind != '"' && kind != 0:
			return fmt.Errorf("%w: no name", errNoPage)
		case err != nil:
			return err
		}
		switch {
		case oracleNameIs(name, o.itemsField):
			err = o.once(&hasItems, o.itemsField, o.items)
		case oracleNameIs(name, o.cursorField):
			err = o.once(&hasCursor, o.cursorField, o.next)
		case oracleNameIs(name, metadataField):
			err = o.once(&hasMetadata, metadataField, o.metadata)
		default:
			_, err = o.json.ReadValue()
		}
		if err != nil {
			return err
		}
	}
	if _, err := o.json.ReadToken(); err != nil {
		return err
	}
	if _, err := o.json.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: unexpected data after the object at byte %d", errNoPage, o.json.InputOffset())
	}
	return nil
}

// once reads a member that may occur only once: the choice between two could end the
// export.
func (o *oracle) once(seen *bool, name string, read func() error) error {
	if *seen {
		return fmt.Errorf("%w: member %q occurs twice", errNoPage, name)
	}
	*seen = true
	return read()
}

// items reads the array of items.
func (o *oracle) items() error {
	switch kind := o.json.PeekKind(); kind {
	case '[':
	case 'n':
		_, err := o.json.ReadValue()
		return err
	default:
		return o.wrongKind(o.itemsField, kind, "an array")
	}
	o.listed = true
	if _, err := o.json.ReadToken(); err != nil {
		return err
	}
	for index := 0; o.json.PeekKind() != ']'; index++ {
		if index == maxItems {
			return errTooMany
		}
		o.events = append(o.events, bridge.Event{Index: index})
		if err := o.event(&o.events[len(o.events)-1]); err != nil {
			return err
		}
	}
	_, err := o.json.ReadToken()
	return err
}

// event reads one item: its bytes and the values in it.
func (o *oracle) event(e *bridge.Event) error {
	kind := o.json.PeekKind()
	start := int(o.json.InputOffset())
	for bytes.IndexByte([]byte(" \t\r\n,"), o.body[min(start, len(o.body)-1)]) >= 0 && start < len(o.body) {
		start++
	}
	o.spans = append(o.spans, span{start, 0, true})
	raw, err := o.json.ReadValue()
	if kind != '{' {
		e.Defect = bridge.DefectNotObject
	}
	if err != nil {
		return err
	}
	o.spans[len(o.spans)-1] = span{start, int(o.json.InputOffset()), false}
	if kind == '{' {
		o.item.fill(e, raw)
	}
	return nil
}

// next reads the cursor.
func (o *oracle) next() error {
	raw, err := o.json.ReadValue()
	o.found = raw
	return err
}

// takeCursor decodes the cursor. It must decode exactly: one with a replacement character
// is another cursor.
func (o *oracle) takeCursor() (err error) {
	raw := o.found
	if raw == nil {
		return nil
	}
	switch raw.Kind() {
	case 'n':
		return nil
	case '"':
	case '0':
		if string(raw) == "-0" || bytes.ContainsAny(raw, ".eE") {
			return o.wrongKind(o.cursorField, raw.Kind(), "an integer")
		}
		o.cursor = slices.Clone(raw)
		return nil
	default:
		return o.wrongKind(o.cursorField, raw.Kind(), "a string or null")
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		o.cursor = raw[1 : len(raw)-1]
		return nil
	}
	if o.scratch, err = jsontext.AppendUnquote(o.scratch[:0], raw); err != nil {
		return fmt.Errorf("%w: member %q does not decode exactly", errNoPage, o.cursorField)
	}
	o.cursor = o.scratch
	return nil
}

// metadata reads the identity. Only an object has one.
func (o *oracle) metadata() error {
	raw, err := o.json.ReadValue()
	if err == nil && raw.Kind() == '{' {
		o.identity, err = oracleIdentity(raw)
	}
	return err
}

// wrongKind returns the error of a member of the wrong type. kind 0 is not JSON.
func (o *oracle) wrongKind(name string, kind jsontext.Kind, want string) error {
	if kind == 0 {
		_, err := o.json.ReadToken()
		return err
	}
	return fmt.Errorf("%w: member %q is %s, not %s", errNoPage, name, oracleKindName(kind), want)
}

// explain turns a parser's error into one with the position but none of the content: bodies
// hold personal data, and errors are logged.
func (o *oracle) explain(err error, size int) error {
	if errors.Is(err, errNoPage) || errors.Is(err, errTooMany) {
		return err
	}
	at := o.json.InputOffset()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at = syntax.ByteOffset
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w after %d bytes", errCutShort, size)
	}
	return fmt.Errorf("%w: not JSON at byte %d of %d", errNoPage, at, size)
}

func oracleKindName(k jsontext.Kind) string {
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

// oracleValue is a JSON value as it is in the body; nil is absent.
type oracleValue []byte

// text returns the bytes of a string, or a number or boolean as written; nil for other
// kinds. exact is false if the string has an unpaired surrogate, which decodes to U+FFFD.
func (v oracleValue) text() (text []byte, exact bool) {
	if v == nil {
		return nil, true
	}
	switch jsontext.Value(v).Kind() {
	case '"':
		if bytes.IndexByte(v, '\\') < 0 {
			return slices.Clip(v[1 : len(v)-1]), true
		}
		decoded, err := jsontext.AppendUnquote(make([]byte, 0, len(v)), v)
		return slices.Clip(decoded), err == nil
	case '0', 't', 'f':
		return slices.Clip(v), true
	}
	return nil, true
}

// name returns a text that is not empty, or nil.
func (v oracleValue) name() []byte {
	if text, _ := v.text(); len(text) > 0 && !bytes.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	return nil
}

// id returns a text that identifies an item, or nil. Different items may share an id that
// is empty, boolean or inexact: one of them would be dropped as a duplicate.
func (v oracleValue) id() []byte {
	text, exact := v.text()
	if !exact || len(text) == 0 || jsontext.Value(v).Kind() == 't' || jsontext.Value(v).Kind() == 'f' ||
		bytes.ContainsFunc(text, unicode.IsControl) {
		return nil
	}
	return text
}

// oracleIdentity returns the identity in the metadata: of each part the slug, which
// survives renaming, or else the name.
func oracleIdentity(metadata []byte) (id bridge.SourceIdentity, err error) {
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(metadata))
	d.UseNumber() // a number may exceed float64
	if err := d.Decode(&members); err != nil {
		return id, err
	}
	text := func(name string) string {
		inner, _ := members[name].(map[string]any)
		for _, v := range []any{inner["slug"], members[name+"Slug"], inner["name"], members[name+"Name"], members[name]} {
			if s, ok := v.(string); ok && s != "" && len(s) <= 256 && !strings.ContainsFunc(s, unicode.IsControl) {
				return s
			}
		}
		return ""
	}
	return bridge.SourceIdentity{Organization: text("organization"), Workspace: text("workspace"),
		Application: text("application")}, nil
}

// oracleNameIs reports whether a JSON string is the name once it is decoded.
func oracleNameIs(literal []byte, name string) bool {
	if bytes.IndexByte(literal, '\\') < 0 {
		return string(literal[1:len(literal)-1]) == name
	}
	decoded, err := jsontext.AppendUnquote(nil, literal)
	return err == nil && string(decoded) == name
}
