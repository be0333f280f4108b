package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Variable is one setting: a field of a package's Config struct with an env tag.
// The name of the flag follows from the name of the variable.
type Variable struct {
	Name        string
	Description string
	Secret      bool     // never shown, has no flag
	Values      []string // the only valid values; empty if all are valid

	typ      reflect.Type
	def      string // default in the form 16MiB, 30d; "" for none
	required bool   // for the table; Validate reports a missing value
	stream   bool   // a stream may override it
	bytes    bool   // a size: accepts 64MiB
	sample   string // an example
}

// variablesOf lists the settings of a Config struct with the defaults, in the order
// of its fields. It includes those of structs in it, but not those behind pointers.
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

// format writes a value in the form 16MiB, 30d. It returns "" for a zero value other
// than false.
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
		return value.String() // Sprint would mask a secret
	}
	return fmt.Sprint(value.Interface())
}

// FlagName returns the name of the variable's flag: KAFKA_BROKERS is --kafka-brokers.
func (v *Variable) FlagName() string {
	return strings.ReplaceAll(strings.ToLower(v.Name), "_", "-")
}

// group returns the prefix of the variable, which names a system.
func (v *Variable) group() string {
	prefix, _, _ := strings.Cut(v.Name, "_")
	return prefix
}

// example returns a valid value, "" if none is known.
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

// Kind names the form of the value.
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

// Choices returns the values that a shell offers: the only valid ones, or the default.
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

// formatBytes writes n in its largest binary unit without a fraction.
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

// kafkaOrder is the order of the settings of Kafka in lists: records, topics, then
// the connection. The settings are those of several packages.
var kafkaOrder = strings.Fields(`
	KAFKA_BROKERS KAFKA_TOPIC KAFKA_DLQ_TOPIC KAFKA_RETENTION KAFKA_TIMESTAMP KAFKA_KEY KAFKA_CE_SOURCE
	KAFKA_CE_TYPE_PREFIX KAFKA_COMPRESSION KAFKA_MAX_MESSAGE_BYTES KAFKA_CHECKPOINT_TOPIC KAFKA_TRANSACTION_TIMEOUT
	KAFKA_CREATE_TOPICS KAFKA_PARTITIONS KAFKA_REPLICATION KAFKA_CLIENT_ID KAFKA_RACK
	KAFKA_TLS_ENABLED KAFKA_TLS_CA KAFKA_TLS_CERT KAFKA_TLS_KEY KAFKA_TLS_SKIP_VERIFY
	KAFKA_SASL_MECHANISM KAFKA_SASL_USERNAME KAFKA_SASL_PASSWORD KAFKA_SASL_OAUTH_TOKEN_URL KAFKA_SASL_OAUTH_SCOPES
	KAFKA_SASL_OAUTH_PARAMS KAFKA_SASL_OAUTH_EXTENSIONS KAFKA_SASL_OAUTH_TLS_CA KAFKA_SASL_INSECURE KAFKA_DELIVERY`)
