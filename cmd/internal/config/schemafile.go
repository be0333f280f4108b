package config

import (
	"reflect"
	"slices"
	"strings"
)

// FileSchema returns the JSON Schema of the file that BRIDGE_CONFIG names. A secret has only
// the member for its file.
func FileSchema(vars []Variable) *jsonSchema {
	settings := closedObject("settings of the process, and of all its streams")
	stream := closedObject("settings of one stream")
	for i := range vars {
		v := &vars[i]
		if v.Name == configVariable || v.Name == streamsVariable {
			continue
		}
		inFile := v.Name + FileSuffix
		members := map[string]*jsonSchema{inFile: v.fileSchema()}
		if !v.Secret || mayBeHarmless(v) {
			members[v.Name] = v.yamlSchema()
			settings.DependentSchemas[inFile] = notBoth(v.Name, inFile)
		}
		for name, member := range members {
			settings.Properties[name] = member
			if v.stream {
				stream.Properties[name] = &jsonSchema{Ref: "#/properties/settings/properties/" + name}
			}
		}
	}
	ref := &jsonSchema{Ref: "#/$defs/stream"}
	name := &jsonSchema{Type: []string{"string", "integer"}, Pattern: streamName.String()}
	byName := func(description string) *jsonSchema {
		return &jsonSchema{
			Description: description, Type: []string{"object", "null"},
			PropertyNames: &jsonSchema{Pattern: name.Pattern}, AdditionalProperties: ref,
		}
	}
	template := closedObject("many streams with the same settings; {name} in a value is the name of the stream")
	template.Required = []string{"for"}
	template.Properties = map[string]*jsonSchema{
		"for": {
			Description: "path of a file with one name a line, relative to this file, or a list of names",
			AnyOf:       []*jsonSchema{{Type: []string{"string"}}, {Type: []string{"array"}, Items: name, MinItems: 1}},
		},
		"settings":  ref,
		"overrides": byName("further settings of some of the streams, by name"),
	}
	root := closedObject("the streams of a process; flags and variables take precedence")
	root.Dialect, root.Title = "https://json-schema.org/draft/2020-12/schema", "Streams of exportbridge"
	root.Type = []string{"object"}
	root.Defs = map[string]*jsonSchema{"stream": stream}
	root.Properties = map[string]*jsonSchema{
		"settings": settings, "streams": byName("streams by name, each with settings of its own"),
		"templates": {Type: []string{"array"}, Items: template},
	}
	return root
}

// closedObject is a mapping without unknown members. Without any member it is null.
func closedObject(description string) *jsonSchema {
	return &jsonSchema{
		Description: description, Type: []string{"object", "null"}, AdditionalProperties: false,
		Properties: make(map[string]*jsonSchema), DependentSchemas: make(map[string]*jsonSchema),
	}
}

// yamlSchema describes the value of a variable in YAML. There, text without quotes may be a
// number or a truth value, and a list may be a sequence. A rate is no number: it has a unit.
func (v *Variable) yamlSchema() *jsonSchema {
	s := v.schema()
	if len(s.Enum) == 0 && !strings.HasSuffix(v.Name, "_RATE_LIMIT") {
		for _, kind := range []string{"number", "boolean"} {
			if v.typ.Kind() == reflect.String && !slices.Contains(s.Type, kind) {
				s.Type = append(s.Type, kind)
			}
		}
	}
	if v.typ.Kind() == reflect.Slice {
		s.Type = append(s.Type, "array")
	}
	return s
}
