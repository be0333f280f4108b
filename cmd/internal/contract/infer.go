package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of an inferred schema.
const (
	// maxMembers is how many members an object has at most that are named one by one. The
	// names of more are taken for values, such as ids.
	maxMembers = 200
	// maxDepth is how deep a schema is at most. What lies deeper may be anything.
	maxDepth = 32
)

// Inference infers a JSON Schema from events. The zero value has seen none.
type Inference struct {
	Events int
	root   shape
}

// shape is what was seen of the values at one place.
type shape struct {
	seen, objects int
	kinds         map[string]bool // types of JSON Schema
	members       map[string]*shape
	others        *shape // of members whose names are values
	items         *shape
}

// Add adds an event.
func (f *Inference) Add(event []byte) error {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(event)))
	if err != nil {
		return fmt.Errorf("read event: %w", err)
	}
	f.Events++
	f.root.add(value, 0)
	return nil
}

func (s *shape) add(value any, depth int) {
	s.seen++
	if s.kinds == nil {
		s.kinds = make(map[string]bool)
	}
	switch value := value.(type) {
	case nil:
		s.kinds["null"] = true
	case bool:
		s.kinds["boolean"] = true
	case string:
		s.kinds["string"] = true
	case json.Number:
		if strings.ContainsAny(value.String(), ".eE") {
			s.kinds["number"] = true
		} else {
			s.kinds["integer"] = true
		}
	case []any:
		s.kinds["array"] = true
		for _, item := range value {
			if s.items == nil {
				s.items = new(shape)
			}
			if depth < maxDepth {
				s.items.add(item, depth+1)
			}
		}
	case map[string]any:
		s.kinds["object"] = true
		s.objects++
		for name, part := range value {
			if depth < maxDepth {
				s.member(name).add(part, depth+1)
			}
		}
	}
}

// member returns the shape of a member.
func (s *shape) member(name string) *shape {
	if s.others != nil {
		return s.others
	}
	if s.members == nil {
		s.members = make(map[string]*shape)
	}
	m, ok := s.members[name]
	switch {
	case ok:
	case len(s.members) == maxMembers:
		s.forgetNames()
		return s.others
	default:
		m = new(shape)
		s.members[name] = m
	}
	return m
}

// forgetNames has all members be one shape.
func (s *shape) forgetNames() {
	all := new(shape)
	for _, m := range s.members {
		all.merge(m)
	}
	s.members, s.others = nil, all
}

// merge adds what other has seen.
func (s *shape) merge(other *shape) {
	s.seen += other.seen
	s.objects += other.objects
	if s.kinds == nil {
		s.kinds = make(map[string]bool)
	}
	for kind := range other.kinds {
		s.kinds[kind] = true
	}
	for name, m := range other.members {
		s.member(name).merge(m)
	}
	if other.others != nil {
		if s.others == nil {
			s.forgetNames()
		}
		s.others.merge(other.others)
	}
	if other.items != nil {
		if s.items == nil {
			s.items = new(shape)
		}
		s.items.merge(other.items)
	}
}

// Inferred is a JSON Schema. Its JSON form is the schema.
type Inferred struct {
	Dialect    string               `json:"$schema,omitempty"`
	Comment    string               `json:"$comment,omitempty"`
	Title      string               `json:"title,omitempty"`
	Type       any                  `json:"type,omitempty"`
	Properties map[string]*Inferred `json:"properties,omitempty"`
	Required   []string             `json:"required,omitempty"`
	Others     *Inferred            `json:"additionalProperties,omitempty"`
	Items      *Inferred            `json:"items,omitempty"`
	Defs       map[string]*Inferred `json:"$defs,omitempty"`
}

// dialect is that of inferred schemas.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// OfTopics returns a schema with those of topics as definitions, see SchemaOf.
func OfTopics(schemas map[string]*Inferred) *Inferred {
	for _, s := range schemas {
		s.Dialect = ""
	}
	return &Inferred{Dialect: dialect, Defs: schemas}
}

// Schema returns the schema of the events. It requires the members that each of them has.
func (f *Inference) Schema(title, comment string) *Inferred {
	s := f.root.schema()
	s.Dialect, s.Title, s.Comment = dialect, title, comment
	return s
}

func (s *shape) schema() *Inferred {
	to := new(Inferred)
	var kinds []string
	for _, kind := range []string{"object", "array", "string", "number", "integer", "boolean", "null"} {
		if s.kinds[kind] && (kind != "integer" || !s.kinds["number"]) {
			kinds = append(kinds, kind)
		}
	}
	switch len(kinds) {
	case 0:
	case 1:
		to.Type = kinds[0]
	default:
		to.Type = kinds
	}
	for name, m := range s.members {
		if to.Properties == nil {
			to.Properties = make(map[string]*Inferred)
		}
		to.Properties[name] = m.schema()
		if m.seen == s.objects {
			to.Required = append(to.Required, name)
		}
	}
	slices.Sort(to.Required)
	if s.others != nil {
		to.Others = s.others.schema()
	}
	if s.items != nil {
		to.Items = s.items.schema()
	}
	return to
}
