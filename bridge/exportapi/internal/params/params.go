// Package params parses static parameters, and puts the parameters of a request
// into a query or a JSON body.
package params

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge/exportapi/jsonpointer"
)

// Param is a static parameter.
type Param struct {
	Name, Value string
	// JSON is set if Value is a JSON value, given as name:=value, not text.
	JSON bool
	// Template is the value as it was given, if it has placeholders. Value then has them
	// too.
	Template string
}

// Start and End are the placeholders of the bounds of a request.
const (
	Start = "{start}"
	End   = "{end}"
)

var placeholder = regexp.MustCompile(`\{\w+\}`)

// Takes reports whether the value has a placeholder.
func (p Param) Takes(placeholder string) bool { return strings.Contains(p.Template, placeholder) }

// Bound reports whether the value is a placeholder and nothing else.
func (p Param) Bound() bool { return p.Template == Start || p.Template == End }

// Fill replaces the placeholders by the bounds, which need no escapes.
func (p Param) Fill(start, end string) Param {
	if p.Template != "" {
		p.Value, _ = url.PathUnescape(strings.NewReplacer(Start, start, End, end).Replace(p.Template)) // Parse has checked it
		p.Template = ""
	}
	return p
}

// Query returns the values of static parameters by name.
func Query(static []Param) url.Values {
	query := url.Values{}
	for _, p := range static {
		query.Add(p.Name, p.Value)
	}
	return query
}

// Any returns the value for a JSON body.
func (p Param) Any() any {
	if p.JSON {
		return json.RawMessage(p.Value)
	}
	return p.Value
}

// decoded returns a JSON value. Its numbers are as written.
func (p Param) decoded() (value any) {
	d := json.NewDecoder(strings.NewReader(p.Value))
	d.UseNumber()
	_ = d.Decode(&value) // Parse has checked it
	return value
}

// Canonical returns the value for comparisons. A JSON value follows a colon, without spaces
// and with sorted members, so 1 and "1" differ.
func (p Param) Canonical() string {
	switch {
	case !p.JSON:
		return p.Value
	case p.Template != "": // no JSON value before it is filled
		return ":" + p.Value
	}
	text, _ := json.Marshal(p.decoded()) // a decoded value always encodes
	return ":" + string(text)
}

// Texts returns the value, and the strings and numbers inside a JSON value. Of a value with
// placeholders it returns the texts between them.
func (p Param) Texts() []string {
	if p.Template != "" {
		return placeholder.Split(p.Value, -1)
	}
	texts := []string{p.Value}
	if !p.JSON {
		return texts
	}
	var add func(any)
	add = func(value any) {
		switch v := value.(type) {
		case string:
			texts = append(texts, v)
		case json.Number:
			texts = append(texts, v.String())
		case []any:
			for _, inside := range v {
				add(inside)
			}
		case map[string]any:
			for _, inside := range v {
				add(inside)
			}
		}
	}
	add(p.decoded())
	return texts
}

// Parse parses percent-encoded parameters, separated by commas or line breaks. A
// percent-encoded brace begins no placeholder. Errors quote no values.
func Parse(text string) (all []Param, err error) {
	for i, pair := range split(text) {
		name, text, found := strings.Cut(pair, "=")
		text = strings.TrimSpace(text)
		name, typed := strings.CutSuffix(strings.TrimSpace(name), ":")
		name, errName := url.PathUnescape(strings.TrimSpace(name))
		value, errValue := url.PathUnescape(text)
		if !found || name == "" || errName != nil || errValue != nil {
			return nil, fmt.Errorf("has no percent-encoded name=value as parameter %d, for example include=actor; "+
				"a comma in a value is %%2C, a percent sign %%25", i+1)
		}
		p := Param{Name: name, Value: value, JSON: typed}
		for _, found := range placeholder.FindAllString(text, -1) {
			if found != Start && found != End {
				return nil, fmt.Errorf("has a placeholder in %q that is neither {start} nor {end}; "+
					"write %%7B for a brace of the value itself", name)
			}
			p.Template = text
		}
		if typed && !json.Valid([]byte(p.Fill("1", "1").Value)) {
			return nil, fmt.Errorf("has %q with := and no JSON value, for example %s:=true or %[1]s:=[7,8]; "+
				"for text write %[1]s=value, for a name that ends with a colon %[1]s%%3A=value", name, name)
		}
		all = append(all, p)
	}
	return all, nil
}

// split splits parameters at commas and line breaks, but not inside a JSON value, which
// follows :=. It drops empty parameters.
func split(text string) (pairs []string) {
	const separators = ",\r\n"
	for text != "" {
		end := strings.IndexAny(text, separators)
		if at := strings.IndexByte(text, '='); at > 0 && text[at-1] == ':' && (end < 0 || at < end) {
			end = at + 1 + jsonEnd(text[at+1:])
		}
		if end < 0 || end > len(text) {
			end = len(text)
		}
		pairs = append(pairs, text[:end])
		text = strings.TrimLeft(text[end:], separators)
	}
	return slices.DeleteFunc(pairs, func(pair string) bool { return strings.TrimSpace(pair) == "" })
}

// jsonEnd returns the position of the first separator after a JSON value.
func jsonEnd(text string) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case depth <= 0 && strings.IndexByte(",\r\n", c) >= 0:
			return i
		}
	}
	return len(text)
}

// Escape escapes a value for a query. A space becomes %20, because some servers do not
// decode +.
func Escape(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") // a + of the text is %2B by now
}

// Encode is url.Values.Encode with the escapes of Escape.
func Encode(query url.Values) string { return strings.ReplaceAll(query.Encode(), "+", "%20") }

// Pointer reports whether a name is a JSON pointer into the body.
func Pointer(name string) bool { return strings.HasPrefix(name, "/") }

// Collide reports whether two names are the same place in a body, or one is inside the
// other.
func Collide(a, b string) bool {
	pathA, errA := jsonpointer.Path(a)
	pathB, errB := jsonpointer.Path(b)
	n := min(len(pathA), len(pathB))
	return errA == nil && errB == nil && slices.Equal(pathA[:n], pathB[:n])
}

// CheckName returns why a name cannot be that of a parameter, or nil. Only a body takes
// JSON pointers.
func CheckName(name string, body bool) error {
	if !Pointer(name) {
		return nil
	}
	if !body {
		return fmt.Errorf("%q is a JSON pointer into a body, but EXPORT_METHOD=GET sends a query; "+
			"set EXPORT_METHOD=POST, or a name without / in front", name)
	}
	if _, err := jsonpointer.Parse(name); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if strings.HasSuffix(name, "/") {
		return errors.New(strconv.Quote(name) + " is a JSON pointer to a member without a name, for example /page/limit")
	}
	return nil
}

// Marshal encodes a body. An object inside it whose names are all numbers becomes an array
// in their order.
func Marshal(body map[string]any) ([]byte, error) {
	for name, value := range body {
		body[name] = arrays(value)
	}
	return json.Marshal(body)
}

func arrays(value any) any {
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	var indices []int
	for name, inside := range object {
		object[name] = arrays(inside)
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && strconv.Itoa(i) == name {
			indices = append(indices, i)
		}
	}
	if len(indices) < len(object) {
		return object
	}
	slices.Sort(indices)
	list := make([]any, len(indices))
	for i, index := range indices {
		list[i] = object[strconv.Itoa(index)]
	}
	return list
}
