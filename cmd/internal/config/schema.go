package config

import (
	"reflect"
	"regexp"
	"strings"
)

// jsonSchema is the part of JSON Schema that the settings need.
type jsonSchema struct {
	Dialect              string                 `json:"$schema,omitempty"`
	Ref                  string                 `json:"$ref,omitempty"`
	Title                string                 `json:"title,omitempty"`
	Description          string                 `json:"description,omitempty"`
	Type                 []string               `json:"type,omitempty"`
	Enum                 []string               `json:"enum,omitempty"`
	Const                *string                `json:"const,omitempty"`
	Pattern              string                 `json:"pattern,omitempty"`
	Default              string                 `json:"default,omitempty"`
	Examples             []string               `json:"examples,omitempty"`
	WriteOnly            bool                   `json:"writeOnly,omitempty"`
	AnyOf                []*jsonSchema          `json:"anyOf,omitempty"`
	Properties           map[string]*jsonSchema `json:"properties,omitempty"`
	PatternProperties    map[string]*jsonSchema `json:"patternProperties,omitempty"`
	PropertyNames        *jsonSchema            `json:"propertyNames,omitempty"`
	AdditionalProperties any                    `json:"additionalProperties,omitempty"` // false, or a schema
	DependentSchemas     map[string]*jsonSchema `json:"dependentSchemas,omitempty"`
	Items                *jsonSchema            `json:"items,omitempty"`
	MinItems             int                    `json:"minItems,omitempty"`
	Required             []string               `json:"required,omitempty"`
	Defs                 map[string]*jsonSchema `json:"$defs,omitempty"`
}

// Schema returns the JSON Schema of an object with a member for every variable, its
// _FILE form, and the forms for one stream. No member is required, because each
// value may come from elsewhere.
func Schema(vars []Variable) *jsonSchema {
	s := &jsonSchema{
		Dialect:              "https://json-schema.org/draft/2020-12/schema",
		Title:                "Settings of exportbridge",
		Description:          "Environment variables by name. An empty value is as none.",
		Type:                 []string{"object"},
		Properties:           make(map[string]*jsonSchema),
		PatternProperties:    make(map[string]*jsonSchema),
		AdditionalProperties: false,
		DependentSchemas:     make(map[string]*jsonSchema),
	}
	for i := range vars {
		v := &vars[i]
		inFile := v.Name + FileSuffix
		s.Properties[v.Name] = v.schema()
		s.Properties[inFile] = v.fileSchema()
		s.DependentSchemas[inFile] = notBoth(v.Name, inFile)
		if v.stream {
			s.PatternProperties["^STREAM_[A-Z0-9_]+_"+v.Name+"$"] = &jsonSchema{Ref: "#/properties/" + v.Name}
			s.PatternProperties["^STREAM_[A-Z0-9_]+_"+inFile+"$"] = &jsonSchema{Ref: "#/properties/" + inFile}
		}
	}
	return s
}

func (v *Variable) fileSchema() *jsonSchema {
	return &jsonSchema{Description: "path of a file that holds " + v.Name, Type: []string{"string"}}
}

// notBoth requires that one of two members is empty or missing.
func notBoth(a, b string) *jsonSchema {
	empty := func(name string) *jsonSchema {
		return &jsonSchema{Properties: map[string]*jsonSchema{name: {Const: new("")}}}
	}
	return &jsonSchema{AnyOf: []*jsonSchema{empty(a), empty(b)}}
}

// Patterns of the values that decode accepts. They accept a number out of range too.
const (
	integerPattern = `^([+-]?[0-9]+)?$`
	booleanPattern = `^(1|t|T|TRUE|true|True|0|f|F|FALSE|false|False)?$`
	sizePattern    = `^([+-]?[0-9]+|[0-9.,]+\s*([kKmMgGtTpPeE]?[iI]?[bB]?)\s*)?$`

	durationUnits   = `(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))`
	isoSeconds      = `[0-9]+(\.[0-9]+)?S`
	isoTime         = `T([0-9]+H([0-9]+M)?(` + isoSeconds + `)?|[0-9]+M(` + isoSeconds + `)?|` + isoSeconds + `)`
	durationPattern = `^(-?([0-9]+d|([0-9]+d)?(` + durationUnits + `+|0)|P([0-9]+D(` + isoTime + `)?|` + isoTime + `)))?$`
)

// schema describes the value of the variable: text as in the environment, or the
// number or truth value itself.
func (v *Variable) schema() *jsonSchema {
	s := &jsonSchema{
		Description: v.docsMeaning(),
		Type:        []string{"string"},
		Default:     v.def,
		WriteOnly:   v.Secret,
	}
	if v.sample != "" {
		s.Examples = []string{v.sample}
	}
	switch {
	case v.isDuration():
		s.Pattern = durationPattern
		return s
	case v.bytes:
		s.Type, s.Pattern = []string{"string", "integer"}, sizePattern
		return s
	}
	switch v.typ.Kind() {
	case reflect.Bool:
		s.Type, s.Pattern = []string{"string", "boolean"}, booleanPattern
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s.Type, s.Pattern = []string{"string", "integer"}, integerPattern
	case reflect.Slice:
		if len(v.Values) > 0 {
			s.Pattern = listPattern(v.Values)
		}
	default:
		if len(v.Values) > 0 {
			s.Enum = append([]string{""}, v.Values...)
		}
	}
	return s
}

// listPattern matches a list of some of the values.
func listPattern(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = regexp.QuoteMeta(value)
	}
	item := `\s*(` + strings.Join(quoted, "|") + `)?\s*`
	return "^" + item + "(," + item + ")*$"
}
