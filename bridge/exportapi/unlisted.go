package exportapi

import (
	"bytes"
	"encoding/json"
	"errors"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/nextlink"
	"exportbridge/bridge/exportapi/internal/problem"
	"exportbridge/bridge/exportapi/jsonpointer"
)

// unlisted judges a decoded page whose cursor is known. One that has an error beside its items may
// lack others. One without an array of items may be empty, since many APIs omit an empty list or
// write null.
//
// An empty page ends or skips results. So something must show that the page is the API's
// own: null for the items, a next cursor or its member, a member that says whether more
// follow, nothing at all after pages with items, or EXPORT_EMPTY_BODY_ENDS. And nothing may
// show that the items are elsewhere, or that the page is an error with status 200.
func (r *pageReader) unlisted(p *bridge.Page, d *pageDecoder) *bridge.Fault {
	if p.Items > 0 && r.cfg.OnPartial != partialIgnored {
		for _, raw := range d.errors {
			if said, failed := problem.InPage(objectIn(jsonpointer.Wrap("errors", raw))); failed {
				return r.faults.inPage(p.At, said, "beside the items of a page", "if no item is missing, set EXPORT_ON_PARTIAL=ignore; ")
			}
		}
	}
	var object map[string]any
	large := len(p.Body) > maxSearched // see maxSearched
	if d.foreign && p.Items == 0 && (!large || !d.listed || p.Next == "") {
		if large {
			return schemaFault(d.items.fault("it has no items, but more than %d bytes of other members", maxSearched))
		}
		object = objectIn(p.Body)
	}
	if d.listed { // an error may have an empty list
		if said, failed := problem.InPage(object); failed {
			return r.faults.inPage(p.At, said, "in place of a page", "")
		}
		r.listed.CompareAndSwap(false, !bytes.Equal(p.Body, r.nothing))
		return nil
	}
	known := d.items.seen || p.Next != "" || d.more != nil && d.more.seen ||
		d.cursor.part != nil && d.cursor.part.seen
	if said, failed := problem.InPage(object); failed || !known && said != "" {
		return r.faults.inPage(p.At, said, "in place of a page", "")
	}
	if d.items.seen {
		return nil
	}
	if at := nextlink.Elsewhere(object, r.cfg.ItemsField, r.cfg.metadata()); at != "" {
		return schemaFault(d.items.fault("it has no %s, but a list at %s", d.items, at))
	}
	if known || r.cfg.EmptyBodyEnds || !d.foreign && (p.At.Cursor != "" || r.listed.Load()) {
		return nil
	}
	fault := schemaFault(d.items.fault("it has no %s", d.items))
	fault.Hint += "; if the API leaves it out where there are no events, set EXPORT_EMPTY_BODY_ENDS=true"
	return fault
}

// objectIn decodes a valid body. It returns nil for an array.
func objectIn(body []byte) (object map[string]any) {
	_ = json.Unmarshal(body, &object)
	return object
}

// inPage returns the fault of an error that the API sends with status 200.
func (f *faults) inPage(at bridge.Position, said, where, hint string) *bridge.Fault {
	text := "200 with an error " + where
	if said = f.clean(at, said); said != "" && !f.cfg.Private.Set() {
		text = said + ": " + text
	}
	return &bridge.Fault{Code: codeDecode, Err: errors.New(text),
		Hint: hint + "if it persists, act on what the API says, or check EXPORT_URL and EXPORT_PATH"}
}

// isEmpty reports whether a body has nothing but white space.
func isEmpty(body []byte) bool { return len(bytes.TrimLeft(body, " \t\r\n")) == 0 }
