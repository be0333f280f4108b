package exportapi

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"exportbridge/bridge"
)

// value is a JSON value as it stands in the body; nil is absent.
type value []byte

// objectReader reads chosen values of an object in one pass. Of a member that
// comes twice the last counts, as for most parsers.
type objectReader struct {
	root   selector
	values []value
}

// want makes the reader collect the value at the pointer and returns its slot.
func (r *objectReader) want(pointer string) (slot, error) {
	s := slot(len(r.values))
	r.values = append(r.values, nil)
	return s, r.root.add(pointer, s)
}

// read reads the rest of an object whose opening brace was just read.
func (r *objectReader) read(json *jsontext.Decoder) error {
	clear(r.values)
	return r.object(json, &r.root)
}

func (r *objectReader) object(json *jsontext.Decoder, at *selector) error {
	for json.PeekKind() != '}' {
		name, err := json.ReadValue()
		if err != nil {
			return err
		}
		if err := r.member(json, at.named(name)); err != nil {
			return err
		}
	}
	_, err := json.ReadToken()
	return err
}

func (r *objectReader) array(json *jsontext.Decoder, at *selector) error {
	for i := 0; json.PeekKind() != ']'; i++ {
		if err := r.member(json, at.element(i)); err != nil {
			return err
		}
	}
	_, err := json.ReadToken()
	return err
}

// member reads one value. Its depth is bounded by the longest pointer.
func (r *objectReader) member(json *jsontext.Decoder, at *selector) error {
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
	for _, s := range at.slots {
		r.values[s] = value(raw)
	}
	return err
}

// named finds the child by a name as it stands in the body.
func (s *selector) named(literal []byte) *selector {
	if bytes.IndexByte(literal, '\\') < 0 {
		return s.member(literal[1 : len(literal)-1])
	}
	name, err := jsontext.AppendUnquote(nil, literal)
	if err != nil {
		return nil // no pointer names half a character
	}
	return s.member(name)
}

// text returns a string's bytes, and a number or a boolean as it is written;
// nil for everything else. exact is false if the string has half a character,
// which then reads as U+FFFD.
func (v value) text() (text []byte, exact bool) {
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
func (v value) name() []byte {
	if text, _ := v.text(); len(text) > 0 {
		return text
	}
	return nil
}

// id returns a text that can name an item, nil where v cannot: an id that is
// empty, a boolean or not exact is shared by items that differ, and one of
// them would be taken for a repetition.
func (v value) id() []byte {
	text, exact := v.text()
	if !exact || len(text) == 0 || jsontext.Value(v).Kind() == 't' || jsontext.Value(v).Kind() == 'f' {
		return nil
	}
	return text
}

// itemReader reads the values that an event needs.
type itemReader struct {
	objectReader
	ids, types         []slot
	time, subject, key slot
}

func newItemReader(preset resource, keyPointer string) (itemReader, error) {
	var r itemReader
	var errs []error
	want := func(pointer string) slot {
		s, err := r.want(pointer)
		errs = append(errs, err)
		return s
	}
	for _, pointer := range preset.ids {
		r.ids = append(r.ids, want(pointer))
	}
	for _, pointer := range preset.types {
		r.types = append(r.types, want(pointer))
	}
	r.time, r.subject, r.key = want(preset.time), want(preset.subject), want(keyPointer)
	return r, errors.Join(errs...)
}

// fill puts the values that were read into the event.
func (r *itemReader) fill(e *bridge.Event) {
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
	e.Subject = r.values[r.subject].name()
	e.Key, _ = r.values[r.key].text()
	var err error
	// The parser has seen to it that only the digits of an integer pass.
	if e.Time, err = strconv.ParseInt(string(r.values[r.time]), 10, 64); err != nil {
		e.Time, e.Defect = 0, bridge.DefectTime
	}
}

// identityReader reads whose export it is from the metadata: the slug, which
// stays when a thing is renamed, else the name.
type identityReader struct {
	objectReader
	organization, workspace, application []slot
	// last is kept from page to page: it hardly ever changes.
	last bridge.SourceIdentity
}

func newIdentityReader() (identityReader, error) {
	var r identityReader
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
func (r *identityReader) forget() { clear(r.values) }

// identity returns what the metadata said.
func (r *identityReader) identity() bridge.SourceIdentity {
	r.last.Organization = r.part(r.last.Organization, r.organization)
	r.last.Workspace = r.part(r.last.Workspace, r.workspace)
	r.last.Application = r.part(r.last.Application, r.application)
	return r.last
}

// part returns the first text found, and the string it was before if it is
// the same.
func (r *identityReader) part(before string, slots []slot) string {
	for _, s := range slots {
		switch text := r.values[s].name(); {
		case text == nil:
		case string(text) == before:
			return before
		default:
			return string(text)
		}
	}
	return ""
}
