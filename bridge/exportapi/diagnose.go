package exportapi

import (
	"fmt"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/guess"
	"exportbridge/bridge/exportapi/internal/itemtime"
)

// maxSearched is the size in bytes of the largest item that is decoded to search it.
// Decoding takes many times that memory.
const maxSearched = 1 << 20

// diagnose returns why an item is read wrongly, and which setting to change; both are empty
// if nothing is wrong. Neither contains values of the item, which may be personal data.
func (m *mapping) diagnose(e *bridge.Event) (why, remedy string) {
	if e.Defect == bridge.DefectNotObject {
		return "it is not an object", "set EXPORT_ITEMS_FIELD to the array of the items"
	}
	if e.Defect == bridge.DefectBadText {
		return "it has bytes that are not text: not UTF-8, a control character, an unknown escape, or NaN",
			"have it repaired at its origin; it is published as a dead letter"
	}
	if e.Defect == bridge.DefectPrivate {
		return "a rule for private data cannot be applied with certainty: a member occurs twice, or a value on its way is " +
				"of another kind, or it has values to encrypt and no subject",
			"set EVENT_DROP, EVENT_HASH, EVENT_MASK, EVENT_ENCRYPT and EVENT_SUBJECT to pointers that suit all items"
	}
	at, format := m.pointersOf(m.resource).times, timeFormats[m.ItemTimeFormat]
	if e.Defect == bridge.DefectNone && (e.Time == bridge.NoTime || guess.Plausible(e.Time)) {
		return "", ""
	}
	if len(e.Raw) > maxSearched {
		return "it has no plausible time at " + strings.Join(at, " or "),
			"set EXPORT_ITEM_TIME and EXPORT_ITEM_TIME_FORMAT to those of its time"
	}
	item := guess.Decode(e.Raw)
	for _, pointer := range at {
		v := guess.ValueAt(item, pointer)
		if !v.Present() {
			continue
		}
		likely, ok := guess.FormatOf(v)
		switch {
		case ok && likely != format:
			return fmt.Sprintf("its time at %s is in the format %s, not %s", pointer, likely, format),
				"set EXPORT_ITEM_TIME_FORMAT=" + likely.String() + provided(likely)
		case e.Defect == bridge.DefectNone: // the clock of a client may be wrong
			return "", ""
		}
		return fmt.Sprintf("its time at %s, %s, is in no known format (ms, s, us, rfc3339, rfc3339-utc)", pointer, v.Kind),
			"set EXPORT_ITEM_TIME to a time, or EXPORT_ITEM_TIME=none to publish with the publish time"
	}
	why = "it has no time at " + strings.Join(at, " or ")
	if found := guess.Times(item); len(found) > 0 {
		remedy = "set EXPORT_ITEM_TIME=" + found[0].Pointer
		if found[0].Format != format {
			remedy += " and EXPORT_ITEM_TIME_FORMAT=" + found[0].Format.String() + provided(found[0].Format)
		}
		return why, remedy
	}
	return why, "set EXPORT_ITEM_TIME to its time, or EXPORT_ITEM_TIME=none to publish with the publish time"
}

// provided returns the condition for using a format, which follows the setting in a remedy.
func provided(format itemtime.Format) string {
	if format == itemtime.RFC3339UTC {
		return " if its times, which name no zone, are UTC"
	}
	return ""
}
