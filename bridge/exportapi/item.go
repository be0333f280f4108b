package exportapi

import (
	"slices"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/itemtime"
	"exportbridge/bridge/exportapi/internal/pick"
	"exportbridge/bridge/exportapi/internal/scan"
)

// itemReader reads the values of an event.
type itemReader struct {
	pick.Reader
	ids, types, subjects, times []pick.Slot
	key                         pick.Slot
	routes                      []bridge.Route
	routed                      []pick.Slot // the values that routes compare; -1 is the type
	format                      itemtime.Format
	timeOptional                bool
	extra                       int64 // of the page so far, see bridge.Page
}

func newItemReader(m *mapping) itemReader {
	at := m.pointersOf(m.resource)
	r := itemReader{timeOptional: at.timeOptional, format: timeFormats[m.ItemTimeFormat]}
	r.ids, r.types, r.times = r.Want(at.ids...), r.Want(at.types...), r.Want(at.times...)
	r.subjects, r.key = r.Want(at.subjects...), r.Want(m.key)[0]
	for i := range m.routes {
		slot := pick.Slot(-1)
		if pointer := m.routes[i].Pointer; pointer != "" {
			slot = r.Want(pointer)[0]
		}
		r.routes, r.routed = m.routes, append(r.routed, slot)
	}
	r.Reread(m.ruled...)
	return r
}

// plain returns the value of a slot without escapes. A value with escapes is unescaped
// once, for all slots that share it.
func (r *itemReader) plain(s pick.Slot) scan.Value {
	v := r.Values[s]
	if v.Kind != scan.Escaped {
		return v
	}
	text, exact := v.Text()
	r.extra += int64(len(text))
	for i := range r.Values {
		if at := &r.Values[i]; exact && len(at.Raw) > 0 && &at.Raw[0] == &v.Raw[0] {
			*at = scan.Value{Raw: text, Kind: scan.String}
		}
	}
	return r.Values[s]
}

// first returns the first non-nil text of the slots.
func (r *itemReader) first(slots []pick.Slot, text func(scan.Value) []byte) []byte {
	for _, s := range slots {
		if t := text(r.plain(s)); t != nil {
			return t
		}
	}
	return nil
}

// idSlot returns the slot of the item's id.
func (r *itemReader) idSlot() pick.Slot {
	i := slices.IndexFunc(r.ids, func(s pick.Slot) bool { return r.plain(s).ID() != nil })
	return r.ids[i]
}

// fill sets the event's fields from the values read.
func (r *itemReader) fill(e *bridge.Event) {
	e.ID = r.first(r.ids, scan.Value.ID)
	e.Type, e.Subject = r.first(r.types, scan.Value.Name), r.first(r.subjects, scan.Value.Name)
	r.extra += int64(len(e.Type))
	e.Key, _ = r.plain(r.key).Text()
	e.Route = r.route(e.Type)
	for _, s := range r.times {
		if v := &r.Values[s]; v.Present() {
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

// route returns the Event.Route of an item.
func (r *itemReader) route(eventType []byte) uint8 {
	for i, slot := range r.routed {
		value := eventType
		if slot >= 0 {
			value, _ = r.plain(slot).Text()
		}
		if r.routes[i].Matches(value) {
			return r.routes[i].To
		}
	}
	return 0
}

// ingestionReader reads the ingestion time of items.
type ingestionReader struct {
	scan   scan.Scanner
	item   pick.Reader
	slots  []pick.Slot
	format itemtime.Format
}

func newIngestionReader(m *mapping) *ingestionReader {
	r := &ingestionReader{format: timeFormats[m.ItemTimeFormat]}
	r.slots = r.item.Want(m.pointersOf(m.resource).ingested...)
	return r
}

// read returns the ingestion time of an item in milliseconds since the epoch, or 0.
func (r *ingestionReader) read(item []byte) int64 {
	if len(r.slots) == 0 {
		return 0
	}
	r.scan.Reset(item)
	defer r.scan.Reset(nil)
	defer r.item.Forget()
	i := scan.SkipSpace(item, 0)
	if r.scan.KindAt(i) != scan.Object {
		return 0
	}
	if _, ok := r.item.Read(&r.scan, i); !ok {
		return 0
	}
	for _, s := range r.slots {
		if v := &r.item.Values[s]; v.Present() {
			ms, _ := v.Millis(r.format)
			return ms
		}
	}
	return 0
}

// identityReader reads the identity of the export from the metadata: the slugs, which
// survive renaming, or else the names.
type identityReader struct {
	pick.Reader
	organization, workspace, application []pick.Slot
	// last is reused from page to page, since it rarely changes.
	last bridge.SourceIdentity
}

func newIdentityReader() (r identityReader) {
	slots := func(name string) []pick.Slot {
		at := "/" + name
		return r.Want(at+"/slug", at+"Slug", at+"/name", at+"Name", at)
	}
	r.organization, r.workspace, r.application = slots("organization"), slots("workspace"), slots("application")
	return r
}

// maxIdentity bounds the bytes of a name in the identity: it is in each checkpoint.
const maxIdentity = 256

// identity returns the identity in the metadata.
func (r *identityReader) identity() bridge.SourceIdentity {
	r.last.Organization = r.part(r.last.Organization, r.organization)
	r.last.Workspace = r.part(r.last.Workspace, r.workspace)
	r.last.Application = r.part(r.last.Application, r.application)
	return r.last
}

// part returns the first text of the slots. It returns before, the same string of the last
// page, if both are equal.
func (r *identityReader) part(before string, slots []pick.Slot) string {
	for _, s := range slots {
		if len(r.Values[s].Raw) > 6*maxIdentity { // an escape has six bytes
			continue
		}
		switch text := r.Values[s].Name(); {
		case text == nil || len(text) > maxIdentity || r.Values[s].Kind == scan.Number || r.Values[s].Kind == scan.Boolean:
		case string(text) == before:
			return before
		default:
			return string(text)
		}
	}
	return ""
}
