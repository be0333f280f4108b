package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Variable is one setting: a field of a package's Config struct that has an
// env tag. Its name is an environment variable; the flag's name follows from it.
type Variable struct {
	Name        string
	index       []int // path of the field in its Config struct
	typ         reflect.Type
	env         string // the env tag as go-envconfig reads it
	def         string // "" is no default
	required    bool
	Secret      bool // never shown, has no flag
	stream      bool // may be overridden per stream
	bytes       bool // a size: accepts 64MiB
	Values      []string
	Description string
	sample      string
}

// variablesOf lists the settings of a Config struct in the order of its
// fields. Structs without an env tag of their own are walked; pointers are
// left alone.
func variablesOf(t reflect.Type) []Variable {
	var vars []Variable
	for field := range t.Fields() {
		if !field.IsExported() {
			continue
		}
		tag, tagged := field.Tag.Lookup("env")
		if !tagged {
			if field.Type.Kind() == reflect.Struct {
				for _, v := range variablesOf(field.Type) {
					v.index = slices.Concat(field.Index, v.index)
					vars = append(vars, v)
				}
			}
			continue
		}
		v := Variable{
			index:       field.Index,
			typ:         field.Type,
			env:         tag,
			Secret:      field.Tag.Get("secret") == "yes",
			stream:      field.Tag.Get("stream") == "yes",
			bytes:       field.Tag.Get("unit") == "bytes",
			Description: field.Tag.Get("desc"),
			sample:      field.Tag.Get("example"),
		}
		if list := field.Tag.Get("values"); list != "" {
			v.Values = strings.Split(list, ",")
		}
		v.Name, v.def, v.required = parseEnvTag(tag)
		vars = append(vars, v)
	}
	return vars
}

// parseEnvTag takes apart the tag `NAME, required` or `NAME, default=...` as
// go-envconfig does: a default runs to the end of the tag, commas included.
func parseEnvTag(tag string) (name, def string, required bool) {
	name, rest, _ := strings.Cut(tag, ",")
	for rest != "" {
		option := strings.TrimLeft(rest, " ")
		if value, ok := strings.CutPrefix(option, "default="); ok {
			return strings.TrimSpace(name), value, required
		}
		option, rest, _ = strings.Cut(rest, ",")
		required = required || strings.TrimSpace(option) == "required"
	}
	return strings.TrimSpace(name), "", required
}

// FlagName is the name of the variable's flag: KAFKA_BROKERS is --kafka-brokers.
func (v *Variable) FlagName() string {
	return strings.ReplaceAll(strings.ToLower(v.Name), "_", "-")
}

// group is the system that the variable is about, from its prefix.
func (v *Variable) group() string {
	prefix, _, _ := strings.Cut(v.Name, "_")
	return prefix
}

// shownDefault is the default as somebody would write it: 16MiB, 30d.
func (v *Variable) shownDefault() string {
	switch {
	case v.def == "":
		return ""
	case v.bytes:
		if n, err := strconv.ParseInt(v.def, 10, 64); err == nil {
			return formatBytes(n)
		}
	case v.isDuration():
		if d, err := time.ParseDuration(v.def); err == nil {
			return FormatDuration(d)
		}
	}
	return v.def
}

// example is a value that would be accepted.
func (v *Variable) example() string {
	switch {
	case v.sample != "":
		return v.sample
	case v.def != "":
		return v.shownDefault()
	case len(v.Values) > 0:
		return v.Values[0]
	case v.isDuration():
		return "30s"
	case v.bytes:
		return "64MiB"
	}
	switch v.typ.Kind() {
	case reflect.Bool:
		return "true"
	case reflect.String, reflect.Slice:
		return ""
	default:
		return "1"
	}
}

func (v *Variable) isDuration() bool { return v.typ == reflect.TypeFor[time.Duration]() }

// Kind names the form of the value for the settings table.
func (v *Variable) Kind() string {
	switch {
	case len(v.Values) > 0:
		return strings.Join(v.Values, ", ")
	case v.isDuration():
		return "duration"
	case v.bytes:
		return "size"
	}
	switch v.typ.Kind() {
	case reflect.Bool:
		return "true, false"
	case reflect.Slice:
		return "list"
	case reflect.String:
		return "text"
	default:
		return "number"
	}
}

// formatBytes writes n in the largest binary unit that divides it.
func formatBytes(n int64) string {
	for _, unit := range []struct {
		size uint64
		name string
	}{{humanize.GiByte, "GiB"}, {humanize.MiByte, "MiB"}, {humanize.KiByte, "KiB"}} {
		if n > 0 && uint64(n)%unit.size == 0 {
			return fmt.Sprintf("%d%s", uint64(n)/unit.size, unit.name)
		}
	}
	return strconv.FormatInt(n, 10)
}

// FormatDuration writes d in Go syntax without trailing zero units, and whole
// days from two days on as 30d.
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
