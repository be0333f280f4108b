// Package streamsfile reads and writes the file that describes the streams of a process:
// settings of all streams, templates for similar streams, and streams with their own
// settings. It knows the form of the file and all positions in it, but no setting.
package streamsfile

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// File is a streams file. It is read-only.
type File struct {
	Path     string
	Settings []Value // of all streams and of the process
	Streams  []Stream
	// Lists are the paths of the files that the templates name.
	Lists []string
}

// Stream is a stream, from a template or with settings of its own.
type Stream struct {
	Name string
	At   Position // of its name
	// Values are its settings. The last value of a name counts.
	Values []Value
}

// Value is a setting.
type Value struct {
	Name string
	// Text is the value as written, without quotes. The items of a List are separated
	// by commas.
	Text   string
	List   bool
	NameAt Position
	At     Position // of the value
}

// Position is a place in a file. Lines and columns begin at 1.
type Position struct {
	File         string
	Line, Column int
}

// String returns FILE:LINE:COLUMN, the form of editors and compilers.
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Compare orders positions: files by name, then lines, then columns.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}

// Problem is a mistake in the file.
type Problem struct {
	At   Position
	Text string
}

// Error implements error.
func (p Problem) Error() string { return p.At.String() + ": " + p.Text }

// nameMark is replaced by the stream's name in the values of a template.
const nameMark = "{name}"

// Read reads a streams file and the lists of its templates, whose paths are relative to the
// folder of the file. It calls read once for each file. It returns all mistakes in the order
// of the file, and a File of the rest. It fails only if the file itself cannot be read.
func Read(path string, read func(path string) (string, error)) (*File, []Problem, error) {
	text, err := read(path)
	if err != nil {
		return nil, nil, err
	}
	r := &reader{file: &File{Path: path}, read: read, first: make(map[string]Position)}
	r.document(text)
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return a.At.Compare(b.At) })
	return r.file, r.problems, nil
}

// Beside resolves a path from the folder of the file.
func (f *File) Beside(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.Path), path)
}

// Names returns the names of the streams, in the order of the file.
func (f *File) Names() []string {
	names := make([]string, len(f.Streams))
	for i := range f.Streams {
		names[i] = f.Streams[i].Name
	}
	return names
}

// named is a name and its position.
type named struct {
	name string
	at   Position
}

// listed returns the names of a list, which has one name a line. It skips empty lines and
// lines that begin with #.
func listed(path, text string) []named {
	var names []named
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		name := strings.TrimSpace(line)
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		names = append(names, named{name, Position{path, number, 1 + strings.Index(line, name)}})
	}
	return names
}
