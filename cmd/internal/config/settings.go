// Package config reads the settings of a process from flags, environment, files and
// defaults, and reports all problems at once.
//
// It is in cmd/internal, not cmd/exportbridge/internal, because exportbridge-dev
// has the same settings, and Go keeps a command's internal packages from other
// commands.
package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/attest"
	"exportbridge/bridge/engine"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkastream"
	"exportbridge/bridge/ops"
	"exportbridge/bridge/ops/metrics"
	"exportbridge/bridge/windows"
	"exportbridge/cmd/internal/contract"
	"exportbridge/cursorstore"
)

// Process has the settings of the process itself.
type Process struct {
	ConfigFile    string         `env:"BRIDGE_CONFIG" desc:"path of a YAML file with settings and streams, which is reloaded when it changes, see below; flags and variables take precedence" example:"/etc/exportbridge/streams.yaml"`
	StreamNames   []string       `env:"BRIDGE_STREAMS" desc:"names of the streams of this process; a stream named events, sessions or users exports that resource; with BRIDGE_CONFIG, those of its streams that run, by default all" example:"events,users"`
	InstanceID    string         `env:"BRIDGE_INSTANCE_ID" desc:"unique name of this process that survives restarts: after a restart it gets its streams back at once; <host>-<process id> if empty" example:"bridge-0"`
	Delivery      bridge.Mode    `env:"KAFKA_DELIVERY" values:"exactly-once,at-least-once" desc:"the delivery guarantee; at-least-once publishes without transactions"`
	Memory        int64          `env:"BRIDGE_MEMORY" unit:"bytes" desc:"maximum bytes of pages that all streams of the process have in memory together, including their events; a page that is larger than expected may exceed it; by default at most a quarter of the memory limit (GOMEMLIMIT, or 90% of the container's)"`
	LogLevel      string         `env:"LOG_LEVEL" values:"debug,info,warn,error" desc:"minimum log level"`
	LogFormat     string         `env:"LOG_FORMAT" values:"auto,text,json" desc:"log format; auto is text on a terminal and json elsewhere"`
	MetricsDetail metrics.Detail `env:"METRICS_DETAIL" values:"auto,stream,process" desc:"series in /metrics: stream has all for each stream, about 260; process has about 20 for each stream, the histograms of all streams together, and counters of rare events once there is one; auto is stream for a process that starts with up to 10 streams, else process"`
}

var defaultProcess = Process{
	StreamNames: []string{"events"}, Delivery: bridge.ExactlyOnce, Memory: 128 << 20, LogLevel: "info", LogFormat: "auto",
	MetricsDetail: metrics.DetailAuto,
}

// windowConfig has the bounds of a stream's export.
type windowConfig struct {
	Start string `env:"EXPORT_START" stream:"yes" desc:"where an export without a cursor begins: 2026-11-22T10:57:00Z, 2026-11-22 10:57Z, 2026-11-22 (UTC), -2h, -7d, -PT2H, now, earliest, or milliseconds since the epoch; earliest sends no start; not in the future; no effect on a stream that has begun"`
	End   string `env:"EXPORT_END" stream:"yes" desc:"exclusive end of a bounded stream, which completes once that time has passed; without it, the stream has no end" example:"2026-11-02T00:00:00Z"`
}

var defaultWindow = windowConfig{Start: "earliest"}

// Uses is the set of systems whose settings a command needs. The settings of other
// systems are not validated: tail works without an API key.
type Uses uint8

// The systems, to be combined.
const (
	UsesExport Uses = 1 << iota
	UsesKafka
	UsesCursor
	UsesAll = UsesExport | UsesKafka | UsesCursor
	// WithoutKey is for a command that sends no request to the API. The secrets
	// of the export are not read.
	WithoutKey Uses = 1 << 3
)

// keyVariable names the setting of the API key.
const keyVariable = "EXPORT_API_KEY"

// exportSecrets returns placeholders for the secrets of the export and its events, for the
// client certificate, and for what names headers. A command that sends no request to the API
// uses them.
func exportSecrets() map[string]string {
	unused := map[string]string{"EXPORT_TLS_CERT": "unused", "EXPORT_SOURCE_HEADERS": "none"}
	for _, v := range variables() {
		if v.Secret && (v.group() == "EXPORT" || v.group() == "EVENT") {
			unused[v.Name] = "unused"
		}
	}
	return unused
}

// Variables lists every setting of the program.
func Variables() []Variable { return slices.Clone(variables()) }

// variables reads the structs once: each command has a flag for each setting.
var variables = sync.OnceValue(func() []Variable {
	var vars []Variable
	parts := append(streamParts(),
		cursorstore.DefaultConfig(), defaultProcess, ops.DefaultConfig(), contract.Registry{})
	for _, part := range parts {
		vars = append(vars, variablesOf(reflect.ValueOf(part))...)
	}
	groups := []string{"EXPORT", "EVENT", "KAFKA", "REDIS", "CURSOR", "BRIDGE", "HTTP", "METRICS", "LOG", "SCHEMA"}
	slices.SortStableFunc(vars, func(a, b Variable) int {
		return cmp.Or(
			cmp.Compare(slices.Index(groups, a.group()), slices.Index(groups, b.group())),
			cmp.Compare(slices.Index(kafkaOrder, a.Name), slices.Index(kafkaOrder, b.Name)))
	})
	return vars
})

// streamParts are the structs with the settings of a stream, as they are by default.
func streamParts() []any {
	return []any{
		defaultProfile, exportapi.DefaultConfig(), defaultWindow, windows.DefaultConfig(), engine.DefaultConfig(),
		kafkastream.DefaultConfig(), attest.DefaultConfig(), contract.Config{},
	}
}

// Settings are the complete, validated settings of a process.
type Settings struct {
	Process
	HTTP     ops.Config
	Cursor   cursorstore.Config
	Registry contract.Registry

	Streams  []Stream
	TraceURL string // URL of the collector of traces, "" for none
	// ClearTraces is the variable that sends traces to another machine without TLS, ""
	// for none.
	ClearTraces string
	Warnings    []string  // about unknown variables that look like settings, and secrets that all users can read
	Effective   []Setting // for config show

	src sources // for Changes
}

// Names returns the names of the streams.
func (s *Settings) Names() []string {
	names := make([]string, len(s.Streams))
	for i := range s.Streams {
		names[i] = s.Streams[i].Name
	}
	return names
}

// Stream has the settings of one stream.
type Stream struct {
	Name   string
	Engine engine.Config
	Export exportapi.Config
	Kafka  kafkastream.Config
	// Windows has the windows of time by which the export is followed, if it is.
	Windows  windows.Config
	Attest   attest.Config
	Contract contract.Config

	PageMemory int64 // Sources.Memory, which limits pages; 0 if EXPORT_MAX_RESPONSE_BYTES is set
}

// Sources are the places where variables are set, in order of precedence.
type Sources struct {
	Flags   map[string]string
	Command map[string]string // set by the command itself
	Environ []string          // NAME=VALUE
	EnvFile string            // path of an environment file, "" for none
	Memory  int64             // limit of the heap in bytes; 0 for none
	// Pipes keeps the contents of pipes for the next Load; may be nil.
	Pipes *Pipes
}

// Load loads the settings that a command needs. If a file of settings cannot be read, it
// returns no settings. If its error is Problems, it returns the effective settings too.
func Load(from Sources, need Uses) (*Settings, error) {
	if need&WithoutKey != 0 {
		from.Command = exportSecrets()
	}
	src, err := from.open()
	if err != nil {
		return nil, err
	}
	l := &loader{src: src, memory: from.Memory}
	return l.load(need, time.Now())
}

// open reads the environment file, and the file that BRIDGE_CONFIG names.
func (s *Sources) open() (sources, error) {
	var envFile map[string]string
	if s.EnvFile != "" {
		var err error
		if envFile, err = s.Pipes.readEnvFile(s.EnvFile); err != nil {
			return sources{}, fmt.Errorf("--env-file: %w", err)
		}
	}
	src := newSources(s.Flags, s.Command, s.Environ, envFile)
	src.files.pipes = s.Pipes
	return src, src.openConfig()
}

func (l *loader) load(need Uses, now time.Time) (*Settings, error) {
	s := &Settings{Process: defaultProcess, HTTP: ops.DefaultConfig()}
	if places := l.fill(&s.Process, ""); places[memoryVariable].kind == FromDefault {
		s.Memory = memoryOf(l.memory)
	}
	places := l.fill(&s.HTTP, "")
	s.HTTP.TokensFile, s.HTTP.AdminTokenFile = places["HTTP_TOKENS"].rereadable(), places["HTTP_ADMIN_TOKEN"].rereadable()
	s.HTTP.TLSCertFile, s.HTTP.TLSKeyFile = places["HTTP_TLS_CERT"].rereadable(), places["HTTP_TLS_KEY"].rereadable()
	s.HTTP.OIDC.TLSCAFile = places["HTTP_OIDC_TLS_CA"].rereadable()
	l.fill(&s.Registry, "")
	if need&UsesCursor != 0 {
		s.Cursor = cursorstore.DefaultConfig()
		places := l.fill(&s.Cursor, "")
		s.Cursor.PasswordFile = places["REDIS_PASSWORD"].rereadable()
		s.Cursor.TLSCAFile, s.Cursor.TLSCertFile, s.Cursor.TLSKeyFile = tlsFiles(places, "REDIS_TLS")
	}
	if need == UsesAll {
		s.TraceURL = l.traceURL(s)
	}
	names := l.streamNames(s.StreamNames)
	l.streams = len(names)
	vars := Variables()
	s.src = l.src
	s.Warnings = append(s.Warnings, l.checkConfig(names)...)
	voc := newVocabulary(vars, names)
	voc.checkGiven(l, l.src.layers[0].vars)
	for _, from := range l.src.layers[2:4] {
		s.Warnings = append(s.Warnings, voc.unknown(from.vars)...)
	}
	found := make(map[string]bridge.Problems)
	for _, name := range names {
		st := l.loadStream(name, need, now)
		st.Engine.Mode, st.Engine.Owner = s.Delivery, s.Owner()
		st.Kafka.Mode, st.Kafka.InstanceID, st.Kafka.Process = s.Delivery, s.InstanceID, s.Owner()
		found[name] = st.validate(need) // of the original, which keeps compiled schemas
		s.Streams = append(s.Streams, st)
	}
	l.check(found)
	l.check(map[string]bridge.Problems{"": s.validate(need)})
	l.checkTwins(s.Streams, need)
	l.checkFleet(s.Streams, need)
	s.Effective = withTopics(effectiveOf(l.src, vars, names), s.Streams, "KAFKA_TOPIC",
		func(st *Stream) string { return defaultTopic(st.Name) })
	s.Effective = withTopics(s.Effective, s.Streams, "KAFKA_DLQ_TOPIC",
		func(st *Stream) string { return st.Kafka.DeadTopic() })
	for i := range s.Effective {
		switch row := &s.Effective[i]; {
		case row.Origin != FromDefault:
		case row.Variable == pageVariable:
			row.Value = formatBytes(pageLimit(l.memory, len(names)))
		case row.Variable == memoryVariable:
			row.Value = formatBytes(s.Memory)
		}
	}
	s.Warnings = append(s.Warnings, checkReadable(s.Effective)...)
	return s, l.err(vars)
}

// withTopics replaces the missing default of a variable with the streams' topics.
func withTopics(rows []Setting, streams []Stream, variable string, topic func(*Stream) string) []Setting {
	i := slices.IndexFunc(rows, func(row Setting) bool { return row.Variable == variable && row.Origin == FromDefault })
	if i < 0 {
		return rows
	}
	var topics []Setting
	for s := range streams {
		st := &streams[s]
		own := streamPrefix(st.Name) + variable
		if len(streams) == 1 {
			own = variable
			rows[i].Variable = ""
		}
		if !slices.ContainsFunc(rows, func(row Setting) bool { return row.Variable == own }) {
			topics = append(topics, Setting{Variable: own, Value: topic(st), Origin: FromDefault})
		}
	}
	return slices.Concat(rows[:i], topics, rows[i+1:])
}

// loadStream fills and composes the settings of one stream.
func (l *loader) loadStream(name string, need Uses, now time.Time) Stream {
	st := Stream{Name: name}
	// Records depend on the settings of the export, and items on those of records, so
	// both are always read. Their problems count only if the command uses the export,
	// or Kafka.
	export := &loader{src: l.src, stream: name, memory: l.memory, streams: l.streams}
	preset := export.fillExport(&st)
	if need&WithoutKey != 0 {
		st.Export.Params = l.unreadParams(&st.Export, name)
	}
	export.fillEngine(&st, now)
	if need&UsesExport != 0 {
		l.take(export.problems)
	}
	kafka := &loader{src: l.src, stream: name}
	kafka.fillKafka(&st)
	if need&WithoutKey == 0 { // else parameters and headers are not read, because they are secrets
		st.Engine.Origin.Request = st.Export.Fingerprint(preset)
	}
	st.Kafka.Attested, st.Kafka.Encrypted = st.Attest.On(), st.Export.Private.Encrypts()
	st.Contract.File = kafka.fill(&st.Contract, name)["EVENT_SCHEMA"].path
	if need&UsesKafka != 0 {
		l.take(kafka.problems)
	}
	st.Engine.Stream, st.Kafka.Stream = name, name
	return st
}

// unreadParams stands for EXPORT_PARAMS of a command that does not read them. Those of a profile are
// no secret. Others may have the bounds that have no parameter of their own.
func (l *loader) unreadParams(export *exportapi.Config, stream string) bridge.Secret {
	const variable = "EXPORT_PARAMS"
	if !l.src.has(variable, stream) {
		text, _, _ := l.src.preset(variable, stream)
		return bridge.Secret(text)
	}
	var bounds []string
	if export.StartParam == "none" {
		bounds = append(bounds, "start={start}")
	}
	if export.EndParam == "none" {
		bounds = append(bounds, "end={end}")
	}
	return bridge.Secret(strings.Join(bounds, ","))
}

// fillExport fills the settings of the export API, and returns a function that reports whether a
// variable has the default of this release or of a profile.
func (l *loader) fillExport(st *Stream) (isPreset func(variable string) bool) {
	selected := defaultProfile
	chosen := l.fill(&selected, st.Name)[profileVariable]
	preset, err := l.src.profile(selected.Profile)
	if err != nil {
		l.add(profileVariable, chosen.describe(profileVariable)+": "+err.Error())
	}
	st.Export = exportapi.DefaultConfig()
	st.Export.Private.Stream = st.Name
	places := l.fill(&st.Export, st.Name)
	if places[pageVariable].kind == FromDefault {
		st.PageMemory = l.memory
		st.LimitPages(l.streams)
	}
	oauth2 := st.Export.Scheme == "oauth2"
	if !oauth2 && places["EXPORT_OAUTH2_SCOPES"].kind == FromProfile {
		st.Export.OAuth2Scopes = nil
	}
	if st.Export.Scheme != "key" && places["EXPORT_KEY_PREFIX"].kind == FromProfile {
		st.Export.KeyPrefix = ""
	}
	for name, example := range preset.examples {
		if strings.HasPrefix(name, "EXPORT_OAUTH2_") && !oauth2 {
			continue
		}
		if from, ok := places[name]; ok && from.kind == FromDefault {
			l.addf(name, "%s is not set, and the profile %s has no default, for example %s=%s",
				name, selected.Profile, name, example)
		}
	}
	st.Export.APIKeyFile = places[keyVariable].rereadable()
	_, st.Export.TLSCertFile, st.Export.TLSKeyFile = tlsFiles(places, "EXPORT_TLS")
	if selected == defaultProfile {
		l.chooseResource(st, places["EXPORT_RESOURCE"])
	}
	return func(variable string) bool { return places[variable].kind.preset() }
}

// Preset returns a function that reports whether the value of a stream's variable is a
// default or from a profile.
func (s *Settings) Preset(stream string) func(variable string) bool {
	return func(variable string) (preset bool) {
		for i := range s.Effective {
			if row := &s.Effective[i]; row.Variable == variable || row.Variable == streamPrefix(stream)+variable {
				preset = row.Origin.preset() // the row of the stream comes after the row of all streams
			}
		}
		return preset
	}
}

// fillEngine fills the settings of the engine, some of which follow from those of the export.
func (l *loader) fillEngine(st *Stream, now time.Time) {
	window := defaultWindow
	places := l.fill(&window, st.Name)
	st.Engine = engine.DefaultConfig()
	l.fill(&st.Engine, st.Name)
	st.Engine.PageSize = st.Export.PageSize
	// A fetch is at most two requests and two for tokens, after bodies that still arrive.
	st.Engine.FetchTimeout = max(time.Minute, 10*min(st.Export.Timeout, 24*time.Hour))
	st.Engine.Origin = bridge.Origin{Resource: st.Export.Resource, Events: st.Export.Events, ItemID: st.Export.IDs()}
	st.Engine.Origin.Start = l.instant("EXPORT_START", window.Start, places, now)
	if start := st.Engine.Origin.Start; start > now.UnixMilli() {
		l.addf("EXPORT_START", "%s: %s is in the future (%s): no event is there yet, and those until then would be "+
			"left out; for new events alone set EXPORT_START=now",
			places["EXPORT_START"].describe("EXPORT_START"), window.Start, bridge.InstantText(start))
	}
	st.Windows = windows.DefaultConfig()
	if l.fill(&st.Windows, st.Name); st.Windows.Windows() {
		st.Engine.Origin.Follow, st.Engine.LookBack = bridge.FollowWindows, st.Windows.Reach()
		st.Engine.ChangedIsNew, st.Export.AnyOrder = st.Windows.ChangedIsNew(), true
		st.Windows.Numbered, st.Windows.Overlaps = st.Export.Numbered(), st.Export.Overlaps()
		st.Windows.First = st.Export.FirstNumber()
		start, end := st.Export.Bounds()
		st.Windows.NoStart, st.Windows.NoEnd = !start, !start || !end
	} else if st.Export.Numbered() {
		l.addf("EXPORT_CURSOR_IN", "%s: late and deleted items move others to another page, so a number is no cursor; "+
			"set EXPORT_FOLLOW=windows, with EXPORT_START_PARAM and EXPORT_END_PARAM", st.Export.CursorIn)
	}
	st.Attest = attest.DefaultConfig()
	l.fill(&st.Attest, st.Name)
	st.Engine.RelativeStart = relative(window.Start, st.Engine.Origin.Start, now)
	if window.End != "" {
		st.Engine.Origin.End = l.instant("EXPORT_END", window.End, places, now)
		l.checkBound("EXPORT_END", window.End, st.Engine.Origin.End, places, now)
		if !st.Windows.Windows() { // EXPORT_END is refused, and the start is right
			l.checkBound("EXPORT_START", window.Start, st.Engine.Origin.Start, places, now)
		}
	}
}

// fillKafka fills the settings of Kafka.
func (l *loader) fillKafka(st *Stream) {
	st.Kafka = kafkastream.DefaultConfig()
	places := l.fill(&st.Kafka, st.Name)
	st.Kafka.Resource, st.Kafka.TimePointer = st.Export.Resource, st.Export.TimePointer()
	st.Export.KeyPointer = st.Kafka.Key // before Redacted: it may be the subject
	st.Kafka.Redacted = st.Export.Redacted()
	st.Kafka.SASLPasswordFile = places["KAFKA_SASL_PASSWORD"].rereadable()
	st.Kafka.TLSCAFile, st.Kafka.TLSCertFile, st.Kafka.TLSKeyFile = tlsFiles(places, "KAFKA_TLS")
	st.Kafka.OAuthTLSCAFile = places["KAFKA_SASL_OAUTH_TLS_CA"].rereadable()
	if st.Kafka.Topic == "" {
		st.Kafka.Topic = defaultTopic(st.Name)
	}
	st.Engine.Topic, st.Engine.DivertAll = st.Kafka.Topic, st.Kafka.DivertsAll()
	st.Export.Routes = st.Kafka.Routes()
	st.Engine.Routes = st.Export.Routes.Text
	l.checkRoutes(st)
	st.Engine.EndExplicit = st.Export.MoreField != ""
	if d, err := bridge.ParseDuration(st.Kafka.Retention); err == nil && st.Kafka.Retention != "-1" {
		st.Kafka.Retention = d.String()
	}
	if key := st.Kafka.Key; key != "none" && key != kafkastream.DefaultConfig().Key { // a list may lack the default
		st.Engine.KeyPointer = key
	}
}

// checkRoutes rejects routes that have no effect with the other settings of the stream.
func (l *loader) checkRoutes(st *Stream) {
	const name = "KAFKA_ROUTES"
	routes := &st.Export.Routes
	if types := st.Export.ItemType; routes.ByType() && len(types) == 1 && types[0] == "none" {
		l.addf(name, "%s: compares types, but EXPORT_ITEM_TYPE=none says that there are none; "+
			"use /POINTER=PATTERN:TOPIC", name)
	}
	if routes.Drops() && st.Windows.Windows() {
		l.addf(name, "%s: the topic drop is not possible with EXPORT_FOLLOW=windows, where the topics show which "+
			"events are new; name a topic with a short retention", name)
	}
}

func defaultTopic(stream string) string { return "export." + stream }

// chooseResource sets the resource of a stream. A stream with the name of a resource
// exports that resource. Any other stream requires the setting, for itself or for all
// streams, or EXPORT_PATH. Only the default profile has resources.
func (l *loader) chooseResource(st *Stream, from place) {
	const name = "EXPORT_RESOURCE"
	own := streamPrefix(st.Name) + name
	if strings.HasPrefix(from.name, own) {
		return
	}
	vars := variablesOf(reflect.ValueOf(st.Export))
	resources := vars[slices.IndexFunc(vars, func(v Variable) bool { return v.Name == name })].Values
	switch named := slices.Contains(resources, st.Name); {
	case named && from.kind == FromDefault:
		st.Export.Resource = st.Name
	case named && st.Export.Resource != st.Name:
		l.addf(name, "%s: %s is not for stream %s, which is named after a resource; set BRIDGE_STREAMS=%s, or %s=%s",
			from.name, st.Export.Resource, st.Name, st.Export.Resource, own, st.Export.Resource)
	case !named && from.kind == FromDefault && st.Export.Path == "":
		l.addf(name, "%s: is required, because stream %s is not named after a resource, for example %s",
			own, st.Name, resources[0])
	}
}

// checkBound rejects a relative bound of a window, which could not be resumed.
func (l *loader) checkBound(name, text string, ms int64, places map[string]place, now time.Time) {
	if relative(text, ms, now) {
		l.addf(name, "%s: %q is another time at every start, so the window until EXPORT_END could not be resumed; "+
			"write it out, for example %s", places[name].describe(name), text, bridge.InstantText(ms))
	}
}

// relative reports whether a text that now means ms means another time later.
func relative(text string, ms int64, now time.Time) bool {
	later, err := bridge.ParseInstant(text, now.Add(time.Hour))
	return err == nil && later != ms
}

// instant reads a point in time; 0 if it is invalid.
func (l *loader) instant(name, text string, places map[string]place, now time.Time) int64 {
	ms, err := bridge.ParseInstant(text, now)
	if err != nil {
		l.add(name, places[name].describe(name)+": "+err.Error())
	}
	return ms
}
