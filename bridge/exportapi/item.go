package exportapi

import (
	"errors"

	"exportbridge/bridge"
)

// objectReader reads selected values of an object in one pass. The last of
// duplicate members counts, as in most parsers.
type objectReader struct {
	root   selector
	values []value
}

// want selects the value at the pointer and returns its slot.
func (r *objectReader) want(pointer string) (slot, error) {
	s := slot(len(r.values))
	r.values = append(r.values, value{})
	return s, r.root.add(pointer, s)
}

// read reads the object at i.
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

// member reads one value. The longest pointer bounds its depth.
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

// named finds the child by its name. Pointers never name unpaired surrogates.
func (s *selector) named(name value) *selector {
	if name.kind != kindEscaped {
		return s.member(name.raw)
	}
	if text, exact := appendUnescaped(nil, name.raw); exact {
		return s.member(text)
	}
	return nil
}

// itemReader reads the values of an event.
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

// fill sets the event's fields from the values read.
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

// identityReader reads the identity of the export from the metadata: the slug,
// which survives renaming, otherwise the name.
type identityReader struct {
	objectReader
	organization, workspace, application []slot
	// last is reused from page to page, since it rarely changes.
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

// forget clears the values of the previous page.
func (r *identityReader) forget() { clear(r.values) }

// identity returns the identity in the metadata.
func (r *identityReader) identity() bridge.SourceIdentity {
	r.last.Organization = r.part(r.last.Organization, r.organization)
	r.last.Workspace = r.part(r.last.Workspace, r.workspace)
	r.last.Application = r.part(r.last.Application, r.application)
	return r.last
}

// part returns the first text found, reusing the previous string if it is
// equal.
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
