package exportapi

import (
	"errors"

	"exportbridge/bridge"
)

// objectReader reads chosen values of an object in one pass. Of a member that
// comes twice the last counts, as for most parsers.
type objectReader struct {
	root   selector
	values []value
}

// want makes the reader collect the value at the pointer and returns its slot.
func (r *objectReader) want(pointer string) (slot, error) {
	s := slot(len(r.values))
	r.values = append(r.values, value{})
	return s, r.root.add(pointer, s)
}

// read reads the object that begins at i.
func (r *objectReader) read(s *scanner, i int) (end int, ok bool) {
	clear(r.values)
	return r.object(s, i, &r.root)
}

func (r *objectReader) object(s *scanner, i int, at *selector) (int, bool) {
	i, step := s.open(i)
	for step == more {
		name, end, ok := s.name(i)
		if !ok {
			return end, false
		}
		if i, ok = skipColon(s.body, end); !ok {
			return i, false
		}
		if i, ok = r.member(s, i, at.named(name)); !ok {
			return i, false
		}
		i, step = s.next(i, '}')
	}
	return i, step == ended
}

func (r *objectReader) array(s *scanner, i int, at *selector) (int, bool) {
	i, step := s.open(i)
	for n := 0; step == more; n++ {
		var ok bool
		if i, ok = r.member(s, i, at.element(n)); !ok {
			return i, false
		}
		i, step = s.next(i, ']')
	}
	return i, step == ended
}

// member reads one value. Its depth is bounded by the longest pointer.
func (r *objectReader) member(s *scanner, i int, at *selector) (int, bool) {
	if at == nil {
		return s.skip(i)
	}
	if len(at.children) > 0 {
		for _, slot := range at.below {
			r.values[slot] = value{}
		}
		switch s.kindAt(i) {
		case kindObject:
			return r.object(s, i, at)
		case kindArray:
			return r.array(s, i, at)
		}
	}
	v, i, ok := s.read(i)
	for _, slot := range at.slots {
		r.values[slot] = v
	}
	return i, ok
}

// named finds the child by its name. No pointer names half a character.
func (s *selector) named(name value) *selector {
	if name.kind != kindEscaped {
		return s.member(name.raw)
	}
	if text, exact := appendUnescaped(nil, name.raw); exact {
		return s.member(text)
	}
	return nil
}

// itemReader reads the values that an event needs.
type itemReader struct {
	objectReader
	ids, types         []slot
	time, subject, key slot
	timeOptional       bool
}

func newItemReader(preset resource, keyPointer string) (itemReader, error) {
	r := itemReader{timeOptional: preset.timeOptional}
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
	var ok bool
	if e.Time, ok = r.values[r.time].integer(); ok {
		return
	}
	if kind := r.values[r.time].kind; r.timeOptional && (kind == kindNone || kind == kindNull) {
		e.Time = bridge.NoTime
		return
	}
	e.Time, e.Defect = 0, bridge.DefectTime
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
