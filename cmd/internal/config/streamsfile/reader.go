package streamsfile

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader reads the parts of one file.
type reader struct {
	file     *File
	read     func(path string) (string, error)
	first    map[string]Position // of each stream's name, where it stands first
	problems []Problem
}

func (r *reader) addf(at Position, format string, args ...any) {
	r.problems = append(r.problems, Problem{at, fmt.Sprintf(format, args...)})
}

func (r *reader) at(n *yaml.Node) Position { return Position{r.file.Path, n.Line, n.Column} }

// The members of the file, and of a template.
const (
	settingsKey  = "settings"
	templatesKey = "templates"
	streamsKey   = "streams"
	forKey       = "for"
	overridesKey = "overrides"
)

func (r *reader) document(text string) {
	var doc, more yaml.Node
	from := yaml.NewDecoder(strings.NewReader(text))
	switch err := from.Decode(&doc); {
	case errors.Is(err, io.EOF):
		r.addf(Position{r.file.Path, 1, 1}, "is empty; it needs %s:, %s: or %s:", settingsKey, templatesKey, streamsKey)
		return
	case err != nil:
		r.syntax(text, err)
		return
	}
	if err := from.Decode(&more); err == nil {
		r.addf(r.at(&more), "a second document begins; write one")
	} else if !errors.Is(err, io.EOF) {
		r.syntax(text, err)
	}
	streams, given := r.at(&doc), false
	for _, m := range r.members(doc.Content[0], "the file", settingsKey, templatesKey, streamsKey) {
		switch m.name {
		case settingsKey:
			r.file.Settings = r.values(m.value, settingsKey+":")
		case templatesKey:
			streams, given = m.at, true
			r.templates(m.value)
		case streamsKey:
			streams, given = m.at, true
			for _, own := range r.members(m.value, streamsKey+":") {
				r.addStream(named{own.name, own.at}, r.values(own.value, "stream "+own.name))
			}
		}
	}
	if given && len(r.file.Streams) == 0 && len(r.problems) == 0 {
		r.addf(streams, "names no stream")
	}
}

var syntaxLine = regexp.MustCompile(`^yaml: (line [0-9]+: )?`)

// syntax adds a syntax error, with the position of the first text of its line. The line in
// err can be that before the mapping: the mistake ends the shortest beginning of the text
// that has the same error.
func (r *reader) syntax(text string, err error) {
	said := func(err error) string { return syntaxLine.ReplaceAllString(err.Error(), "") }
	lines := strings.SplitAfter(text, "\n")
	last := sort.Search(len(lines)-1, func(n int) bool {
		err2 := decodeAll(strings.Join(lines[:n+1], ""))
		return err2 != nil && said(err2) == said(err)
	})
	column := 1 + len(lines[last]) - len(strings.TrimLeft(lines[last], " "))
	r.addf(Position{r.file.Path, last + 1, column}, "is not YAML: %s", said(err))
}

// decodeAll returns the first error of the documents in text.
func decodeAll(text string) (err error) {
	from := yaml.NewDecoder(strings.NewReader(text))
	for err == nil {
		err = from.Decode(new(yaml.Node))
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// member is a member of a mapping.
type member struct {
	name  string
	at    Position
	value *yaml.Node
}

// members returns the members of a mapping, each name once. If known is not empty, any other
// name is a problem. A null in place of a mapping has no members.
func (r *reader) members(n *yaml.Node, of string, known ...string) []member {
	n = resolved(n)
	if n.Kind != yaml.MappingNode {
		if !isNull(n) {
			r.addf(r.at(n), "%s must have lines of NAME: VALUE, not %s", of, kindOf(n))
		}
		return nil
	}
	var all []member
	seen := make(map[string]Position)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		m := member{key.Value, r.at(key), resolved(n.Content[i+1])}
		before, twice := seen[m.name]
		switch {
		case key.Kind != yaml.ScalarNode || m.name == "":
			r.addf(m.at, "a name in %s must be text, not %s", of, kindOf(key))
		case key.Tag == "!!merge":
			r.addf(m.at, "merge keys are not supported; write the settings of many streams in %s: or in a template",
				settingsKey)
		case twice:
			r.addf(m.at, "%s is listed twice; see line %d", m.name, before.Line)
		case len(known) > 0 && !slices.Contains(known, m.name):
			r.addf(m.at, "%q is unknown in %s; one of: %s", m.name, of, strings.Join(known, ", "))
		default:
			seen[m.name] = m.at
			all = append(all, m)
		}
	}
	return all
}

// values returns the settings of a mapping.
func (r *reader) values(n *yaml.Node, of string) []Value {
	var all []Value
	for _, m := range r.members(n, of) {
		if text, list, ok := r.text(m); ok {
			all = append(all, Value{Name: m.name, Text: text, List: list, NameAt: m.at, At: r.at(m.value)})
		}
	}
	return all
}

// text returns the value of a setting. It joins the items of a list.
func (r *reader) text(m member) (text string, list, ok bool) {
	switch n := m.value; {
	case isNull(n):
		r.addf(r.at(n), "%s has no value; write one, \"\" for none, or remove the line", m.name)
	case isPlain(n):
		return n.Value, false, true
	case n.Kind == yaml.SequenceNode:
		var items []string
		for _, item := range n.Content {
			if item = resolved(item); !isPlain(item) || item.Value == "" || strings.Contains(item.Value, ",") {
				r.addf(r.at(item), "an item of %s must be text without a comma, not %s", m.name, kindOf(item))
				continue
			}
			items = append(items, item.Value)
		}
		return strings.Join(items, ","), true, len(items) == len(n.Content)
	default:
		r.addf(r.at(n), "the value of %s must be text, a number, true, false or a list, not %s", m.name, kindOf(n))
	}
	return "", false, false
}

// templates adds the streams of the templates.
func (r *reader) templates(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		r.addf(r.at(n), "%s: must be a list, each template with a dash, not %s", templatesKey, kindOf(n))
		return
	}
	for _, one := range n.Content {
		r.template(resolved(one))
	}
}

func (r *reader) template(n *yaml.Node) {
	var names []named
	var values []Value
	over, given := make(map[string][]Value), false
	var overrides []member
	for _, m := range r.members(n, "a template", forKey, settingsKey, overridesKey) {
		switch m.name {
		case forKey:
			given, names = true, r.names(m.value)
		case settingsKey:
			values = r.values(m.value, "the template")
		case overridesKey:
			overrides = r.members(m.value, overridesKey+":")
		}
	}
	if !given && n.Kind == yaml.MappingNode {
		r.addf(r.at(n), "a template needs %s: with the path of a file with one name a line, or a list of names", forKey)
		return
	}
	left := make(map[string]Position)
	for _, m := range overrides {
		over[m.name], left[m.name] = r.values(m.value, "stream "+m.name), m.at
	}
	for _, each := range names {
		all := slices.Concat(values, over[each.name])
		for i := range all {
			all[i].Text = strings.ReplaceAll(all[i].Text, nameMark, each.name)
		}
		r.addStream(each, all)
		delete(left, each.name)
	}
	for name, at := range left {
		r.addf(at, "%s is not a stream of this template; add it to %s:, or write it in %s:", name, forKey, streamsKey)
	}
}

// names returns the names of a template's streams.
func (r *reader) names(n *yaml.Node) []named {
	var names []named
	switch {
	case isPlain(n) && n.Value != "":
		path := r.file.Beside(n.Value)
		text, err := r.read(path)
		if err != nil {
			r.addf(r.at(n), "%s: %v", forKey, err)
			return nil
		}
		r.file.Lists = append(r.file.Lists, path)
		if names = listed(path, text); len(names) == 0 {
			r.addf(Position{path, 1, 1}, "lists no name; write one a line")
		}
	case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
		for _, item := range n.Content {
			if item = resolved(item); !isPlain(item) {
				r.addf(r.at(item), "a name must be text, not %s", kindOf(item))
				continue
			}
			names = append(names, named{item.Value, r.at(item)})
		}
	default:
		r.addf(r.at(n), "%s: must be the path of a file with one name a line, or a list of names, not %s",
			forKey, kindOf(n))
	}
	return names
}

func (r *reader) addStream(n named, values []Value) {
	if before, twice := r.first[n.name]; twice {
		r.addf(n.at, "stream %s is listed twice; see %s", n.name, before)
		return
	}
	r.first[n.name] = n.at
	r.file.Streams = append(r.file.Streams, Stream{n.name, n.at, values})
}

// resolved returns the node that an alias refers to, with the position of the alias.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode {
		return n
	}
	real := *n.Alias
	real.Line, real.Column = n.Line, n.Column
	return &real
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// isPlain reports whether a value is text, a number, a truth value or a time.
func isPlain(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode {
		return false
	}
	switch n.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return true
	}
	return false
}

func kindOf(n *yaml.Node) string {
	switch {
	case isNull(n):
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case isPlain(n):
		return strconv.Quote(n.Value)
	}
	return "a value of type " + n.Tag
}
