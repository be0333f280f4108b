package config

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// loader fills Config structs from the sources and collects every problem on
// the way, so that all of them are reported at once.
type loader struct {
	src      sources
	problems []problem
}

// problem is one line of what is wrong. The variable is the plain name, ""
// where no single one is to blame.
type problem struct {
	variable string
	text     string
}

// fill sets every setting of the struct that target points to, as one stream
// sees it ("" for none), and returns where the values came from. A field whose
// value cannot be used keeps its default, so that it causes no second problem.
func (l *loader) fill(ctx context.Context, target any, stream string) map[string]origin {
	config := reflect.ValueOf(target).Elem()
	origins := make(map[string]origin)
	for _, v := range variablesOf(config.Type()) {
		text, from, err := l.src.find(&v, stream)
		var value reflect.Value
		if err == nil {
			value, err = v.decode(ctx, text)
			if err != nil {
				err = fmt.Errorf("%s: %w", from.describe(v.Name), err)
			}
		}
		if err != nil {
			l.add(v.Name, err.Error())
			if value, err = v.decode(ctx, ""); err != nil {
				continue // required: there is no default to fall back to
			}
		}
		config.FieldByIndex(v.index).Set(value)
		origins[v.Name] = from
	}
	return origins
}

// describe names a value by the variable that gave it, and its flag if it was one.
func (o origin) describe(variable string) string {
	switch o.kind {
	case FromDefault:
		return variable
	case FromFile:
		return fmt.Sprintf("%s (%s)", o.name, o.path)
	case FromFlag:
		return o.name + " (from the command line)"
	default:
		return o.name
	}
}

// add records a problem, once.
func (l *loader) add(variable, text string) {
	p := problem{variable, text}
	if !slices.Contains(l.problems, p) {
		l.problems = append(l.problems, p)
	}
}

// check records what the Validate of every stream found, by stream: bare where
// all streams share it. What it says about a variable that is wrong already is
// left out.
func (l *loader) check(voc *vocabulary, found map[string]error) {
	faulty := make(map[string]bool)
	for _, p := range l.problems {
		faulty[p.variable] = true
	}
	streams := make(map[string][]string)
	for _, stream := range slices.Sorted(maps.Keys(found)) {
		if found[stream] == nil {
			continue
		}
		for line := range strings.SplitSeq(found[stream].Error(), "\n") {
			streams[line] = append(streams[line], stream)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(streams)) {
		name := voc.firstIn(line)
		if faulty[name] {
			continue
		}
		if len(streams[line]) < len(found) {
			line = fmt.Sprintf("stream %s: %s", strings.Join(streams[line], ", "), line)
		}
		l.add(name, line)
	}
}

// firstIn returns the first setting that a line names, or "".
func (voc *vocabulary) firstIn(line string) string {
	words := strings.FieldsFunc(line, func(r rune) bool {
		return r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	for _, word := range words {
		if v := voc.lookup(word); v != nil {
			return v.Name
		}
	}
	return ""
}

// sort puts the problems in the order of the settings table.
func (l *loader) sort(vars []Variable) {
	place := make(map[string]int, len(vars))
	for i, v := range vars {
		place[v.Name] = i - len(vars)
	}
	slices.SortStableFunc(l.problems, func(a, b problem) int {
		return cmp.Compare(place[a.variable], place[b.variable])
	})
}

// err returns all problems as one error for people, nil if there are none.
func (l *loader) err() error {
	if len(l.problems) == 0 {
		return nil
	}
	lines := make([]string, len(l.problems))
	for i, p := range l.problems {
		lines[i] = maskURLs(p.text)
	}
	return Problems(lines)
}

// Problems is everything that is wrong with the settings, a line each.
type Problems []string

func (e Problems) Error() string {
	if len(e) == 1 {
		return e[0]
	}
	return fmt.Sprintf("%d settings are wrong\n  %s", len(e), strings.Join(e, "\n  "))
}

// Setting is one row of what is in force. For a value of a single stream the
// variable is the per-stream one.
type Setting struct {
	Variable string `json:"variable"`
	Value    string `json:"value"`
	Origin   Origin `json:"origin"`
	// From is the file of a value that came from one.
	From   string `json:"from,omitempty"`
	Secret bool   `json:"secret,omitempty"`
}

// Shown is the value in a table: certificates are long.
func (e *Setting) Shown() string {
	switch lines := strings.Count(e.Value, "\n"); {
	case e.Value == "":
		return "-"
	case lines > 0:
		return fmt.Sprintf("(%d lines)", lines+1)
	}
	return e.Value
}

// effectiveOf lists the values in force: every variable once, and once more
// for each stream that overrides it. Secrets are masked. A variable that
// cannot be read is left out; it has been reported as a problem.
func effectiveOf(ctx context.Context, src sources, vars []Variable, streams []string) []Setting {
	var rows []Setting
	for _, v := range vars {
		text, from, err := src.find(&v, "")
		if err != nil {
			continue
		}
		rows = append(rows, v.row(ctx, v.Name, text, from))
		for _, stream := range streams {
			own, ownFrom, err := src.find(&v, stream)
			if err == nil && ownFrom != from {
				rows = append(rows, v.row(ctx, streamPrefix(stream)+v.Name, own, ownFrom))
			}
		}
	}
	return rows
}

func (v *Variable) row(ctx context.Context, name, text string, from origin) Setting {
	row := Setting{Variable: name, Value: maskURLs(text), Origin: from.kind, From: from.path, Secret: v.Secret}
	switch {
	case from.kind == FromDefault:
		row.Value = v.shownDefault()
	case v.Secret && text != Embedded:
		row.Value = v.mask(ctx, text)
	}
	return row
}

// mask shows of a secret what its type lets out: of a URL the host, of a key
// nothing.
func (v *Variable) mask(ctx context.Context, text string) string {
	value, err := v.decode(ctx, text)
	if err != nil {
		return "***"
	}
	if masked, ok := reflect.TypeAssert[fmt.Stringer](value); ok {
		return masked.String()
	}
	return "***"
}
