// Package guess finds members that look like the time of an item. It reads items that
// encoding/json has decoded.
package guess

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge/exportapi/internal/itemtime"
	"exportbridge/bridge/exportapi/internal/scan"
	"exportbridge/bridge/exportapi/jsonpointer"
)

// Plausible reports whether a time, in milliseconds since the epoch, is that of a possible
// event: from 1990 to ten years from now.
func Plausible(ms int64) bool {
	return ms >= 631_152_000_000 && ms < time.Now().AddDate(10, 0, 0).UnixMilli()
}

// FormatOf returns the first format in which a value is a plausible time.
func FormatOf(v *scan.Value) (itemtime.Format, bool) {
	for f := itemtime.Millis; f <= itemtime.RFC3339UTC; f++ {
		if ms, ok := v.Millis(f); ok && Plausible(ms) {
			return f, true
		}
	}
	return 0, false
}

// Decode decodes an item and keeps its numbers as written. It returns nil for invalid JSON.
func Decode(raw []byte) (item any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&item) != nil {
		return nil
	}
	return item
}

// ValueAt returns the value at a JSON pointer.
func ValueAt(item any, pointer string) *scan.Value { return valueOf(jsonpointer.At(item, pointer)) }

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

// Time is a member that looks like the time of its item.
type Time struct {
	Pointer string // as EXPORT_ITEM_TIME names it
	Format  itemtime.Format
	rank    int
}

var (
	// timeName matches the names of times. A time is likelier if firstName matches its
	// name, and less likely if laterName does.
	timeName  = regexp.MustCompile(`(?i)time|date|ts$|(at|At|_at|on)$|publish|created|occur`)
	firstName = regexp.MustCompile(`(?i)^(@?timestamp|time|date|ts|published|occurred|created|event)`)
	laterName = regexp.MustCompile(`(?i)updat|modif|expir|delet|ingest|receiv|until|end`)
)

// Times returns the members that look like the time of an item, the likeliest first. It
// searches the item and the objects in it, two levels down.
func Times(item any) []Time { return timesIn(item, "", 1) }

func timesIn(item any, above string, level int) (found []Time) {
	object, ok := item.(map[string]any)
	if !ok {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		pointer := jsonpointer.Append(above, name)
		if level < 3 {
			found = append(found, timesIn(object[name], pointer, level+1)...)
		}
		v := valueOf(object[name])
		format, ok := FormatOf(v)
		named := timeName.MatchString(name)
		if !ok || !named && format < itemtime.RFC3339 || strings.Contains(pointer, ",") { // a comma separates pointers
			continue
		}
		rank := 3 * level
		switch {
		case laterName.MatchString(name) || !named:
			rank += 2
		case !firstName.MatchString(name):
			rank++
		}
		found = append(found, Time{pointer, format, rank})
	}
	slices.SortStableFunc(found, func(a, b Time) int { return cmp.Compare(a.rank, b.rank) })
	return found
}
