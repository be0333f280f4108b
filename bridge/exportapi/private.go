package exportapi

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/pick"
	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/exportapi/redact"
	"exportbridge/bridge/seal"
)

// private applies the rules for private data to the items of a client.
type private struct {
	*redact.Redactor
	// id is set if a rule changes the ids of items, values if one changes any value of an
	// event.
	id, values bool
	keys       seal.Keys // nil if no rule encrypts
	// single is set if all values that change are a key, or a subject, that has one pointer and
	// is hashed as a whole: their hashes are all that an event needs.
	single       bool
	key, subject bool // which of the two change
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
	rules, _ := cfg.rules()
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

// redaction returns the settings of the rules for private data, with the default of the subject.
func (c *Config) redaction() redact.Config {
	own := c.Private
	own.Subject = cmp.Or(own.Subject, c.keyPointer())
	return own
}

// rules compiles the rules for private data.
func (c *Config) rules() (*redact.Rules, error) {
	own := c.redaction()
	return own.Compile()
}

// privatePointers returns the pointers to what the rules look for.
func (c *Config) privatePointers() []string {
	own := c.redaction()
	at := own.Pointers()
	if own.Encrypts() {
		at = append(at, own.Subject)
	}
	return at
}

// ruled reports whether rules can be applied to an item: it is a JSON object.
func ruled(e *bridge.Event) bool {
	return e.Defect != bridge.DefectBadText && e.Defect != bridge.DefectNotObject
}

// subjectKeys returns the key of each item of a page, nil for one without a subject.
func (h *private) subjectKeys(p *bridge.Page) ([]*seal.Key, error) {
	if h.keys == nil {
		return nil, nil
	}
	notes, _ := p.Notes.(*scan.Extents)
	var subjects []string
	known, of := make(map[string]int), make([]int, len(p.Events))
	for i := range p.Events {
		of[i] = -1
		e := &p.Events[i]
		if !ruled(e) {
			continue
		}
		h.Known = notes.Of(p.Body, e.Raw, e.Index)
		if s := h.Subject(e.Raw); s != nil {
			n, again := known[string(s)]
			if !again {
				n = len(subjects)
				subjects, known[string(s)] = append(subjects, string(s)), n
			}
			of[i] = n
		}
	}
	found, err := h.keys.Of(subjects)
	if err != nil {
		return nil, err
	}
	keys := make([]*seal.Key, len(p.Events))
	for i, n := range of {
		if n >= 0 {
			keys[i] = found[n]
		}
	}
	return keys, nil
}

// hide applies the rules, if there are any, to the items of a page. An item with uncertain
// private data keeps no bytes and no values, apart from an id that no rule changes.
func (h *private) hide(p *bridge.Page, with *decoders) error {
	if h == nil {
		return nil
	}
	keys, err := h.subjectKeys(p)
	if err != nil {
		p.Events, p.Items = p.Events[:0], 0
		return err
	}
	d := with.borrow()
	defer with.giveBack(d)
	d.item.extra = 0
	sums := make([]bridge.Sums, len(p.Events))
	notes, _ := p.Notes.(*scan.Extents)
	out := h.memory(p)
	for i := range p.Events {
		e := &p.Events[i]
		e.Sums = &sums[i]
		if sums[i] = bridge.NewSums(h.identify, e.Raw, e.ID, h.id); e.ID == nil {
			sums[i].Keyed() // now, beside the commits: the record needs it
		}
		from := len(out)
		err := redact.ErrUncertain
		if h.Label == "" || ruled(e) { // the key alone hides nothing
			if keys != nil {
				h.Key = keys[i]
			}
			h.Known = notes.Of(p.Body, e.Raw, e.Index)
			if out, err = h.Apply(out, e.Raw); err != nil {
				if e.Defect == bridge.DefectTime { // its time is undefined
					e.Time = bridge.NoTime
				}
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
		e.Raw, sums[i].Replaced = out[from:len(out):len(out)], h.Replaced
		if h.values && !h.rehash(e, item, out) {
			d.reread(e, item)
		}
	}
	p.Extra += d.item.extra + max(0, int64(len(out)+len(p.Body)-h.room(len(p.Body))))
	return nil
}

// room returns the memory of a page of some bytes and of what the rules leave of it. Hashes may
// be longer than their texts.
func (h *private) room(size int) int {
	if h == nil {
		return size
	}
	return 2*size + size/8
}

// memory returns memory for what the rules leave of a page: that behind its body.
func (h *private) memory(p *bridge.Page) []byte {
	size := len(p.Body)
	if room := h.room(size); cap(p.Body) < room {
		return make([]byte, 0, room-size)
	}
	return p.Body[size:size]
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

// reread sets the event's values, apart from its time, by its changed bytes. item has its bytes
// as received: a hash of what is no id is no id either.
func (d *pageDecoder) reread(e *bridge.Event, item []byte) {
	defer d.scan.Reset(nil)
	id := pick.Slot(-1)
	if e.ID != nil && len(d.item.ids) > 1 {
		d.readValid(item)
		id = d.item.idSlot()
	}
	d.readValid(e.Raw)
	var now bridge.Event
	d.item.fill(&now)
	switch {
	case id >= 0:
		e.ID = d.item.plain(id).ID()
	case e.ID != nil:
		e.ID = now.ID
	}
	e.Key, e.Type, e.Subject, e.Route = now.Key, now.Type, now.Subject, now.Route
}

// readValid reads the values of an item that was read before.
func (d *pageDecoder) readValid(item []byte) {
	d.scan.Reset(item)
	_, _ = d.item.Read(&d.scan, 0)
}

// checkPrivate reports the rules that do not fit the mapping.
func (c *Config) checkPrivate(p *bridge.Problems) {
	rules, err := c.rules()
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
	routes := make([]string, len(c.Routes.Rules))
	for i := range c.Routes.Rules {
		routes[i] = c.Routes.Rules[i].Pointer
	}
	for _, read := range []struct {
		what, setting string
		at            []string
	}{
		{"type", "EXPORT_ITEM_TYPE", at.types}, {"key", "KAFKA_KEY", []string{c.keyPointer()}},
		{"topic", "KAFKA_ROUTES", routes},
	} {
		for _, at := range read.at {
			if r := rules.Touching(at); at != "" && r != nil && r.Encrypts() {
				p.Check(false, r.Variable, "%s changes %s, from which the %s of a record is read; "+
					"use narrower pointers, EVENT_HASH=%s, or another %s", r.Pointer, at, read.what, at, read.setting)
			}
		}
	}
	refuse("by which the stream knows late items; set EXPORT_ITEM_INGESTED=none", false, at.ingested...)
	if c.cursorIn() == inLastItem {
		refuse("which is the next cursor", false, "/"+strings.TrimPrefix(c.CursorField, "/"))
	}
}
