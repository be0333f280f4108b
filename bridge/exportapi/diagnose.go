package exportapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/itemtime"
	"exportbridge/bridge/exportapi/internal/jsonpointer"
	"exportbridge/bridge/exportapi/internal/scan"
)

// maxSearched bounds the items that are searched for a time: decoded, they take
// many times their bytes.
const maxSearched = 1 << 20

// diagnose says what is wrong with how an item is read, and which setting to
// set. It shows no values: items hold personal data.
func (c *Config) diagnose(e *bridge.Event) (why, remedy string) {
	if e.Defect == bridge.DefectNotObject {
		return "it is not an object", "set EXPORT_ITEMS_FIELD to the array of the items"
	}
	if e.Defect == bridge.DefectBadText {
		return "it has bytes that are no text: not UTF-8, a control character, an unknown escape, or NaN", "have it repaired where it is stored; it is published as a dead letter"
	}
	at, format := c.over(presets[c.Resource].pointers).times, timeFormats[c.ItemTimeFormat]
	if e.Defect == bridge.DefectNone && (e.Time == bridge.NoTime || plausible(e.Time)) {
		return "", ""
	}
	if len(e.Raw) > maxSearched {
		return "it has no plausible time at " + strings.Join(at, " or "), "set EXPORT_ITEM_TIME and EXPORT_ITEM_TIME_FORMAT to those of its time"
	}
	item := decodeItem(e.Raw)
	for _, pointer := range at {
		v := valueAt(item, pointer)
		if !v.Present() {
			continue
		}
		likely, ok := likelyFormat(v)
		switch {
		case ok && likely != format:
			return fmt.Sprintf("its time at %s is in the format %s, not %s", pointer, likely, format), "set EXPORT_ITEM_TIME_FORMAT=" + likely.String() + provided(likely)
		case e.Defect == bridge.DefectNone: // a client's clock may be anywhere
			return "", ""
		}
		return fmt.Sprintf("its time at %s, %s, is in no known format (ms, s, us, rfc3339, rfc3339-utc)", pointer, v.Kind),
			"set EXPORT_ITEM_TIME to a time, or EXPORT_ITEM_TIME=none to publish with the publish time"
	}
	why = "it has no time at " + strings.Join(at, " or ")
	if found := findTimes(item, "", 1); len(found) > 0 {
		remedy = "set EXPORT_ITEM_TIME=" + found[0].pointer
		if found[0].format != format {
			remedy += " and EXPORT_ITEM_TIME_FORMAT=" + found[0].format.String() + provided(found[0].format)
		}
		return why, remedy
	}
	return why, "set EXPORT_ITEM_TIME to its time, or EXPORT_ITEM_TIME=none to publish with the publish time"
}

// provided says what a format takes for granted.
func provided(format itemtime.Format) string {
	if format == itemtime.RFC3339UTC {
		return " if its times, which name no zone, are UTC"
	}
	return ""
}

// plausible reports whether a time, in milliseconds since the epoch, may be
// that of an event: from 1990 to ten years from now.
func plausible(ms int64) bool {
	return ms >= 631_152_000_000 && ms < time.Now().AddDate(10, 0, 0).UnixMilli()
}

// likelyFormat returns the format in which a value is a plausible time.
func likelyFormat(v *scan.Value) (itemtime.Format, bool) {
	for f := itemtime.Millis; f <= itemtime.RFC3339UTC; f++ {
		if ms, ok := v.Millis(f); ok && plausible(ms) {
			return f, true
		}
	}
	return 0, false
}

// decodeItem decodes an item with its numbers as written; nil if it is not an
// object.
func decodeItem(raw []byte) (item any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&item) != nil {
		return nil
	}
	return item
}

// valueAt returns the value at a JSON pointer.
func valueAt(item any, pointer string) *scan.Value { return valueOf(memberAt(item, pointer)) }

// memberAt returns the decoded value at a JSON pointer, nil without one.
func memberAt(item any, pointer string) any {
	names, _ := jsonpointer.Parse(pointer) // New has checked it
	for _, name := range names {
		switch parent := item.(type) {
		case map[string]any:
			item = parent[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(parent) {
				return nil
			}
			item = parent[i]
		default:
			return nil
		}
	}
	return item
}

func valueOf(decoded any) *scan.Value {
	switch v := decoded.(type) {
	case nil:
		return &scan.Value{Kind: scan.Null}
	case string:
		return &scan.Value{Kind: scan.String, Raw: []byte(v)}
	case json.Number:
		return &scan.Value{Kind: scan.Number, Raw: []byte(v)}
	case bool:
		return &scan.Value{Kind: scan.Boolean}
	case []any:
		return &scan.Value{Kind: scan.Array}
	}
	return &scan.Value{Kind: scan.Object}
}

// foundTime is a member of an item that looks like its time.
type foundTime struct {
	pointer string
	format  itemtime.Format
	rank    int
}

var (
	timeName  = regexp.MustCompile(`(?i)time|date|ts$|(at|At|_at|on)$|publish|created|occur`)
	firstName = regexp.MustCompile(`(?i)^(@?timestamp|time|date|ts|published|occurred|created|event)`)
	laterName = regexp.MustCompile(`(?i)updat|modif|expir|delet|ingest|receiv|until|end`)
)

// findTimes returns the members of an item that look like its time, the best
// first, at most two levels deep.
func findTimes(item any, above string, level int) (found []foundTime) {
	object, ok := item.(map[string]any)
	if !ok {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		pointer := jsonpointer.Append(above, name)
		if level < 3 {
			found = append(found, findTimes(object[name], pointer, level+1)...)
		}
		v := valueOf(object[name])
		format, ok := likelyFormat(v)
		named := timeName.MatchString(name)
		if !ok || !named && format < itemtime.RFC3339 || strings.Contains(name, ",") { // a comma separates pointers
			continue
		}
		rank := 3 * level
		switch {
		case laterName.MatchString(name) || !named:
			rank += 2
		case !firstName.MatchString(name):
			rank++
		}
		found = append(found, foundTime{pointer, format, rank})
	}
	slices.SortStableFunc(found, func(a, b foundTime) int { return cmp.Compare(a.rank, b.rank) })
	return found
}
