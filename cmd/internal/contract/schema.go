package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"exportbridge/bridge"
)

// Schema is a compiled JSON Schema of events. It can be used concurrently.
type Schema struct{ root *jsonschema.Schema }

// Compile reads a JSON Schema: of draft 2020-12, unless it names another one. The schema
// refers to no other file.
func Compile(text string) (*Schema, error) {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	switch document.(type) {
	case bool, map[string]any:
	default:
		return nil, errors.New("a schema is an object, true or false")
	}
	if at := extremes(document, nil, nil); len(at) > 0 {
		return nil, fmt.Errorf("/%s %s", strings.Join(at[0], "/"), extreme)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noFiles{})
	const name = "schema:///events"
	if err := compiler.AddResource(name, document); err != nil {
		return nil, err
	}
	root, err := compiler.Compile(name)
	if err != nil {
		return nil, err
	}
	return &Schema{root}, nil
}

// noFiles rejects references to other files: a command would read them from another folder
// than the next one, or from the network.
type noFiles struct{}

func (noFiles) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not in the file; put it below $defs", url)
}

// Compare returns the differences of an event: where it breaks the schema, and its members
// that the schema does not mention. An object whose schema lists no members, or allows others
// in so many words, may have any.
func (s *Schema) Compare(event []byte) []bridge.Difference {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(event))
	if err != nil {
		return []bridge.Difference{{Text: "is not JSON"}}
	}
	c := comparison{root: s.root, value: value}
	for _, at := range extremes(value, make([]string, 0, 16), nil) {
		c.add(c.pointer(at), extreme)
	}
	if len(c.found) > 0 {
		return c.found
	}
	if broken, ok := errors.AsType[*jsonschema.ValidationError](s.root.Validate(value)); ok {
		c.addBroken(broken)
	}
	c.addUnknown([]*jsonschema.Schema{s.root}, value, "")
	return c.found
}

const (
	// maxExponent and maxDigits bound the numbers that are compared, beyond those of a float64.
	maxExponent, maxDigits = 400, 1000

	extreme = "is a number out of range"
)

// extremes appends the locations of the numbers in a value that are out of range. The library
// would compute for seconds with them, or panic.
func extremes(value any, at []string, found [][]string) [][]string {
	switch value := value.(type) {
	case map[string]any:
		for name, part := range value {
			found = extremes(part, append(at, name), found)
		}
	case []any:
		for i, part := range value {
			found = extremes(part, append(at, strconv.Itoa(i)), found)
		}
	case json.Number:
		digits, exponent, _ := strings.Cut(strings.ToLower(value.String()), "e")
		n, err := strconv.Atoi(cmp.Or(exponent, "0"))
		if err != nil || max(n, -n) > maxExponent || len(digits) > maxDigits {
			return append(found, slices.Clone(at))
		}
	}
	return found
}

// comparison is the comparison of one event.
type comparison struct {
	root  *jsonschema.Schema
	value any
	found []bridge.Difference
	known map[bridge.Difference]bool // those in found: items of an array have the same ones
}

func (c *comparison) add(pointer, text string) {
	d := bridge.Difference{Pointer: pointer, Text: text}
	if c.known == nil {
		c.known = make(map[bridge.Difference]bool)
	}
	if !c.known[d] {
		c.known[d] = true
		c.found = append(c.found, d)
	}
}

// addBroken adds what breaks the schema. Of alternatives, it adds that none fits.
func (c *comparison) addBroken(e *jsonschema.ValidationError) {
	at := c.pointer(e.InstanceLocation)
	switch why := e.ErrorKind.(type) {
	case *kind.Type:
		c.add(at, "is "+why.Got+", want "+strings.Join(why.Want, " or "))
	case *kind.Required:
		for _, name := range why.Missing {
			c.add(at+"/"+escape.Replace(name), "is missing")
		}
	case *kind.AdditionalProperties:
		for _, name := range why.Properties {
			c.add(at+"/"+escape.Replace(name), unknown)
		}
	case *kind.AnyOf, *kind.OneOf, *kind.Not, *kind.Contains:
		c.add(at, "breaks "+keywordOf(e))
	default:
		if len(e.Causes) == 0 {
			c.add(at, "breaks "+keywordOf(e))
		}
		for _, cause := range e.Causes {
			c.addBroken(cause)
		}
	}
}

// unknown is the difference of a member that the schema does not mention.
const unknown = "is not in the schema"

func keywordOf(e *jsonschema.ValidationError) string {
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		return path[0]
	}
	return "the schema"
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer returns the pointer of a difference.
func (c *comparison) pointer(location []string) string {
	var pointer strings.Builder
	schemas, value := []*jsonschema.Schema{c.root}, c.value
	for _, step := range location {
		name := "*"
		switch within := value.(type) {
		case map[string]any:
			var listed bool
			if schemas, listed = memberOf(schemas, step); listed || len(schemas) == 0 {
				name = escape.Replace(step)
			}
			value = within[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(within) {
				return pointer.String()
			}
			schemas, value = itemOf(schemas, i), within[i]
		}
		pointer.WriteString("/" + name)
	}
	return pointer.String()
}

// addUnknown adds the members of a value that none of its schemas mentions.
func (c *comparison) addUnknown(schemas []*jsonschema.Schema, value any, at string) {
	switch value := value.(type) {
	case map[string]any:
		closed := closed(schemas)
		for name, part := range value {
			parts, listed := memberOf(schemas, name)
			here := at + "/" + escape.Replace(name)
			if len(parts) == 0 {
				if closed {
					c.add(here, unknown)
				}
				continue
			}
			if !listed {
				here = at + "/*"
			}
			c.addUnknown(parts, part, here)
		}
	case []any:
		for i, part := range value {
			c.addUnknown(itemOf(schemas, i), part, at+"/*")
		}
	}
}

// applied returns the schemas with all that they apply to the same value.
func applied(schemas []*jsonschema.Schema) []*jsonschema.Schema {
	if !slices.ContainsFunc(schemas, applies) {
		return schemas
	}
	var all []*jsonschema.Schema
	seen := make(map[*jsonschema.Schema]bool)
	var take func(...*jsonschema.Schema)
	take = func(some ...*jsonschema.Schema) {
		for _, s := range some {
			if s == nil || seen[s] {
				continue
			}
			seen[s] = true
			all = append(all, s)
			take(s.Ref, s.RecursiveRef, s.If, s.Then, s.Else)
			take(s.AllOf...)
			take(s.AnyOf...)
			take(s.OneOf...)
			for _, dependent := range s.DependentSchemas {
				take(dependent)
			}
			if s.DynamicRef != nil {
				take(s.DynamicRef.Ref)
			}
		}
	}
	take(schemas...)
	return all
}

// applies reports whether a schema applies others to the same value.
func applies(s *jsonschema.Schema) bool {
	return s.Ref != nil || s.RecursiveRef != nil || s.DynamicRef != nil || s.If != nil || s.Then != nil || s.Else != nil ||
		len(s.AllOf)+len(s.AnyOf)+len(s.OneOf)+len(s.DependentSchemas) > 0
}

// closed reports whether the schemas list members and none of them allows others.
func closed(schemas []*jsonschema.Schema) bool {
	lists := false
	for _, s := range applied(schemas) {
		if s.AdditionalProperties == true || s.UnevaluatedProperties != nil {
			return false
		}
		lists = lists || len(s.Properties)+len(s.PatternProperties) > 0 || s.AdditionalProperties != nil
	}
	return lists
}

// memberOf returns the schemas of a member, and whether one lists its name.
func memberOf(schemas []*jsonschema.Schema, name string) (of []*jsonschema.Schema, listed bool) {
	for _, s := range applied(schemas) {
		part, matched := s.Properties[name]
		if matched {
			of, listed = append(of, part), true
		}
		for pattern, part := range s.PatternProperties {
			if pattern.MatchString(name) {
				of, matched = append(of, part), true
			}
		}
		if part, ok := s.AdditionalProperties.(*jsonschema.Schema); ok && !matched {
			of = append(of, part)
		}
	}
	return of, listed
}

// itemOf returns the schemas of an item of an array.
func itemOf(schemas []*jsonschema.Schema, i int) (of []*jsonschema.Schema) {
	for _, s := range applied(schemas) {
		before, _ := s.Items.([]*jsonschema.Schema)
		before = append(before, s.PrefixItems...)
		rest := s.Items2020
		if part, ok := s.Items.(*jsonschema.Schema); ok {
			rest = part
		}
		if part, ok := s.AdditionalItems.(*jsonschema.Schema); ok {
			rest = part
		}
		switch {
		case i < len(before):
			of = append(of, before[i])
		case rest != nil:
			of = append(of, rest)
		}
	}
	return of
}
