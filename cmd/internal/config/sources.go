package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"exportbridge/cmd/internal/config/streamsfile"
)

// Origin is the kind of the source of a value.
type Origin string

// The origins, in order of priority.
const (
	FromFlag    Origin = "flag"
	FromCommand Origin = "command" // a value that the command sets, such as demo
	FromEnv     Origin = "env"
	FromEnvFile Origin = "env-file"
	FromConfig  Origin = "config" // the file that BRIDGE_CONFIG names
	FromFile    Origin = "file"   // named by <VARIABLE>_FILE
	FromProfile Origin = "profile"
	FromDefault Origin = "default"
)

func (o Origin) preset() bool { return o == FromDefault || o == FromProfile }

// place is the source of one value: its kind, the variable, which may be that of one
// stream or end in _FILE, and the path of the file.
type place struct {
	kind Origin
	name string
	path string
	at   streamsfile.Position // in the file that BRIDGE_CONFIG names
}

// layer has the variables of one source.
type layer struct {
	kind Origin
	vars map[string]string
	at   map[string]streamsfile.Position // of FromConfig, else nil
}

// sources are all layers, in order of precedence.
type sources struct {
	layers []layer
	files  *valueFiles
	config *streamsFile // nil without BRIDGE_CONFIG
}

// newSources makes layers of flags, the variables of the command, the environment and
// an environment file. A name in one layer takes precedence over the same name in the
// next ones. An empty value counts as unset, and hides the name in the next layers. That of a
// stream in the last layer also hides the value of all streams there.
// openConfig fills the last layer, the file that BRIDGE_CONFIG names.
func newSources(flags, preset map[string]string, environ []string, envFile map[string]string) sources {
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return sources{
		layers: []layer{
			{kind: FromFlag, vars: flags}, {kind: FromCommand, vars: preset},
			{kind: FromEnv, vars: env}, {kind: FromEnvFile, vars: envFile}, {kind: FromConfig},
		},
		files: newValueFiles(),
	}
}

// ranks groups the layers. Environment and environment file are one group: X in one
// of them and X_FILE in the other is the same mistake as both in one.
func (s sources) ranks() []sources {
	some := func(from, to int) sources { return sources{layers: s.layers[from:to], files: s.files} }
	return []sources{some(0, 1), some(1, 2), some(2, 4), some(4, 5)}
}

// get returns the value of a variable, the place where it is set, and whether the value is
// not empty.
func (s sources) get(name string) (string, place, bool) {
	for _, l := range s.layers {
		if value, given := l.vars[name]; given {
			return value, place{kind: l.kind, name: name, at: l.at[name]}, value != ""
		}
	}
	return "", place{kind: FromDefault}, false
}

// has reports whether a stream's variable, or its file, is set in other places than the command.
func (s sources) has(variable, stream string) bool {
	for _, l := range s.layers {
		for _, name := range []string{variable, streamPrefix(stream) + variable} {
			if l.kind != FromCommand && (l.vars[name] != "" || l.vars[name+FileSuffix] != "") {
				return true
			}
		}
	}
	return false
}

// find returns the value of a variable for one stream ("" for none): the value that is
// set, else that of the profile, else "" and FromDefault. Its errors name the variable.
func (s sources) find(v *Variable, stream string) (string, place, error) {
	text, from, err := s.given(v, stream)
	if err != nil || from.kind != FromDefault || v.Name == profileVariable {
		return text, from, err
	}
	if value, named, ok := s.preset(v.Name, stream); ok {
		return value, place{kind: FromProfile, name: v.Name, path: named}, nil
	}
	return "", from, nil
}

// preset returns the value of a variable in a stream's profile, and the name of the profile. Load
// reports the error of a profile.
func (s sources) preset(variable, stream string) (value, named string, ok bool) {
	named, selected, err := s.given(&Variable{Name: profileVariable, stream: true}, stream)
	if err != nil || selected.kind == FromDefault {
		return "", "", false
	}
	p, err := s.profile(named)
	value, ok = p.values[variable]
	return value, named, ok && err == nil
}

// given returns the value that a variable is set to.
func (s sources) given(v *Variable, stream string) (string, place, error) {
	names := []string{v.Name}
	if v.stream && stream != "" {
		names = []string{streamPrefix(stream) + v.Name, v.Name}
	}
	left := slices.Clone(names)
	for _, rank := range s.ranks() {
		sought := left
		if rank.layers[0].kind == FromCommand { // a default of the command, which an empty flag does not hide
			sought = names
		}
		for _, name := range sought {
			text, from, err := rank.findName(name)
			if err != nil || from.kind != FromDefault {
				return text, from, err
			}
			if _, emptied, _ := rank.get(name); emptied.kind == FromConfig && name != v.Name {
				return "", from, nil // a stream of the file without the value of all streams
			}
		}
		left = slices.DeleteFunc(left, func(name string) bool {
			_, emptied, _ := rank.get(name)
			return emptied.kind != FromDefault
		})
	}
	return "", place{kind: FromDefault}, nil
}

func (s sources) findName(name string) (string, place, error) {
	fileName := name + FileSuffix
	text, from, given := s.get(name)
	path, fromFile, inFile := s.get(fileName)
	switch {
	case given && inFile:
		return "", place{}, fmt.Errorf("%s: both %s and %s are set, unset one of them", name, name, fileName)
	case given:
		return text, from, nil
	case !inFile:
		return "", place{kind: FromDefault}, nil
	}
	text, err := s.files.read(path)
	if err != nil {
		return "", place{}, fmt.Errorf("%s: %w", fileName, err)
	}
	return text, place{kind: FromFile, name: fileName, path: path, at: fromFile.at}, nil
}

// at returns the position of a variable's value, for one stream ("" for none), in the file
// that BRIDGE_CONFIG names. It is zero if the value is from elsewhere.
func (s sources) at(variable, stream string) (at streamsfile.Position) {
	if s.config == nil {
		return at
	}
	names := []string{variable, variable + FileSuffix}
	if stream != "" {
		names = append([]string{streamPrefix(stream) + names[0], streamPrefix(stream) + names[1]}, names...)
	}
	for _, rank := range s.ranks() {
		for _, name := range names {
			if _, from, given := rank.get(name); given {
				return from.at
			}
		}
	}
	return at
}

// FileSuffix is the end of a variable that has the path of a file with the value.
const FileSuffix = "_FILE"

// streamPrefix returns the beginning of a stream's variables: STREAM_USERS_ for users.
func streamPrefix(stream string) string {
	return "STREAM_" + strings.ToUpper(strings.ReplaceAll(stream, "-", "_")) + "_"
}

// readEnvFile reads an environment file.
func (p *Pipes) readEnvFile(path string) (map[string]string, error) {
	content, err := p.read(path, maxValueFile)
	if err != nil {
		return nil, err
	}
	vars := make(map[string]string)
	return vars, parseEnv(path, content, func(name, value string) error {
		vars[name] = value
		return nil
	})
}

// parseEnv reads lines of NAME=VALUE, which may begin with "export ". It skips empty
// lines and lines that begin with #. A value in double quotes is a Go string, a value in
// single quotes stays as it is, and an unquoted value ends at " #". Nothing is expanded.
// All errors, including those of set, name the path and the line.
func parseEnv(path, content string, set func(name, value string) error) error {
	number := 0
	for line := range strings.Lines(content) {
		number++
		line = strings.TrimSpace(line)
		if number == 1 {
			line = strings.TrimPrefix(line, "\ufeff") // some editors begin a file with it
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t") {
			return fmt.Errorf("%s line %d: not NAME=VALUE", path, number)
		}
		value, err := unquote(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%s line %d: %s: %w", path, number, name, err)
		}
		if err := set(name, value); err != nil {
			return fmt.Errorf("%s line %d: %w", path, number, err)
		}
	}
	return nil
}

// unquote takes the quotes and the comment off a value of an environment file.
func unquote(value string) (string, error) {
	switch {
	case strings.HasPrefix(value, `"`):
		quoted, err := strconv.QuotedPrefix(value)
		if err != nil || !isComment(value[len(quoted):]) {
			return "", fmt.Errorf("the double quotes do not match")
		}
		return strconv.Unquote(quoted)
	case strings.HasPrefix(value, "'"):
		inner, after, ok := strings.Cut(value[1:], "'")
		if !ok || !isComment(after) {
			return "", fmt.Errorf("the single quotes do not match")
		}
		return inner, nil
	}
	value, _, _ = strings.Cut(value, " #")
	if strings.HasPrefix(value, "#") {
		return "", nil
	}
	return strings.TrimSpace(value), nil
}

func isComment(rest string) bool {
	rest = strings.TrimSpace(rest)
	return rest == "" || strings.HasPrefix(rest, "#")
}
