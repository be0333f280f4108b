package learn

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/exportapi/jsonpointer"
)

// itemDepth is the maximum depth of the members of an item that are searched.
const itemDepth = 4

var (
	exactID  = regexp.MustCompile(`(?i)^/[@_]?(id|uuid|guid|(event|log|entry|record|document)_?id|document_id)$`)
	likelyID = regexp.MustCompile(`(?i)(^|[/_@])(id|uuid|guid)$|[a-z](Id|ID|Uuid)$`)
)

// root is the value of EXPORT_ITEMS_FIELD for a page that is an array.
const root = "root"

// listing is the first page with its items. It does not change.
type listing struct {
	*exportapi.Outline
	list   string // JSON pointer or name of the list
	items  []map[string]any
	fields []field // the members that all items have
	// times are the members that look like the time of an item, the likeliest first.
	times []exportapi.ItemTime
}

// newListing finds the items of a page.
func newListing(o *exportapi.Outline) (*listing, error) {
	if len(o.Lists) == 0 {
		return nil, errors.New("the page has no list of objects: ask for one with items, and check what the URL returns")
	}
	items := o.Items(o.Lists[0])
	return &listing{Outline: o, list: o.Lists[0], items: items, fields: fields(items), times: times(items)}, nil
}

// describe sets the id, time, type and key of the items, by the names and values of their members.
func (l *listing) describe(p profile) {
	l.findID(p)
	l.findTime(p)
	l.findType(p)
	l.findKey(p)
}

// field is a member that is a text or a number in all items.
type field struct {
	pointer string
	values  []string
	numbers bool
}

// fields returns the members that all items have.
func fields(items []map[string]any) (all []field) {
	flat := make([]map[string]any, len(items))
	for i, item := range items {
		flat[i] = make(map[string]any)
		flatten(item, "", flat[i], 1)
	}
	for _, pointer := range slices.Sorted(maps.Keys(flat[0])) {
		f := field{pointer: pointer, numbers: true}
		for _, inside := range flat {
			switch v := inside[pointer].(type) {
			case json.Number:
				f.values = append(f.values, v.String())
			case string:
				f.values, f.numbers = append(f.values, v), false
			}
		}
		if len(f.values) == len(items) {
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b field) int {
		return strings.Count(a.pointer, "/") - strings.Count(b.pointer, "/")
	})
	return all
}

// flatten puts the texts and numbers of an object into a map, by their JSON pointers.
func flatten(object map[string]any, at string, into map[string]any, depth int) {
	for name, value := range object {
		if strings.Contains(name, ",") { // which separates pointers
			continue
		}
		pointer := jsonpointer.Append(at, name)
		switch v := value.(type) {
		case map[string]any:
			if depth < itemDepth {
				flatten(v, pointer, into, depth+1)
			}
		case string:
			if v != "" {
				into[pointer] = v
			}
		case json.Number:
			into[pointer] = v
		}
	}
}

// unique reports whether no two values are equal.
func (f *field) unique() bool { return distinct(f.values) == len(f.values) }

// repeats reports whether a value comes at least twice on average, as types do. Names of persons and
// objects seldom do.
func repeats(values []string) bool { return 2*distinct(values) <= len(values) }

// distinct counts the values without their repeats.
func distinct(values []string) int {
	return len(slices.Compact(slices.Sorted(slices.Values(values))))
}

// varies reports whether two values differ.
func (f *field) varies() bool {
	return slices.ContainsFunc(f.values, func(value string) bool { return value != f.values[0] })
}

// times returns the members that look like the time of an item, the likeliest first. A member with
// the same seconds as the likeliest one, and with fractions, is likelier.
func times(items []map[string]any) []exportapi.ItemTime {
	all := exportapi.ItemTimes(items)
	finer := slices.IndexFunc(all, func(t exportapi.ItemTime) bool {
		same := func(a, b int64) bool { return a/1000*1000 == b }
		return !wholeSeconds(t.Times) && slices.EqualFunc(t.Times, all[0].Times, same)
	})
	if finer > 0 {
		t := all[finer]
		all = slices.Insert(slices.Delete(all, finer, finer+1), 0, t)
	}
	return all
}

// wholeSeconds reports whether no time has a fraction of a second.
func wholeSeconds(times []int64) bool {
	return !slices.ContainsFunc(times, func(at int64) bool { return at%1000 != 0 })
}

func (l *listing) isTime(pointer string) bool {
	return slices.ContainsFunc(l.times, func(t exportapi.ItemTime) bool { return t.Pointer == pointer })
}

// sorted returns the times of the items, the oldest first.
func (l *listing) sorted() []int64 { return slices.Sorted(slices.Values(l.times[0].Times)) }

func (l *listing) findID(p profile) {
	var exact, likely []string
	for _, f := range l.fields {
		switch {
		case !f.unique():
		case exactID.MatchString(f.pointer):
			exact = append(exact, f.pointer)
		case likelyID.MatchString(f.pointer):
			likely = append(likely, f.pointer)
		}
	}
	candidates := slices.Concat(exact, likely)
	if len(candidates) == 0 {
		p.ask("EXPORT_ITEM_ID", "no member looks like a unique id: items are identified by the hash of their bytes")
		return
	}
	p.set("EXPORT_ITEM_ID", candidates[0], "unique on the pages that were read")
	if rest := candidates[1:]; len(exact) != 1 && len(rest) > 0 {
		p.ask("EXPORT_ITEM_ID", "also unique: "+strings.Join(rest, ", "))
	}
}

func (l *listing) findTime(p profile) {
	if len(l.times) == 0 {
		p.set("EXPORT_ITEM_TIME", none, "")
		p.set("EXPORT_ITEM_TIME_FORMAT", none, "")
		p.ask("EXPORT_ITEM_TIME", "no member looks like a time: records would carry the publish time")
		return
	}
	p.set("EXPORT_ITEM_TIME", l.times[0].Pointer, "a time in every item")
	p.set("EXPORT_ITEM_TIME_FORMAT", l.times[0].Format, "")
	if l.times[0].Format == "rfc3339-utc" {
		p.ask("EXPORT_ITEM_TIME_FORMAT", "the times name no zone and are taken for UTC")
	}
	var others []string
	for _, t := range l.times[1:] {
		others = append(others, t.Pointer+" ("+t.Format+")")
	}
	if len(others) > 0 {
		p.ask("EXPORT_ITEM_TIME", "also times: "+strings.Join(others, ", "))
	}
}

// forwards says why the list cannot be followed by a cursor: its items come newest first. It
// returns "" for any other list.
func (l *listing) forwards(p profile) string {
	if len(l.times) == 0 {
		return ""
	}
	falls, rises := 0, 0
	for i, at := range l.times[0].Times[1:] {
		switch before := l.times[0].Times[i]; {
		case at < before:
			falls++
		case at > before:
			rises++
		}
	}
	switch {
	case falls > 2*rises:
		return "the API lists newest first, by " + l.times[0].Pointer
	case falls == 0 && rises == 0:
		p.ask("EXPORT_ITEM_TIME", "the items have equal times: check that the API lists oldest first")
	default:
		p.because("EXPORT_ITEM_TIME", "a time in every item, oldest first")
	}
	return ""
}

// exactTime returns the latest time of an item that a bound can name without rounding. Other
// items must be later. It returns 0 if there is no such time.
func (l *listing) exactTime(unit int64) (exact int64) {
	times := l.times[0]
	newest := slices.Max(times.Times)
	for _, f := range l.fields {
		for i, text := range f.values {
			if at := times.Times[i]; f.pointer == times.Pointer && at < newest && at%unit == 0 && inMillis(text, times.Format) {
				exact = max(exact, at)
			}
		}
	}
	return exact
}

// inMillis reports whether a time has no fraction of a millisecond.
func inMillis(text, format string) bool {
	if !strings.HasPrefix(format, "rfc3339") {
		return !strings.ContainsAny(text, ".eE") && (format != "us" || strings.HasSuffix(text, "000"))
	}
	_, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimRight(fraction[:len(fraction)-len(strings.TrimLeft(fraction, "0123456789"))], "0")
	return len(digits) <= 3
}

// newestFirst is the error of a list whose cursor leads to older events.
func newestFirst(why string) *UnfollowableError {
	return &UnfollowableError{
		why + ": its cursor leads to older events, not to new ones, and cannot be followed",
		"ask for ascending order in the curl command, for example with order=asc or sort=timestamp, if the API has that; " +
			"if it takes a start and an end, put both into the curl command, so that learn tries them",
	}
}

// anyCursor sets that the cursor is in a Link header, if the page is an array: it has no members.
func (l *listing) anyCursor(p profile) {
	if l.list == root {
		p.set("EXPORT_CURSOR_IN", "link", "")
	}
}
