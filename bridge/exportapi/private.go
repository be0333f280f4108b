package exportapi

import (
	"crypto/sha256"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/redact"
)

// private applies the rules for private data to the items of a client.
type private struct {
	*redact.Redactor
	// id is set if a rule changes the ids of items, values if one changes any value of an
	// event.
	id, values bool
	// single is set if all values that change are a key, or a subject, that has one pointer and
	// is hashed as a whole: their hashes are all that an event needs.
	single       bool
	key, subject bool // which of them change
	// identify is bound once, so that an item allocates no closure.
	identify func([]byte) [sha256.Size]byte
}

// Redacted names the rules for private data, as the header eb-redacted of records does. It
// is empty without rules, and if they are not valid.
func (c *Config) Redacted() string {
	h := newPrivate(c)
	switch {
	case h == nil || h.Label == "":
		return ""
	case h.id:
		return h.Label + bridge.IDsChanged
	}
	return h.Label
}

// newPrivate returns nil if no rules are set, or if they are not valid.
func newPrivate(cfg *Config) *private {
	rules, _ := cfg.Private.Compile()
	if rules == nil {
		return nil
	}
	touches := func(pointers ...string) bool {
		return slices.ContainsFunc(pointers, func(at string) bool { return at != "" && rules.Touching(at) != nil })
	}
	at := cfg.pointersOf(cfg.Resource)
	h := &private{Redactor: redact.NewRedactor(rules), id: touches(at.ids...)}
	h.identify = h.Identify
	routed := slices.ContainsFunc(cfg.Routes.Rules, func(r bridge.Route) bool { return touches(r.Pointer) })
	h.key, h.subject = touches(cfg.keyPointer()), touches(at.subjects...)
	others := h.id || routed || touches(at.types...)
	h.values = others || h.key || h.subject
	one := func(pointers ...string) bool {
		return !touches(pointers...) || len(pointers) == 1 && rules.Touching(pointers[0]).Hashes(pointers[0])
	}
	h.single = !others && one(cfg.keyPointer()) && one(at.subjects...)
	return h
}

// hide applies the rules to the items of a page. An item with uncertain private data keeps
// no bytes and no values, apart from an id that no rule changes.
func (h *private) hide(p *bridge.Page, with *decoders) {
	d := with.borrow()
	defer with.giveBack(d)
	d.item.extra = 0
	sums := make([]bridge.Sums, len(p.Events))
	out := make([]byte, 0, len(p.Body)+len(p.Body)/8)
	for i := range p.Events {
		e := &p.Events[i]
		e.Sums = &sums[i]
		if sums[i] = bridge.NewSums(h.identify, e.Raw, e.ID, h.id); e.ID == nil {
			sums[i].Keyed() // now, beside the commits: the record needs it
		}
		from := len(out)
		err := redact.ErrUncertain
		if e.Defect != bridge.DefectBadText && e.Defect != bridge.DefectNotObject {
			if out, err = h.Apply(out, e.Raw); err != nil {
				e.Defect = bridge.DefectPrivate
			}
		}
		if err != nil {
			e.Raw, e.Key, e.Type, e.Subject, e.Route = nil, nil, nil, nil, 0
			if h.id {
				e.ID = nil
			}
			continue
		}
		item := e.Raw
		e.Raw = out[from:len(out):len(out)]
		if h.values && !h.rehash(e, item, out) {
			d.reread(e)
		}
	}
	p.Extra += d.item.extra + int64(cap(out))
}

// rehash sets the event's key and subject to the hashes in out of texts in item. It reports
// whether these are all values that change; otherwise the changed item must be read again.
func (h *private) rehash(e *bridge.Event, item, out []byte) bool {
	texts, ok := h.Hashed()
	if !ok || !h.single {
		return false
	}
	found := func(value *[]byte) bool {
		for _, t := range texts {
			if len(*value) > 0 && &(*value)[0] == &item[t.At] {
				*value = out[t.From:t.To:t.To]
				return true
			}
		}
		return false
	}
	return (!h.key || found(&e.Key)) && (!h.subject || found(&e.Subject))
}

// reread sets the event's values, apart from its time, by its changed bytes. A hash of what
// is no id is no id either.
func (d *pageDecoder) reread(e *bridge.Event) {
	d.scan.Reset(e.Raw)
	defer d.scan.Reset(nil)
	_, _ = d.item.Read(&d.scan, 0) // valid, as it was
	var now bridge.Event
	d.item.fill(&now)
	if e.ID != nil {
		e.ID = now.ID
	}
	e.Key, e.Type, e.Subject, e.Route = now.Key, now.Type, now.Subject, now.Route
}

// checkPrivate reports the rules that do not fit the mapping.
func (c *Config) checkPrivate(p *bridge.Problems) {
	rules, err := c.Private.Compile()
	if p.Add(err); rules == nil {
		return
	}
	refuse := func(why string, hashes bool, pointers ...string) {
		for _, at := range pointers {
			if r := rules.Touching(at); r != nil && (!hashes || !r.Hashes(at)) {
				p.Check(false, r.Variable, "%s changes %s, %s", r.Pointer, at, why)
			}
		}
	}
	at := c.pointersOf(c.Resource)
	refuse("which identifies items; use EVENT_HASH="+strings.Join(at.ids, ",")+", or another EXPORT_ITEM_ID",
		true, at.ids...)
	refuse("by which the stream knows its position; choose another EXPORT_ITEM_TIME", false, at.times...)
	refuse("by which the stream knows late items; set EXPORT_ITEM_INGESTED=none", false, at.ingested...)
	if c.cursorIn() == inLastItem {
		refuse("which is the next cursor", false, "/"+strings.TrimPrefix(c.CursorField, "/"))
	}
}
