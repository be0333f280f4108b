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

// oracle reads pages by the tokens of jsontext. The scanner must come to the same
// outputs, and to errors of the same kinds.
type oracle struct {
	itemsField, cursorField string
	item                    oracleItem

	json    jsontext.Decoder
	source  bytes.Buffer // hands the body to json without a copy
	body    []byte
	marks   []int  // where the body was repaired
	spans   []span // of the items
	scratch []byte // holds a cursor that had escapes

	// The decoded page. cursor is valid until the next page. It is empty for null
	// and for absence too.
	events   []bridge.Event
	cursor   []byte
	found    jsontext.Value // the cursor as it stands
	listed   bool           // there is an array of items
	identity bridge.SourceIdentity
}

// oracleOptions let lone surrogates inside items pass. decode itself looks for
// bytes that are not UTF-8.
var oracleOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func newOracle(cfg *Config, preset resource) *oracle {
	return &oracle{itemsField: cfg.ItemsField, cursorField: cfg.CursorField, item: newOracleItem(cfg, preset)}
}

// decode splits the body and leaves the result in d. The events are appended
// to events and point into the body. Nothing is allocated for values without
// escapes once events is large enough.
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

// page reads the one top-level object and demands that nothing follows it.
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

// once reads a member that may come only once: which of two counts would
// decide whether the export goes on.
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

// next finds the cursor.
func (o *oracle) next() error {
	raw, err := o.json.ReadValue()
	o.found = raw
	return err
}

// takeCursor reads the cursor that was found. It must decode exactly: a cursor
// with a replacement character in it is another cursor.
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

// metadata reads the identity. A value that is no object has none.
func (o *oracle) metadata() error {
	raw, err := o.json.ReadValue()
	if err == nil && raw.Kind() == '{' {
		o.identity, err = oracleIdentity(raw)
	}
	return err
}

// wrongKind reports a member of the wrong type; kind 0 is no JSON at all.
func (o *oracle) wrongKind(name string, kind jsontext.Kind, want string) error {
	if kind == 0 {
		_, err := o.json.ReadToken()
		return err
	}
	return fmt.Errorf("%w: member %q is %s, not %s", errNoPage, name, oracleKindName(kind), want)
}

// explain turns a parser's error into one that says where and nothing of what:
// bodies hold personal data, and errors go to logs.
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

// oracleValue is a JSON value as it stands in the body; nil is absent.
type oracleValue []byte

// text returns a string's bytes, and a number or a boolean as it is written;
// nil for everything else. exact is false if the string has half a character,
// which then reads as U+FFFD.
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

// name returns a text that says something, nil for an empty one.
func (v oracleValue) name() []byte {
	if text, _ := v.text(); len(text) > 0 && !bytes.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	return nil
}

// id returns a text that can name an item, nil where v cannot: an id that is
// empty, a boolean or not exact is shared by items that differ, and one of
// them would be taken for a repetition.
func (v oracleValue) id() []byte {
	text, exact := v.text()
	if !exact || len(text) == 0 || jsontext.Value(v).Kind() == 't' || jsontext.Value(v).Kind() == 'f' ||
		bytes.ContainsFunc(text, unicode.IsControl) {
		return nil
	}
	return text
}

// oracleIdentity returns the identity in the metadata: of each name the first
// text among its slug, which survives renaming, its name, and the name itself.
func oracleIdentity(metadata []byte) (id bridge.SourceIdentity, err error) {
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(metadata))
	d.UseNumber() // one may exceed float64
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
	return bridge.SourceIdentity{Organization: text("organization"), Workspace: text("workspace"), Application: text("application")}, nil
}

// oracleNameIs reports whether the JSON string is the name, escapes decoded.
func oracleNameIs(literal []byte, name string) bool {
	if bytes.IndexByte(literal, '\\') < 0 {
		return string(literal[1:len(literal)-1]) == name
	}
	decoded, err := jsontext.AppendUnquote(nil, literal)
	return err == nil && string(decoded) == name
}
