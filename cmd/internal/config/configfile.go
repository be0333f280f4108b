package config

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"exportbridge/bridge"
	"exportbridge/bridge/kafkagroup"
	"exportbridge/bridge/kafkastream"
	"exportbridge/cmd/internal/config/streamsfile"
)

const (
	configVariable  = "BRIDGE_CONFIG"
	streamsVariable = "BRIDGE_STREAMS"
)

// maxConfigFile bounds the file that BRIDGE_CONFIG names, in bytes.
const maxConfigFile = 16 << 20

// streamsFile is the file that BRIDGE_CONFIG names, with the problems of its form. A nil
// streamsFile stands for no file.
type streamsFile struct {
	*streamsfile.File
	problems []streamsfile.Problem
	// contents has the contents of the file and of its lists, by path.
	contents map[string]string
}

// stream returns the position of a stream's name in the file, zero for a name that is not there.
func (f *streamsFile) stream(name string) (at streamsfile.Position) {
	if f == nil {
		return at
	}
	i := slices.IndexFunc(f.Streams, func(st streamsfile.Stream) bool { return st.Name == name })
	if i < 0 {
		return at
	}
	return f.Streams[i].At
}

// openConfig reads the file that BRIDGE_CONFIG names. Its settings are the last layer.
func (s *sources) openConfig() error {
	path, from, err := s.findName(configVariable)
	if err != nil || from.kind == FromDefault {
		return err
	}
	f := &streamsFile{contents: make(map[string]string)}
	f.File, f.problems, err = streamsfile.Read(path, func(path string) (string, error) {
		text, err := s.files.pipes.read(path, maxConfigFile)
		f.contents[path] = text
		return text, err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", from.describe(configVariable), err)
	}
	s.config = f
	last := &s.layers[len(s.layers)-1]
	last.vars, last.at = make(map[string]string), make(map[string]streamsfile.Position)
	set := func(name string, v *streamsfile.Value) {
		last.vars[name], last.at[name] = f.valueOf(v), v.At
	}
	for i := range f.Settings {
		set(f.Settings[i].Name, &f.Settings[i])
	}
	for _, st := range f.Streams {
		prefix := streamPrefix(st.Name)
		for i := range st.Values {
			set(prefix+st.Values[i].Name, &st.Values[i])
		}
	}
	delete(last.vars, configVariable) // checkConfig reports both
	delete(last.vars, streamsVariable)
	if len(f.Streams) > 0 {
		last.vars[streamsVariable], last.at[streamsVariable] = strings.Join(f.Names(), ","), f.Streams[0].At
	}
	return nil
}

// valueOf returns a value for its variable. It resolves a path from the folder of the file.
func (f *streamsFile) valueOf(v *streamsfile.Value) string {
	if strings.HasSuffix(v.Name, FileSuffix) || v.Name == profileVariable && isPath(v.Text) {
		return f.Beside(v.Text)
	}
	return v.Text
}

// checkConfig reports the mistakes in the file that BRIDGE_CONFIG names. It returns a warning
// if BRIDGE_STREAMS leaves out streams of the file.
func (l *loader) checkConfig(names []string) []string {
	f := l.src.config
	if f == nil {
		return nil
	}
	for _, p := range f.problems {
		l.addAt(p.At, "", p.Text)
	}
	voc := newVocabulary(variables(), nil)
	for i := range f.Settings {
		l.checkName(voc, &f.Settings[i], "")
	}
	checked := make(map[streamsfile.Position]bool) // all streams of a template have the same positions
	for _, st := range f.Streams {
		for i := range st.Values {
			if v := &st.Values[i]; !checked[v.NameAt] {
				checked[v.NameAt] = true
				l.checkName(voc, v, st.Name)
			}
		}
	}
	if _, from, _ := l.src.get(streamsVariable); from.kind == FromConfig || len(f.Streams) == 0 {
		return nil
	}
	left := f.Names()
	for _, name := range names {
		if !slices.Contains(left, name) {
			l.addf(streamsVariable, "%s: stream %s is not in %s; one of: %s",
				streamsVariable, name, f.Path, SomeOf(f.Names(), ", "))
		}
		left = slices.DeleteFunc(left, func(each string) bool { return each == name })
	}
	if len(left) > 0 {
		return []string{fmt.Sprintf("%s leaves out streams of %s: %s", streamsVariable, f.Path, SomeOf(left, ", "))}
	}
	return nil
}

// checkName reports a value that may not stand in the file: its setting is unknown or is not
// one of streams, it is a secret, a list in place of text, or invalid.
func (l *loader) checkName(voc *vocabulary, v *streamsfile.Value, stream string) {
	known := voc.lookup(v.Name)
	switch isFile := strings.HasSuffix(v.Name, FileSuffix); {
	case known == nil:
		near := ""
		if !strings.HasPrefix(v.Name, "STREAM_") {
			near = voc.near(v.Name, nearEnough+1)
		}
		l.addAt(v.NameAt, "", suggest(v.Name+" is not a setting", near))
	case known.Name == configVariable:
		l.addAt(v.NameAt, "", configVariable+" cannot be set in the file that it names; remove the line")
	case known.Name == streamsVariable:
		l.addAt(v.NameAt, "", streamsVariable+" cannot be set in a file; write the names below streams:")
	case stream != "" && !known.stream:
		l.addAt(v.NameAt, "", v.Name+" cannot be set per stream; write it in settings: of the file")
	case v.List && (isFile || known.typ.Kind() != reflect.Slice):
		l.addAt(v.At, v.Name, v.Name+" takes one value, not a list")
	case known.Secret && !isFile && !harmless(known, v.Text):
		l.addAt(v.At, v.Name, fmt.Sprintf("%s is a secret and has no place in the file; "+
			"set %s%s to the path of a file with it, or set it in the environment", v.Name, v.Name, FileSuffix))
	case !isFile: // even if a variable takes precedence
		if _, err := known.parse(v.Text); err != nil {
			l.addAt(v.At, v.Name, fmt.Sprintf("%s: %v", v.Name, err))
		}
	}
}

var (
	// looksSecret matches a value that probably contains a secret.
	looksSecret = regexp.MustCompile(`(?i)authorization|bearer|cookie|token|secret|passw|api[-_]?key|@`)
	// itemName matches the name of a parameter, a header, or a member of a JSON object.
	itemName = regexp.MustCompile(`(?m)(?:^|[,{])\s*"?([^\s=:,"{]+)"?\s*[:=]`)
)

// harmless reports whether the value of a secret setting contains no secret. URLs without
// credentials are harmless, and so are parameters and headers unless looksSecret matches or one
// of them has the name of a credential.
func harmless(v *Variable, text string) bool {
	credential := bridge.IsCredential
	if v.Name == "EXPORT_HEADERS" {
		credential = bridge.IsCredentialHeader
	}
	named := slices.Contains(openSecrets, v.Name) &&
		slices.ContainsFunc(itemName.FindAllStringSubmatch(text, -1), func(m []string) bool { return credential(m[1]) })
	return text == "" || mayBeHarmless(v) && !named && !looksSecret.MatchString(text)
}

// mayBeHarmless reports whether a secret setting has values without a secret.
func mayBeHarmless(v *Variable) bool {
	return slices.Contains(openSecrets, v.Name) || v.Name == "REDIS_URL" || v.Name == "EXPORT_PROXY"
}

// Changes are the differences between two settings.
type Changes struct {
	// Process are the variables of the process that differ. They require a restart.
	Process []string
	// Added, Removed and Changed have the names of streams. The values of Changed are the
	// variables that differ.
	Added, Removed []string
	Changed        map[string][]string
}

// Changes compares the values that were set, before they are interpreted: a stream with
// EXPORT_START=-1d is the same the next day. It compares a secret whose file is read again
// while the process runs by the path of that file.
func (s *Settings) Changes(to *Settings) Changes {
	c := Changes{Changed: make(map[string][]string)}
	var ofStreams []Variable
	for _, part := range streamParts() {
		ofStreams = append(ofStreams, variablesOf(reflect.ValueOf(part))...)
	}
	ofFleet := s.ofFleet()
	for _, v := range variables() {
		ofStream := !ofFleet[v.Name] && slices.ContainsFunc(ofStreams, func(o Variable) bool { return o.Name == v.Name })
		if !ofStream && v.Name != streamsVariable && s.src.input(&v, "") != to.src.input(&v, "") {
			c.Process = append(c.Process, v.Name)
		}
	}
	before := make(map[string]bool)
	for i := range s.Streams {
		before[s.Streams[i].Name] = true
	}
	for i := range to.Streams {
		name := to.Streams[i].Name
		if !before[name] {
			c.Added = append(c.Added, name)
			continue
		}
		delete(before, name)
		for _, v := range ofStreams {
			if !ofFleet[v.Name] && s.src.input(&v, name) != to.src.input(&v, name) {
				c.Changed[name] = append(c.Changed[name], v.Name)
			}
		}
	}
	c.Removed = slices.Sorted(maps.Keys(before))
	return c
}

// ofFleet are the variables of the one membership in a group that all streams share, if they
// do, and the one that says so.
func (s *Settings) ofFleet() map[string]bool {
	shared := map[string]bool{"BRIDGE_OWNERSHIP": true}
	if len(s.Streams) > 0 && s.Streams[0].Kafka.OwnedBy == kafkagroup.OwnedByGroup {
		for _, v := range variablesOf(reflect.ValueOf(kafkastream.DefaultConfig())) {
			shared[v.Name] = !v.stream
		}
	}
	return shared
}

// Restarted lists the streams that changed, each with the variables that differ.
func (c *Changes) Restarted() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.Changed)) {
		all = append(all, name+" ("+strings.Join(c.Changed[name], ",")+")")
	}
	return strings.Join(all, " ")
}

// rereadSettings are read again from their files while a stream or the HTTP server runs.
var rereadSettings = []string{
	keyVariable, "EXPORT_TLS_CERT", "EXPORT_TLS_KEY", "KAFKA_SASL_PASSWORD", "KAFKA_TLS_CA", "KAFKA_TLS_CERT",
	"KAFKA_TLS_KEY", "KAFKA_SASL_OAUTH_TLS_CA", "REDIS_PASSWORD", "REDIS_TLS_CA", "REDIS_TLS_CERT", "REDIS_TLS_KEY",
	"HTTP_ADMIN_TOKEN", "HTTP_TOKENS", "HTTP_TLS_CERT", "HTTP_TLS_KEY", "HTTP_OIDC_TLS_CA",
}

// input returns the text that decides the value of a variable for a stream.
func (s sources) input(v *Variable, stream string) string {
	text, from, _ := s.find(v, stream) // Load has reported an error
	if slices.Contains(rereadSettings, v.Name) && from.kind == FromFile && from.rereadable() != "" {
		return "file " + from.path
	}
	return text
}

// Contents returns what the file of BRIDGE_CONFIG and its lists contained when the settings
// were loaded, by path. It is nil without BRIDGE_CONFIG.
func (s *Settings) Contents() map[string]string {
	if s.src.config == nil {
		return nil
	}
	return s.src.config.contents
}
