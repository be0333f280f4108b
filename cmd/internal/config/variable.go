package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Variable is one setting: a field of a package's Config struct that has an
// env tag. Its name is an environment variable; the flag's name follows from it.
type Variable struct {
	Name        string
	Description string
	Secret      bool     // never shown, has no flag
	Values      []string // the only ones, if any

	typ      reflect.Type
	def      string // as people write it: 16MiB, 30d; "" is no default
	required bool   // as the table says: Validate reports it if it is missing
	stream   bool   // may be overridden per stream
	bytes    bool   // a size: accepts 64MiB
	sample   string
}

// variablesOf lists the settings of a Config struct that holds the defaults, in
// the order of its fields. Structs without an env tag of their own are walked;
// pointers are left alone.
func variablesOf(defaults reflect.Value) []Variable {
	var vars []Variable
	for field, value := range defaults.Fields() {
		tag, tagged := field.Tag.Lookup("env")
		switch {
		case !field.IsExported():
		case tagged:
			v := Variable{
				Name:        tag,
				Description: field.Tag.Get("desc"),
				Secret:      field.Tag.Get("secret") == "yes",
				Values:      strings.FieldsFunc(field.Tag.Get("values"), func(r rune) bool { return r == ',' }),
				typ:         field.Type,
				required:    field.Tag.Get("required") == "yes",
				stream:      field.Tag.Get("stream") == "yes",
				bytes:       field.Tag.Get("unit") == "bytes",
				sample:      field.Tag.Get("example"),
			}
			v.def = v.format(value)
			vars = append(vars, v)
		case field.Type.Kind() == reflect.Struct:
			vars = append(vars, variablesOf(value)...)
		}
	}
	return vars
}

// format writes a value as people do: 16MiB, 30d. A zero value other than false is
// empty.
func (v *Variable) format(value reflect.Value) string {
	list, isList := reflect.TypeAssert[[]string](value)
	switch {
	case value.IsZero() && value.Kind() != reflect.Bool:
		return ""
	case v.isDuration():
		return FormatDuration(time.Duration(value.Int()))
	case v.bytes:
		return formatBytes(value.Int())
	case isList:
		return strings.Join(list, ",")
	case value.Kind() == reflect.String:
		return value.String() // a secret's, too
	}
	return fmt.Sprint(value.Interface())
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

// example is a value that would be accepted.
func (v *Variable) example() string {
	switch {
	case v.sample != "":
		return v.sample
	case v.def != "":
		return v.def
	case len(v.Values) > 0:
		return v.Values[0]
	case v.isDuration():
		return "30s"
	case v.bytes:
		return "64MiB"
	}
	if kind := v.typ.Kind(); kind == reflect.String || kind == reflect.Slice {
		return ""
	}
	return "1"
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

// Choices are values for a shell to offer: the only ones, or the default.
func (v *Variable) Choices() []string {
	switch {
	case v.Name == profileVariable:
		return ProfileNames()
	case len(v.Values) > 0:
		return v.Values
	case v.typ.Kind() == reflect.Bool:
		return []string{"true", "false"}
	case v.def != "" && !v.Secret:
		return []string{v.def}
	}
	return nil
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
