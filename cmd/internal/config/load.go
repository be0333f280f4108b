package config

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sethvargo/go-envconfig"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config/streamsfile"
)

// loader fills Config structs from the sources and collects the problems, so
// that Load reports all of them at once.
type loader struct {
	src      sources
	stream   string // the stream whose settings are loaded, "" for those of all
	memory   int64  // Sources.Memory
	streams  int    // number of streams that share memory
	problems []problem
}

// problem is a problem and its position in the file that BRIDGE_CONFIG names, zero if it is
// elsewhere.
type problem struct {
	bridge.Problem
	at streamsfile.Position
}

func (p problem) placed() bool { return p.at.Line > 0 }

// fill sets every field of the struct that target points to, for one stream ("" for
// none), and returns the places of the values. A field with an invalid value keeps
// its default, so that the value causes no second problem.
func (l *loader) fill(target any, stream string) map[string]place {
	vars := make(map[string]*Variable)
	for _, v := range variablesOf(reflect.ValueOf(target).Elem()) {
		vars[v.Name] = &v
	}
	places := make(map[string]place, len(vars))
	lookup := func(name string) (string, bool) {
		v := vars[name]
		if v == nil { // in a struct behind a pointer
			return "", false
		}
		text, from, err := l.src.find(v, stream)
		if err == nil {
			if text, err = v.parse(text); err != nil {
				err = fmt.Errorf("%s: %w", from.describe(name), err)
			}
		}
		if err != nil {
			l.add(name, err.Error())
		}
		places[name] = from
		return text, text != ""
	}
	err := envconfig.ProcessWith(context.Background(), &envconfig.Config{
		Target: target, Lookuper: envconfig.LookuperFunc(lookup), DefaultOverwrite: true, DefaultNoInit: true,
	})
	if err != nil { // an invalid tag or type of a field
		l.add("", err.Error())
	}
	return places
}

// describe names the place of a value in messages.
func (p place) describe(variable string) string {
	switch p.kind {
	case FromDefault:
		return variable
	case FromFile, FromProfile:
		return fmt.Sprintf("%s (%s)", p.name, p.path)
	case FromFlag:
		return p.name + " (from the command line)"
	default:
		return p.name
	}
}

// add records a problem, once.
func (l *loader) add(variable, message string) {
	at := l.src.at(variable, l.stream)
	if at.Line == 0 {
		at = l.src.config.stream(l.stream)
	}
	l.addAt(at, variable, message)
}

// addAt records a problem at a position, which may be zero. A mistake in a template is one
// problem for all its streams.
func (l *loader) addAt(at streamsfile.Position, variable, message string) {
	p := problem{bridge.Problem{Variable: variable, Message: maskURLs(message)}, at}
	if p.placed() {
		p.Message = at.String() + ": " + p.Message
	}
	if l.stream != "" && p.placed() {
		p.Message = strings.ReplaceAll(p.Message, streamPrefix(l.stream), "") // names in a file have no prefix
	}
	l.take([]problem{p})
}

func (l *loader) take(problems []problem) {
	for _, p := range problems {
		if !slices.ContainsFunc(l.problems, func(known problem) bool {
			return known == p || p.placed() && p.Variable != "" && known.at == p.at && known.Variable == p.Variable
		}) {
			l.problems = append(l.problems, p)
		}
	}
}

func (l *loader) addf(variable, format string, args ...any) {
	l.add(variable, fmt.Sprintf(format, args...))
}

// check adds the problems of the streams' Validate. A problem names its streams unless
// all streams have it. check skips variables that have a problem already.
func (l *loader) check(found map[string]bridge.Problems) {
	faulty := make(map[string]bool)
	for _, p := range l.problems {
		faulty[p.Variable] = true
	}
	streams := make(map[problem][]string)
	for _, stream := range slices.Sorted(maps.Keys(found)) {
		for _, p := range found[stream] {
			placed := problem{p, l.src.at(p.Variable, stream)}
			streams[placed] = append(streams[placed], stream)
		}
	}
	byMessage := func(a, b problem) int { return cmp.Or(cmp.Compare(a.Message, b.Message), a.at.Compare(b.at)) }
	for _, p := range slices.SortedFunc(maps.Keys(streams), byMessage) {
		message, at := p.Message, p.at
		if len(streams[p]) < len(found) {
			message = fmt.Sprintf("stream %s: %s", SomeOf(streams[p], ", "), message)
			if !p.placed() {
				at = l.src.config.stream(streams[p][0])
			}
		}
		if p.Variable == "" || !faulty[p.Variable] {
			l.addAt(at, p.Variable, message)
		}
	}
}

// SomeOf lists the first names, with a separator between them, and counts the others.
func SomeOf(names []string, separator string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], separator), len(names)-most)
}

// err returns all problems, nil if there are none. They are in the order of the settings
// table, and then in the order of the file that BRIDGE_CONFIG names.
func (l *loader) err(vars []Variable) error {
	if len(l.problems) == 0 {
		return nil
	}
	place := make(map[string]int, len(vars))
	for i, v := range vars {
		place[v.Name] = i - len(vars)
	}
	slices.SortStableFunc(l.problems, func(a, b problem) int {
		if a.placed() || b.placed() {
			return a.at.Compare(b.at)
		}
		return cmp.Compare(place[a.Variable], place[b.Variable])
	})
	all := make(Problems, len(l.problems))
	for i, p := range l.problems {
		all[i] = p.Problem
	}
	return all
}

// Problems are all problems of the settings, in the order of the settings table.
type Problems []bridge.Problem

// Error implements error, with a line for each problem.
func (p Problems) Error() string {
	lines := bridge.Problems(p).Error()
	if len(p) == 1 {
		return lines
	}
	return fmt.Sprintf("%d settings are wrong\n  %s", len(p), strings.ReplaceAll(lines, "\n", "\n  "))
}

// Unwrap returns each problem, a bridge.Problem.
func (p Problems) Unwrap() []error { return bridge.Problems(p).Unwrap() }

// Setting is the effective value of a variable. A value of one stream has the variable
// of that stream.
type Setting struct {
	Variable string `json:"variable"`
	Value    string `json:"value"`
	Origin   Origin `json:"origin"`
	// From is the file or the profile that the value is from, "" for none.
	From string `json:"from,omitempty"`
	// At is the file and line of the value in the file that BRIDGE_CONFIG names, or those
	// of the path of its file.
	At     string `json:"at,omitempty"`
	Secret bool   `json:"secret,omitempty"`
}

// Where returns the origin of the value for a table.
func (s *Setting) Where() string {
	return strings.Join(strings.Fields(string(s.Origin)+" "+s.From+" "+s.At), " ")
}

// Shown returns the value for a table. A certificate is too long: it is the number of lines.
func (s *Setting) Shown() string {
	switch lines := strings.Count(s.Value, "\n"); {
	case s.Value == "":
		return "-"
	case lines > 0:
		return fmt.Sprintf("(%d lines)", lines+1)
	}
	return s.Value
}

// effectiveOf lists the effective values: every variable once, and once more for each
// stream that overrides it. Secrets are masked. It leaves out variables that cannot be
// read, which are problems already.
func effectiveOf(src sources, vars []Variable, streams []string) []Setting {
	var rows []Setting
	for _, v := range vars {
		text, from, err := src.find(&v, "")
		if err != nil {
			continue
		}
		rows = append(rows, v.row(v.Name, text, from))
		for _, stream := range streams {
			own, ownFrom, err := src.find(&v, stream)
			if err == nil && ownFrom != from {
				rows = append(rows, v.row(streamPrefix(stream)+v.Name, own, ownFrom))
			}
		}
	}
	return rows
}

func (v *Variable) row(name, text string, from place) Setting {
	row := Setting{Variable: name, Value: maskURLs(text), Origin: from.kind, From: from.path, Secret: v.Secret}
	if from.at.Line > 0 {
		row.At = fmt.Sprintf("%s:%d", from.at.File, from.at.Line)
	}
	switch {
	case from.kind == FromDefault:
		row.Value = v.def
	case v.Secret:
		row.Value = v.mask(text)
	}
	return row
}

// mask formats a secret by its type: a URL without credentials, a key as ***.
func (v *Variable) mask(text string) string {
	secret := reflect.New(v.typ).Elem()
	if secret.Kind() == reflect.String {
		secret.SetString(text)
		if masked, ok := reflect.TypeAssert[fmt.Stringer](secret); ok {
			return masked.String()
		}
	}
	return "***"
}
