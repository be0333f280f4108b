package exportapi

import (
	"bytes"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi/internal/scan"
)

// oracleItem reads the values of an event, one pointer after the other.
type oracleItem struct {
	ids, types, subjects, times []string
	key                         string
	format                      string
	timeOptional                bool
	// repaired is set for a body with invalid text, see repair.
	repaired bool
	sentinel byte
	json     jsontext.Decoder
}

func newOracleItem(cfg *Config, preset resource) oracleItem {
	all := func(set, preset []string) []string {
		if len(set) == 0 {
			set = preset
		}
		return slices.DeleteFunc(slices.Clone(set), func(pointer string) bool { return pointer == "none" })
	}
	o := oracleItem{
		ids: all(cfg.ItemID, preset.ids), types: all(cfg.ItemType, preset.types),
		subjects: all(cfg.ItemSubject, preset.subjects),
		key:      cfg.keyPointer(), format: cfg.ItemTimeFormat,
	}
	if cfg.ItemTimeFormat != "none" {
		o.times = all(cfg.ItemTime, preset.times)
	}
	o.timeOptional = preset.timeOptional || len(o.times) == 0 || slices.Contains(cfg.ItemTime, "none")
	return o
}

// at returns the value at a pointer. Of duplicate members the last counts. An object or
// array that another pointer leads into has no value.
func (o *oracleItem) at(item []byte, pointer string) oracleValue {
	if pointer == "" {
		return nil
	}
	for name := range strings.SplitSeq(pointer[1:], "/") {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		if item = o.member(item, name); item == nil {
			return nil
		}
	}
	leads := func(other string) bool { return strings.HasPrefix(other, pointer+"/") }
	switch kind := jsontext.Value(item).Kind(); {
	case (kind == '{' || kind == '[') &&
		slices.ContainsFunc(slices.Concat(o.ids, o.types, o.subjects, o.times, []string{o.key}), leads):
		return nil
	case o.bad(item):
		return oracleValue("[]")
	}
	return item
}

// member returns the last member with the name, or the element with that index.
func (o *oracleItem) member(raw []byte, name string) (found []byte) {
	kind := jsontext.Value(raw).Kind()
	if kind != '{' && kind != '[' {
		return nil
	}
	o.json.Reset(bytes.NewBuffer(slices.Clip(raw)), oracleOptions...)
	_, _ = o.json.ReadToken() // the item is valid
	for i := 0; o.json.PeekKind() != '}' && o.json.PeekKind() != ']'; i++ {
		is := strconv.Itoa(i) == name
		if kind == '{' {
			literal, _ := o.json.ReadValue()
			is = oracleNameIs(literal, name) && !o.bad(literal)
		}
		if value, _ := o.json.ReadValue(); is {
			found = slices.Clone(value)
		}
	}
	return found
}

// first returns the first non-nil text at the pointers.
func (o *oracleItem) first(item []byte, pointers []string, text func(oracleValue) []byte) []byte {
	for _, pointer := range pointers {
		if t := text(o.at(item, pointer)); t != nil {
			return t
		}
	}
	return nil
}

// fill reads the event's fields from the item.
func (o *oracleItem) fill(e *bridge.Event, item []byte) {
	e.ID = o.first(item, o.ids, oracleValue.id)
	e.Type, e.Subject = o.first(item, o.types, oracleValue.name), o.first(item, o.subjects, oracleValue.name)
	e.Key, _ = o.at(item, o.key).text()
	for _, pointer := range o.times {
		raw := jsontext.Value(o.at(item, pointer))
		if len(raw) == 0 || raw.Kind() == 'n' || string(raw) == `""` {
			continue
		}
		var ok bool
		if e.Time, ok = oracleTime(raw, o.format); !ok {
			e.Time, e.Defect = 0, bridge.DefectTime
		}
		return
	}
	if e.Time = bridge.NoTime; !o.timeOptional {
		e.Time, e.Defect = 0, bridge.DefectTime
	}
}

var (
	oracleNumber = regexp.MustCompile(`^-?[0-9]{1,18}(\.[0-9]+)?$`)
	oracleDate   = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)[Tt ` +
		`](\d\d:\d\d:\d\d(?:\.\d+)?)(?:([Zz])|([+-](?:[01]\d|2[0-3])):?([0-5]\d))$`)
)

// oracleTime reads a time by fractions and package time.
func oracleTime(raw jsontext.Value, format string) (ms int64, ok bool) {
	if len(raw) == 0 {
		return 0, false
	}
	text := string(raw)
	if raw.Kind() == '0' && (format == "" || format == "ms") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, n != math.MinInt64
		}
	}
	if raw.Kind() != '0' {
		if raw.Kind() != '"' || len(raw) > scan.LongestTime+2 || raw[1] == '-' {
			return 0, false
		}
		decoded, _ := jsontext.AppendUnquote(nil, raw) // a surrogate is not a digit
		text = string(decoded)
		if strings.HasPrefix(text, "-") {
			return 0, false
		}
	}
	if format == "rfc3339" || format == "rfc3339-utc" {
		m := oracleDate.FindStringSubmatch(text)
		if m == nil && format == "rfc3339-utc" {
			m = oracleDate.FindStringSubmatch(text + "Z")
		}
		if m == nil || raw.Kind() == '0' {
			return 0, false
		}
		zone := "Z"
		if m[3] == "" {
			zone = m[4] + ":" + m[5]
		}
		clock, leap := m[2], m[2][6:8] == "60"
		if leap {
			clock = clock[:6] + "59"
		}
		t, err := time.Parse(time.RFC3339, m[1]+"T"+clock+zone)
		if leap {
			if t = t.Add(time.Second); t.Unix()%86400 != 0 {
				return 0, false
			}
		}
		if y := t.UTC().Year(); err != nil || y < 1 || y > 9999 {
			return 0, false
		}
		return t.UnixMilli(), true
	}
	if !oracleNumber.MatchString(text) {
		return 0, false
	}
	exact, _ := new(big.Rat).SetString(text)
	exact.Mul(exact, map[string]*big.Rat{"": big.NewRat(1, 1), "ms": big.NewRat(1, 1), "s": big.NewRat(1000, 1),
		"us": big.NewRat(1, 1000)}[format])
	whole := new(big.Int).Div(exact.Num(), exact.Denom()) // Euclidean: rounds down
	if y := time.UnixMilli(whole.Int64()).UTC().Year(); !whole.IsInt64() || y < 1 || y > 9999 {
		return 0, false
	}
	return whole.Int64(), true
}
