package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"exportbridge/cmd/internal/config/streamsfile"
)

// ImportEnv returns a file for BRIDGE_CONFIG with the settings of variables, flags and
// environment file. stay says which settings are not in it, because they are secrets or the
// contents of pipes.
func (s *Settings) ImportEnv() (text string, stay []string, err error) {
	if s.src.config != nil {
		return "", nil, fmt.Errorf("%s is set: the settings are in %s already", configVariable, s.src.config.Path)
	}
	var settings []streamsfile.Value
	streams := make([]streamsfile.Stream, len(s.Streams))
	for i := range s.Streams {
		streams[i].Name = s.Streams[i].Name
	}
	for _, v := range variables() {
		if v.Name == streamsVariable || v.Name == configVariable {
			continue
		}
		take := func(to *[]streamsfile.Value, stream string) {
			value, why := s.src.imported(&v, stream)
			if value.Name != "" {
				*to = append(*to, value)
			}
			if why != "" && !slices.Contains(stay, why) {
				stay = append(stay, why)
			}
		}
		take(&settings, "")
		for i := range streams {
			if v.stream {
				take(&streams[i].Values, streams[i].Name)
			}
		}
	}
	text, err = streamsfile.Write(settings, streams)
	return text, stay, err
}

// imported returns the line of a variable in the file. stays says why there is none, "" if the
// variable is not set. For a stream, the line has only a value that is the stream's own.
func (s sources) imported(v *Variable, stream string) (value streamsfile.Value, stays string) {
	text, from, err := s.given(v, stream)
	own := strings.HasPrefix(from.name, streamPrefix(stream))
	switch {
	case err != nil || from.kind == FromDefault || from.kind == FromCommand || stream != "" && !own:
		return value, ""
	case from.kind == FromFile && from.rereadable() == "":
		return value, fmt.Sprintf("%s names a pipe, which can be read only once, and stays where it is", from.name)
	case from.kind == FromFile:
		return streamsfile.Value{Name: v.Name + FileSuffix, Text: absolute(from.path)}, ""
	case v.Secret && !harmless(v, text):
		return value, fmt.Sprintf("%s is a secret and stays where it is; to move it, write it to a file and set %s%s",
			from.name, from.name, FileSuffix)
	case v.Name == profileVariable && isPath(text):
		text = absolute(text)
	}
	return streamsfile.Value{Name: v.Name, Text: text}, ""
}

// absolute returns the absolute form of a path, or the path itself if that fails.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
