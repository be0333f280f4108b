package exportapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/scan"
)

// oracle is pageDecoder's first implementation, on the tokens of jsontext. It
// stays as what the scanner is held against: every output and the kind of
// every error must be the same.
type oracle struct {
	itemsField, cursorField string
	item                    oracleItem
	identity                oracleIdentity

	json    *jsontext.Decoder
	options []jsontext.Options
	source  bytes.Buffer // hands the body to json without a copy
	body    []byte
	marks   []int  // where the body was repaired
	spans   []span // of the items
	scratch []byte // holds a cursor that had escapes

	// The page as decoded. cursor is valid until the next page and holds
	// neither null nor absence apart from an empty string.
	events []bridge.Event
	cursor []byte
	found  jsontext.Value // the cursor as it stands
	listed bool           // there is an array of items
}

func newOracle(cfg *Config, preset resource) (*oracle, error) {
	item, err := newOracleItem(cfg, preset)
	if err != nil {
		return nil, err
	}
	identity, err := newOracleIdentity()
	if err != nil {
		return nil, err
	}
	return &oracle{
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
func (d *oracle) decode(body []byte, events []bridge.Event) error {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	d.events, d.cursor, d.found, d.body, d.listed = events, nil, nil, body, false
	d.identity.forget()
	var fixed []byte
	fixed, d.marks, d.item.sentinel = repair(body)
	d.item.repaired, d.spans = d.marks != nil, d.spans[:0]
	d.body = fixed
	d.source = *bytes.NewBuffer(fixed)
	d.json.Reset(&d.source, d.options...)
	defer func() { d.body, d.source = nil, bytes.Buffer{} }()
	err := d.page()
	if err == nil {
		err = d.takeCursor()
	}
	if err != nil {
		at := int(d.json.InputOffset())
		if err = d.explain(err, len(body)); errors.Is(err, errCutShort) {
			at = len(body)
		}
		if d.outside(at) {
			return fmt.Errorf("%w: bad text", errNoPage)
		}
		return err
	}
	if d.outside(len(body)) {
		return fmt.Errorf("%w: bad text", errNoPage)
	}
	for i, s := range d.spans {
		d.events[i].Raw = body[s.from:s.to:s.to]
		if slices.ContainsFunc(d.marks, func(mark int) bool { return mark >= s.from && mark < s.to }) {
			if d.events[i].Defect != bridge.DefectNone {
				d.events[i].Time = bridge.NoTime
			}
			d.events[i].Defect = bridge.DefectBadText
		}
	}
	return nil
}

// page reads the one top-level object and demands that nothing follows it.
func (d *oracle) page() error {
	switch kind := d.json.PeekKind(); kind {
	case '{':
	case '[', '"', '0', 't', 'f', 'n':
		return fmt.Errorf("%w: it is %s, not an object", errNoPage, oracleKindName(kind))
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
		case oracleNameIs(name, d.itemsField):
			err = d.once(&hasItems, d.itemsField, d.items)
		case oracleNameIs(name, d.cursorField):
			err = d.once(&hasCursor, d.cursorField, d.next)
		case oracleNameIs(name, metadataField):
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
	if _, err := d.json.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: unexpected data after the object at byte %d", errNoPage, d.json.InputOffset())
	}
	return nil
}

// once reads a member that may come only once: which of two counts would
// decide whether the export goes on.
func (d *oracle) once(seen *bool, name string, read func() error) error {
	if *seen {
		return fmt.Errorf("%w: member %q occurs twice", errNoPage, name)
	}
	*seen = true
	return read()
}

// items reads the array of items.
func (d *oracle) items() error {
	switch kind := d.json.PeekKind(); kind {
	case '[':
	case 'n':
		_, err := d.json.ReadValue()
		return err
	default:
		return d.wrongKind(d.itemsField, kind, "an array")
	}
	d.listed = true
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	for index := 0; d.json.PeekKind() != ']'; index++ {
		if index == maxItems {
			return errTooMany
		}
		d.events = append(d.events, bridge.Event{Index: index})
		if err := d.event(&d.events[len(d.events)-1]); err != nil {
			return err
		}
	}
	_, err := d.json.ReadToken()
	return err
}

// event reads one item: its bytes, and on the way the values it is asked for.
func (d *oracle) event(e *bridge.Event) error {
	kind := d.json.PeekKind()
	start := int(d.json.InputOffset())
	for bytes.IndexByte([]byte(" \t\r\n,"), d.body[min(start, len(d.body)-1)]) >= 0 && start < len(d.body) {
		start++
	}
	d.spans = append(d.spans, span{start, 0, true})
	if kind != '{' {
		_, err := d.json.ReadValue()
		e.Defect = bridge.DefectNotObject
		d.spans[len(d.spans)-1] = span{start, int(d.json.InputOffset()), err != nil}
		return err
	}
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	if err := d.item.read(d.json); err != nil {
		return err
	}
	d.spans[len(d.spans)-1] = span{start, int(d.json.InputOffset()), false}
	d.item.fill(e)
	return nil
}

// next finds the cursor.
func (d *oracle) next() error {
	raw, err := d.json.ReadValue()
	d.found = raw
	return err
}

// takeCursor reads the cursor that was found. It must decode exactly: a cursor
// with a replacement character in it is another cursor.
func (d *oracle) takeCursor() (err error) {
	raw := d.found
	if raw == nil {
		return nil
	}
	switch raw.Kind() {
	case 'n':
		return nil
	case '"':
	case '0':
		if string(raw) == "-0" || bytes.ContainsAny(raw, ".eE") {
			return d.wrongKind(d.cursorField, raw.Kind(), "an integer")
		}
		d.cursor = slices.Clone(raw)
		return nil
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
func (d *oracle) metadata() error {
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
func (d *oracle) wrongKind(name string, kind jsontext.Kind, want string) error {
	if kind == 0 {
		_, err := d.json.ReadToken()
		return err
	}
	return fmt.Errorf("%w: member %q is %s, not %s", errNoPage, name, oracleKindName(kind), want)
}

// explain turns a parser's error into one that says where and nothing of what:
// bodies hold personal data, and errors go to logs.
func (d *oracle) explain(err error, size int) error {
	if errors.Is(err, errNoPage) || errors.Is(err, errTooMany) {
		return err
	}
	at := d.json.InputOffset()
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

// oracleObject reads chosen values of an object in one pass. Of a member that
// comes twice the last counts, as for most parsers.
type oracleObject struct {
	root   selector
	values []oracleValue
	// repaired is set for a body that had text that is none, see repair.
	repaired bool
	sentinel byte
}

// want makes the reader collect the value at the pointer and returns its slot.
func (r *oracleObject) want(pointer string) (slot, error) {
	s := slot(len(r.values))
	r.values = append(r.values, nil)
	return s, r.root.add(pointer, s)
}

// read reads the rest of an object whose opening brace was just read.
func (r *oracleObject) read(json *jsontext.Decoder) error {
	clear(r.values)
	return r.object(json, &r.root)
}

func (r *oracleObject) object(json *jsontext.Decoder, at *selector) error {
	for json.PeekKind() != '}' {
		name, err := json.ReadValue()
		if err != nil {
			return err
		}
		if err := r.member(json, oracleNamed(at, name)); err != nil {
			return err
		}
	}
	_, err := json.ReadToken()
	return err
}

func (r *oracleObject) array(json *jsontext.Decoder, at *selector) error {
	for i := 0; json.PeekKind() != ']'; i++ {
		if err := r.member(json, at.element(i)); err != nil {
			return err
		}
	}
	_, err := json.ReadToken()
	return err
}

// member reads one value. Its depth is bounded by the longest pointer.
func (r *oracleObject) member(json *jsontext.Decoder, at *selector) error {
	if at == nil {
		_, err := json.ReadValue()
		return err
	}
	for _, s := range at.below {
		r.values[s] = nil
	}
	if kind := json.PeekKind(); len(at.children) > 0 && (kind == '{' || kind == '[') {
		if _, err := json.ReadToken(); err != nil {
			return err
		}
		if kind == '{' {
			return r.object(json, at)
		}
		return r.array(json, at)
	}
	raw, err := json.ReadValue()
	if err == nil && r.bad(raw) {
		raw = []byte(`[]`)
	}
	for _, s := range at.slots {
		r.values[s] = oracleValue(raw)
	}
	return err
}

// oracleNamed finds the child by a name as it stands in the body.
func oracleNamed(s *selector, literal []byte) *selector {
	if bytes.IndexByte(literal, '\\') < 0 {
		return oracleMember(s, literal[1:len(literal)-1])
	}
	name, err := jsontext.AppendUnquote(nil, literal)
	if err != nil {
		return nil // no pointer names half a character
	}
	return oracleMember(s, name)
}

func oracleMember(s *selector, name []byte) *selector {
	for _, c := range s.children {
		if c.name == string(name) {
			return c
		}
	}
	return nil
}

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
	if !exact || len(text) == 0 || jsontext.Value(v).Kind() == 't' || jsontext.Value(v).Kind() == 'f' || bytes.ContainsFunc(text, unicode.IsControl) {
		return nil
	}
	return text
}

// oracleItem reads the values that an event needs.
type oracleItem struct {
	oracleObject
	ids, types, subjects, times []slot
	key                         slot
	format                      string
	timeOptional                bool
}

func newOracleItem(cfg *Config, preset resource) (oracleItem, error) {
	r := oracleItem{timeOptional: preset.timeOptional, format: cfg.ItemTimeFormat}
	var errs []error
	want := func(pointer string) slot {
		s, err := r.want(pointer)
		errs = append(errs, err)
		return s
	}
	all := func(set, preset []string) (slots []slot) {
		if len(set) == 0 {
			set = preset
		}
		for _, pointer := range set {
			if pointer != "none" {
				slots = append(slots, want(pointer))
			}
		}
		return slots
	}
	r.ids, r.types, r.subjects = all(cfg.ItemID, preset.ids), all(cfg.ItemType, preset.types), all(cfg.ItemSubject, preset.subjects)
	if cfg.ItemTimeFormat != "none" {
		r.times = all(cfg.ItemTime, preset.times)
	}
	r.timeOptional = r.timeOptional || len(r.times) == 0 || slices.Contains(cfg.ItemTime, "none")
	r.key = want(cfg.keyPointer())
	return r, errors.Join(errs...)
}

// fill puts the values that were read into the event.
func (r *oracleItem) fill(e *bridge.Event) {
	for _, s := range r.ids {
		if e.ID = r.values[s].id(); e.ID != nil {
			break
		}
	}
	for _, s := range r.types {
		if e.Type = r.values[s].name(); e.Type != nil {
			break
		}
	}
	for _, s := range r.subjects {
		if e.Subject = r.values[s].name(); e.Subject != nil {
			break
		}
	}
	e.Key, _ = r.values[r.key].text()
	for _, s := range r.times {
		raw := jsontext.Value(r.values[s])
		if len(raw) == 0 || raw.Kind() == 'n' || string(raw) == `""` {
			continue
		}
		var ok bool
		if e.Time, ok = oracleTime(raw, r.format); !ok {
			e.Time, e.Defect = 0, bridge.DefectTime
		}
		return
	}
	if e.Time = bridge.NoTime; !r.timeOptional {
		e.Time, e.Defect = 0, bridge.DefectTime
	}
}

var (
	oracleNumber = regexp.MustCompile(`^-?[0-9]{1,18}(\.[0-9]+)?$`)
	oracleDate   = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d(?:\.\d+)?)(?:([Zz])|([+-](?:[01]\d|2[0-3])):?([0-5]\d))$`)
)

// oracleTime reads a time by fractions and package time.
func oracleTime(raw jsontext.Value, format string) (ms int64, ok bool) {
	if len(raw) == 0 {
		return 0, false
	}
	text := string(raw)
	if raw.Kind() == '0' && (format == "" || format == "ms") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, n != math.MinInt64
		}
	}
	if raw.Kind() != '0' {
		if raw.Kind() != '"' || len(raw) > scan.LongestTime+2 || raw[1] == '-' {
			return 0, false
		}
		decoded, _ := jsontext.AppendUnquote(nil, raw) // half a character is no digit
		text = string(decoded)
		if strings.HasPrefix(text, "-") {
			return 0, false
		}
	}
	if format == "rfc3339" || format == "rfc3339-utc" {
		m := oracleDate.FindStringSubmatch(text)
		if m == nil && format == "rfc3339-utc" {
			m = oracleDate.FindStringSubmatch(text + "Z")
		}
		if m == nil || raw.Kind() == '0' {
			return 0, false
		}
		zone := "Z"
		if m[3] == "" {
			zone = m[4] + ":" + m[5]
		}
		t, err := time.Parse(time.RFC3339, m[1]+"T"+m[2]+zone)
		if y := t.UTC().Year(); err != nil || y < 1 || y > 9999 {
			return 0, false
		}
		return t.UnixMilli(), true
	}
	if !oracleNumber.MatchString(text) {
		return 0, false
	}
	exact, _ := new(big.Rat).SetString(text)
	exact.Mul(exact, map[string]*big.Rat{"": big.NewRat(1, 1), "ms": big.NewRat(1, 1), "s": big.NewRat(1000, 1), "us": big.NewRat(1, 1000)}[format])
	whole := new(big.Int).Div(exact.Num(), exact.Denom()) // Euclidean: rounds down
	if y := time.UnixMilli(whole.Int64()).UTC().Year(); !whole.IsInt64() || y < 1 || y > 9999 {
		return 0, false
	}
	return whole.Int64(), true
}

// oracleIdentity reads whose export it is from the metadata: the slug, which
// stays when a thing is renamed, else the name.
type oracleIdentity struct {
	oracleObject
	organization, workspace, application []slot
	// last is kept from page to page: it hardly ever changes.
	last bridge.SourceIdentity
}

func newOracleIdentity() (oracleIdentity, error) {
	var r oracleIdentity
	var errs []error
	slots := func(name string) (all []slot) {
		for _, form := range []string{"/slug", "Slug", "/name", "Name", ""} {
			s, err := r.want("/" + name + form)
			all, errs = append(all, s), append(errs, err)
		}
		return all
	}
	r.organization, r.workspace, r.application = slots("organization"), slots("workspace"), slots("application")
	return r, errors.Join(errs...)
}

// forget drops what the last page's metadata said.
func (r *oracleIdentity) forget() { clear(r.values) }

// identity returns what the metadata said.
func (r *oracleIdentity) identity() bridge.SourceIdentity {
	r.last.Organization = r.part(r.last.Organization, r.organization)
	r.last.Workspace = r.part(r.last.Workspace, r.workspace)
	r.last.Application = r.part(r.last.Application, r.application)
	return r.last
}

// part returns the first text found, and the string it was before if it is
// the same.
func (r *oracleIdentity) part(before string, slots []slot) string {
	for _, s := range slots {
		switch text := r.values[s].name(); {
		case text == nil || len(text) > maxIdentity || r.values[s][0] != '"':
		case string(text) == before:
			return before
		default:
			return string(text)
		}
	}
	return ""
}

// oracleNameIs reports whether the JSON string is the name, escapes decoded.
func oracleNameIs(literal []byte, name string) bool {
	if bytes.IndexByte(literal, '\\') < 0 {
		return string(literal[1:len(literal)-1]) == name
	}
	decoded, err := jsontext.AppendUnquote(nil, literal)
	return err == nil && string(decoded) == name
}
