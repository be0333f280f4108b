package exportapi

import (
	"sync"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/itemtime"
	"exportbridge/bridge/exportapi/internal/scan"
)

// objectReader reads selected values of an object in one pass. The last of
// duplicate members counts, as in most parsers.
type objectReader struct {
	root   selector
	values []scan.Value
}

// want selects the values at valid pointers and returns their slots.
func (r *objectReader) want(pointers ...string) (slots []slot) {
	for _, pointer := range pointers {
		s := slot(len(r.values))
		r.values = append(r.values, scan.Value{})
		r.root.add(pointer, s)
		slots = append(slots, s)
	}
	return slots
}

// read reads the object at i.
func (r *objectReader) read(s *scan.Scanner, i int) (end int, ok bool) {
	clear(r.values)
	return r.object(s, i, &r.root)
}

func (r *objectReader) object(s *scan.Scanner, i int, at *selector) (int, bool) {
	i, step := s.Open(i)
	for step == scan.More {
		name, end, ok := s.Name(i)
		if !ok {
			return end, false
		}
		if i, ok = scan.SkipColon(s.Body, end); !ok {
			return i, false
		}
		if i, ok = r.member(s, i, at.named(name)); !ok {
			return i, false
		}
		i, step = s.Next(i, '}')
	}
	return i, step == scan.Ended
}

func (r *objectReader) array(s *scan.Scanner, i int, at *selector) (int, bool) {
	i, step := s.Open(i)
	for n := 0; step == scan.More; n++ {
		var ok bool
		if i, ok = r.member(s, i, at.element(n)); !ok {
			return i, false
		}
		i, step = s.Next(i, ']')
	}
	return i, step == scan.Ended
}

// member reads one value. The longest pointer bounds its depth.
func (r *objectReader) member(s *scan.Scanner, i int, at *selector) (int, bool) {
	if at == nil {
		return s.Skip(i)
	}
	if len(at.children) > 0 {
		for _, slot := range at.below {
			r.values[slot] = scan.Value{}
		}
		switch s.KindAt(i) {
		case scan.Object:
			return r.object(s, i, at)
		case scan.Array:
			return r.array(s, i, at)
		}
	}
	v, i, ok := s.Read(i)
	for _, slot := range at.slots {
		r.values[slot] = v
	}
	return i, ok
}

// named finds the child by its name. Pointers never name unpaired surrogates.
func (s *selector) named(name scan.Value) *selector {
	if name.Kind != scan.Escaped {
		return s.member(name.Raw)
	}
	if text, exact := scan.AppendUnescaped(nil, name.Raw); exact {
		return s.member(text)
	}
	return nil
}

// itemReader reads the values of an event.
type itemReader struct {
	objectReader
	ids, types, subjects, times []slot
	key                         slot
	format                      itemtime.Format
	timeOptional                bool
	extra                       int64 // of the page so far, see bridge.Page
}

func newItemReader(cfg *Config, preset resource) itemReader {
	at := cfg.over(preset.pointers)
	r := itemReader{timeOptional: at.timeOptional, format: timeFormats[cfg.ItemTimeFormat]}
	r.ids, r.types, r.times, r.subjects = r.want(at.ids...), r.want(at.types...), r.want(at.times...), r.want(at.subjects...)
	r.key = r.want(cfg.keyPointer())[0]
	return r
}

// plain returns the value of a slot. One with escapes is unescaped once, for all slots
// of it.
func (r *itemReader) plain(s slot) scan.Value {
	v := r.values[s]
	if v.Kind != scan.Escaped {
		return v
	}
	text, exact := v.Text()
	r.extra += int64(len(text))
	for i := range r.values {
		if at := &r.values[i]; exact && len(at.Raw) > 0 && &at.Raw[0] == &v.Raw[0] {
			*at = scan.Value{Raw: text, Kind: scan.String}
		}
	}
	return r.values[s]
}

// first returns the first text of the slots that is not nil.
func (r *itemReader) first(slots []slot, text func(scan.Value) []byte) []byte {
	for _, s := range slots {
		if t := text(r.plain(s)); t != nil {
			return t
		}
	}
	return nil
}

// fill sets the event's fields from the values read.
func (r *itemReader) fill(e *bridge.Event) {
	e.ID = r.first(r.ids, scan.Value.ID)
	e.Type, e.Subject = r.first(r.types, scan.Value.Name), r.first(r.subjects, scan.Value.Name)
	r.extra += int64(len(e.Type))
	e.Key, _ = r.plain(r.key).Text()
	for _, s := range r.times {
		if v := &r.values[s]; v.Present() {
			var ok bool
			if e.Time, ok = v.Millis(r.format); !ok {
				e.Time, e.Defect = 0, bridge.DefectTime
			}
			return
		}
	}
	if e.Time = bridge.NoTime; !r.timeOptional {
		e.Time, e.Defect = 0, bridge.DefectTime
	}
}

// ingestionReader reads the ingestion time of items. Its methods may be called
// concurrently.
type ingestionReader struct {
	mu     sync.Mutex // guards the rest
	scan   scan.Scanner
	item   objectReader
	slots  []slot
	format itemtime.Format
}

func newIngestionReader(cfg *Config, preset resource) *ingestionReader {
	r := &ingestionReader{format: timeFormats[cfg.ItemTimeFormat]}
	r.slots = r.item.want(cfg.over(preset.pointers).ingested...)
	return r
}

// read returns the ingestion time of an item in milliseconds since the epoch,
// or 0.
func (r *ingestionReader) read(item []byte) int64 {
	if len(r.slots) == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scan.Reset(item)
	defer r.scan.Reset(nil)
	i := scan.SkipSpace(item, 0)
	if r.scan.KindAt(i) != scan.Object {
		return 0
	}
	if _, ok := r.item.read(&r.scan, i); !ok {
		return 0
	}
	for _, s := range r.slots {
		if v := &r.item.values[s]; v.Present() {
			ms, _ := v.Millis(r.format)
			return ms
		}
	}
	return 0
}

// identityReader reads the identity of the export from the metadata: the slug,
// which survives renaming, otherwise the name.
type identityReader struct {
	objectReader
	organization, workspace, application []slot
	// last is reused from page to page, since it rarely changes.
	last bridge.SourceIdentity
}

func newIdentityReader() (r identityReader) {
	slots := func(name string) []slot {
		at := "/" + name
		return r.want(at+"/slug", at+"Slug", at+"/name", at+"Name", at)
	}
	r.organization, r.workspace, r.application = slots("organization"), slots("workspace"), slots("application")
	return r
}

// maxIdentity bounds the bytes of a name in the identity: it is in each checkpoint.
const maxIdentity = 256

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
		if len(r.values[s].Raw) > 6*maxIdentity { // six bytes a character
			continue
		}
		switch text := r.values[s].Name(); {
		case text == nil || len(text) > maxIdentity || r.values[s].Kind == scan.Number || r.values[s].Kind == scan.Boolean:
		case string(text) == before:
			return before
		default:
			return string(text)
		}
	}
	return ""
}
