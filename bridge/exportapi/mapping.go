package exportapi

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/jsonpointer"
)

// none is the setting for a value or parameter that the API does not have.
const none = "none"

// ItemMapping configures where the values of an item are. Each list has JSON pointers, of
// which the first with a value counts, or is none. Empty means those of the resource.
type ItemMapping struct {
	ItemID         []string `env:"EXPORT_ITEM_ID" stream:"yes" desc:"JSON pointers to the id of an item, the first with a value counts; none identifies items by the hash of their bytes; empty for the resource's" example:"/eventId,/id"`
	ItemTime       []string `env:"EXPORT_ITEM_TIME" stream:"yes" desc:"JSON pointers to the time of an item, the first with a value counts; none for items without a time, whose records carry the publish time, also as the last entry where an item may have none; empty for the resource's" example:"/timestamp"`
	ItemTimeFormat string   `env:"EXPORT_ITEM_TIME_FORMAT" stream:"yes" values:"ms,s,us,rfc3339,rfc3339-utc,none" desc:"format of the times of an item: milliseconds, seconds or microseconds since the epoch, as a number or its digits in a string, RFC 3339, the same where a time without a zone is UTC, or none; each may have a fraction"`
	ItemIngested   []string `env:"EXPORT_ITEM_INGESTED" stream:"yes" desc:"JSON pointers to the time at which the API took an item in, in the same format, or none; empty for the resource's" example:"/systemTimestamp"`
	ItemType       []string `env:"EXPORT_ITEM_TYPE" stream:"yes" desc:"JSON pointers to the type of an item, the end of ce_type, or none; empty for the resource's" example:"/payload/type"`
	ItemSubject    []string `env:"EXPORT_ITEM_SUBJECT" stream:"yes" desc:"JSON pointers to the value of ce_subject, or none; empty for the resource's" example:"/userId"`
}

// pointers are the JSON pointers to the values of an item. Nil means that items have no
// such value.
type pointers struct {
	ids, times, ingested, types, subjects []string
	// timeOptional is set if an item may have no time.
	timeOptional bool
}

// Undated reports whether items have no time.
func (m *ItemMapping) Undated() bool {
	return m.ItemTimeFormat == none || isNone(m.ItemTime)
}

// IDs returns the pointers to the ids of items for a checkpoint: empty for those of the
// resource, none if items have no ids.
func (c *Config) IDs() string {
	at := c.pointersOf(c.Resource).ids
	if slices.Equal(at, presets[c.Resource].ids) {
		return ""
	}
	return cmp.Or(strings.Join(at, ","), none)
}

func isNone(set []string) bool { return len(set) == 1 && set[0] == none }

// orNone removes none from the end of a list, and reports whether it was there: an item may
// then lack the value.
func orNone(set []string) (pointers []string, optional bool) {
	if last := len(set) - 1; last > 0 && set[last] == none {
		return set[:last], true
	}
	return set, false
}

// pointersOf returns the pointers of the settings, or those of the resource where a setting
// is empty.
func (m *ItemMapping) pointersOf(resource string) pointers {
	preset := presets[resource]
	choose := func(set, preset []string) []string {
		switch {
		case isNone(set):
			return nil
		case len(set) > 0:
			return set
		}
		return preset
	}
	times, optional := orNone(m.ItemTime)
	p := pointers{
		ids: choose(m.ItemID, preset.ids), times: choose(times, preset.times),
		ingested: choose(m.ItemIngested, preset.ingested),
		types:    choose(m.ItemType, preset.types), subjects: choose(m.ItemSubject, preset.subjects),
	}
	if m.ItemTimeFormat == none {
		p.times, p.ingested = nil, nil
	}
	p.timeOptional = preset.timeOptional || optional || len(p.times) == 0
	return p
}

// check reports all problems of the settings.
func (m *ItemMapping) check(p *bridge.Problems) {
	times, _ := orNone(m.ItemTime)
	for _, s := range []struct {
		variable string
		set      []string
		example  string
		isTime   bool
	}{
		{"EXPORT_ITEM_ID", m.ItemID, "/eventId,/id", false},
		{"EXPORT_ITEM_TIME", times, "/timestamp", true},
		{"EXPORT_ITEM_INGESTED", m.ItemIngested, "/systemTimestamp", true},
		{"EXPORT_ITEM_TYPE", m.ItemType, "/payload/type", false},
		{"EXPORT_ITEM_SUBJECT", m.ItemSubject, "/userId", false},
	} {
		if isNone(s.set) {
			continue
		}
		for i, pointer := range s.set {
			err := checkEntry(pointer, i > 0)
			p.Check(err == nil, s.variable, "%q: %v, for example %s", pointer, err, s.example)
			p.Check(!slices.Contains(s.set[:i], pointer), s.variable, "%q is listed twice, for example %s", pointer, s.example)
		}
		p.Check(!s.isTime || m.ItemTimeFormat != none || len(s.set) == 0, s.variable,
			"is set, but EXPORT_ITEM_TIME_FORMAT=none says that there are no times; "+
				"unset one of them, or set EXPORT_ITEM_TIME_FORMAT=rfc3339")
	}
}

// checkEntry returns why an entry of a list is not a JSON pointer to a member.
func checkEntry(pointer string, follows bool) error {
	switch _, err := jsonpointer.Parse(pointer); {
	case pointer == "":
		return errors.New("an empty JSON pointer selects the whole item")
	case pointer == none:
		return errors.New("none must stand alone, or last in EXPORT_ITEM_TIME")
	case follows && pointer[0] != '/':
		return errors.New("each JSON pointer must begin with /; " +
			"a comma separates pointers, so a name with a comma cannot be selected")
	default:
		return err
	}
}
