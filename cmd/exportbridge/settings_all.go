package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"exportbridge/bridge"
	"exportbridge/bridge/exportapi"
	"exportbridge/bridge/kafkasink"
	"exportbridge/bridge/ops"
	"exportbridge/cursorstore"
)

// Values of EXPORT_URL, KAFKA_BROKERS and REDIS_URL that ask for a server in
// this process.
const (
	simulated = "simulated"
	embedded  = "embedded"
	// anyServer stands for the address of such a server, which is not known yet.
	anyServer = "127.0.0.1:1"
)

// processConfig is what the command itself needs to know.
type processConfig struct {
	Streams    []string    `env:"BRIDGE_STREAMS, default=events" desc:"names of the streams of this process; events, sessions and users export what they are called" example:"events,users"`
	InstanceID string      `env:"BRIDGE_INSTANCE_ID" desc:"name of this process, the same after every restart and no other's: it then has its streams back at once; <host>-<process id> if empty" example:"bridge-0"`
	Delivery   bridge.Mode `env:"KAFKA_DELIVERY, default=exactly-once" values:"exactly-once,at-least-once" desc:"the delivery guarantee; at-least-once publishes without transactions"`
	LogLevel   string      `env:"LOG_LEVEL, default=info" values:"debug,info,warn,error" desc:"the least serious messages to log"`
	LogFormat  string      `env:"LOG_FORMAT, default=auto" values:"auto,text,json" desc:"form of the log; auto is text on a terminal and json elsewhere"`
}

// windowConfig is where a stream's export begins and ends.
type windowConfig struct {
	Start string `env:"EXPORT_START, default=earliest" stream:"yes" desc:"where an export without a cursor begins: RFC 3339, now, earliest, -24h or milliseconds since the epoch" example:"2026-11-01T00:00:00Z"`
	End   string `env:"EXPORT_END" stream:"yes" desc:"where a stateless window ends, exclusive; without it the stream goes on for ever" example:"2026-11-02T00:00:00Z"`
}

// uses says which systems a command needs the settings of. The settings of
// other systems are not judged: tail works without an API key.
type uses uint8

const (
	usesExport uses = 1 << iota
	usesKafka
	usesCursor
	usesAll = usesExport | usesKafka | usesCursor
)

// allVariables lists every setting of the program. A name that two packages
// share is listed once.
func allVariables() []variable {
	var vars []variable
	for _, t := range []reflect.Type{
		reflect.TypeFor[exportapi.Config](),
		reflect.TypeFor[windowConfig](),
		reflect.TypeFor[bridge.Config](),
		reflect.TypeFor[kafkasink.Config](),
		reflect.TypeFor[cursorstore.Config](),
		reflect.TypeFor[processConfig](),
		reflect.TypeFor[ops.Config](),
	} {
		for _, v := range variablesOf(t) {
			if !slices.ContainsFunc(vars, func(w variable) bool { return w.name == v.name }) {
				vars = append(vars, v)
			}
		}
	}
	groups := []string{"EXPORT", "KAFKA", "REDIS", "CURSOR", "BRIDGE", "HTTP", "LOG"}
	slices.SortStableFunc(vars, func(a, b variable) int {
		return cmp.Compare(slices.Index(groups, a.group()), slices.Index(groups, b.group()))
	})
	return vars
}

// settings are all settings of one process, judged and complete.
type settings struct {
	processConfig
	http   ops.Config
	cursor cursorstore.Config
	// embeddedKafka and embeddedRedis ask for a server in this process, whose
	// address takes the place of the brokers of every stream and of cursor.URL.
	embeddedKafka, embeddedRedis bool

	streams   []streamSettings
	traceURL  string      // empty is nowhere
	warnings  []string    // what looks like a setting and is none
	effective []effective // for config show
}

// streamSettings are those of one stream.
type streamSettings struct {
	name   string
	engine bridge.Config
	export exportapi.Config
	kafka  kafkasink.Config
	// simulated asks for the simulator in place of export.URL.
	simulated bool
}

// given are the places where variables are set, the strongest first.
type given struct {
	flags   map[string]string
	command map[string]string // set by the command itself
	environ []string          // NAME=VALUE
	envFile string            // path of a file in the form of an environment; "" for none
}

// loadSettings loads what a command needs. A file that cannot be read is an error without
// settings; with settingsError the settings hold the values in force all the same.
func loadSettings(ctx context.Context, from given, need uses) (*settings, error) {
	var envFile map[string]string
	if from.envFile != "" {
		vars, err := readEnvFile(from.envFile)
		if err != nil {
			return nil, fmt.Errorf("--env-file: %w", err)
		}
		envFile = vars
	}
	l := &loader{src: newSources(from.flags, from.command, from.environ, envFile)}
	return l.load(ctx, need, time.Now())
}

func (l *loader) load(ctx context.Context, need uses, now time.Time) (*settings, error) {
	s := new(settings)
	l.fill(ctx, &s.processConfig, "")
	l.fill(ctx, &s.http, "")
	if need&usesCursor != 0 {
		l.fill(ctx, &s.cursor, "")
		s.embeddedRedis = s.cursor.URL == embedded
	}
	if need == usesAll {
		s.traceURL = l.traceURL(s)
	}
	names := l.streamNames(s.Streams)
	vars := allVariables()
	voc := newVocabulary(vars, names)
	voc.checkGiven(l, l.src[0].vars)
	for _, from := range l.src[2:] {
		s.warnings = append(s.warnings, voc.unknown(from.vars)...)
	}
	found := make(map[string]error)
	for _, name := range names {
		st := l.loadStream(ctx, name, need, now)
		st.engine.Mode, st.engine.Owner = s.Delivery, s.owner()
		st.kafka.Mode, st.kafka.InstanceID = s.Delivery, s.InstanceID
		s.embeddedKafka = isEmbedded(&st.kafka)
		s.streams = append(s.streams, st)
		found[name] = st.validate(need)
	}
	l.check(voc, found)
	l.check(voc, map[string]error{"": errors.Join(s.http.Validate(), s.validate(need))})
	l.checkTwins(s.streams, need)
	s.effective = withTopics(effectiveOf(ctx, l.src, vars, names), s.streams)
	l.sort(vars)
	return s, l.err()
}

// withTopics puts the topics that follow from the streams' names in place of
// the missing default.
func withTopics(rows []effective, streams []streamSettings) []effective {
	i := slices.IndexFunc(rows, func(row effective) bool { return row.Variable == "KAFKA_TOPIC" && row.Origin == fromDefault })
	if i < 0 {
		return rows
	}
	var topics []effective
	for _, st := range streams {
		own := streamPrefix(st.name) + "KAFKA_TOPIC"
		if len(streams) == 1 {
			own = "KAFKA_TOPIC"
			rows[i].Variable = ""
		}
		if !slices.ContainsFunc(rows, func(row effective) bool { return row.Variable == own }) {
			topics = append(topics, effective{Variable: own, Value: defaultTopic(st.name), Origin: fromDefault})
		}
	}
	return slices.Concat(rows[:i], topics, rows[i+1:])
}

// loadStream fills and composes the settings of one stream.
func (l *loader) loadStream(ctx context.Context, name string, need uses, now time.Time) streamSettings {
	st := streamSettings{name: name}
	st.engine.Stream, st.kafka.Stream = name, name
	// What is exported decides about the records too, so the export's settings
	// are always read; but a command that does not use it need not have them right.
	judged := l
	if need&usesExport == 0 {
		judged = &loader{src: l.src}
	}
	judged.fillExport(ctx, &st)
	judged.fillEngine(ctx, &st, now)
	if need&usesKafka != 0 {
		l.fillKafka(ctx, &st)
	}
	return st
}

// fillExport fills the settings of the export API. The simulator needs no key,
// and its address is not known yet.
func (l *loader) fillExport(ctx context.Context, st *streamSettings) {
	own := &loader{src: l.src}
	for _, v := range variablesOf(reflect.TypeFor[exportapi.Config]()) {
		text, _, _ := l.src.find(&v, st.name)
		switch {
		case v.name == "EXPORT_URL":
			st.simulated = text == simulated
		case v.name == "EXPORT_API_KEY" && text == "" && st.simulated:
			own.src = append(slices.Clone(l.src), layer{fromCommand, map[string]string{v.name: simulated}})
		}
	}
	origins := own.fill(ctx, &st.export, st.name)
	for _, p := range own.problems {
		l.add(p.variable, p.text)
	}
	st.export.APIKeyFile = origins["EXPORT_API_KEY"].path
	l.chooseResource(st, origins["EXPORT_RESOURCE"])
}

// fillEngine fills the settings of the engine, which follow from the export's.
func (l *loader) fillEngine(ctx context.Context, st *streamSettings, now time.Time) {
	var window windowConfig
	l.fill(ctx, &window, st.name)
	l.fill(ctx, &st.engine, st.name)
	st.engine.PageSize = st.export.PageSize
	st.engine.Origin = bridge.Origin{Resource: st.export.Resource, Events: st.export.Events}
	st.engine.Origin.Start = l.instant("EXPORT_START", window.Start, st.name, now)
	if window.End != "" {
		st.engine.Origin.End = l.windowEnd(window.End, st.name, now)
	}
}

// fillKafka fills the settings of Kafka.
func (l *loader) fillKafka(ctx context.Context, st *streamSettings) {
	origins := l.fill(ctx, &st.kafka, st.name)
	st.kafka.Resource = st.export.Resource
	st.kafka.SASLPasswordFile = origins["KAFKA_SASL_PASSWORD"].path
	if st.kafka.Topic == "" {
		st.kafka.Topic = defaultTopic(st.name)
	}
	st.engine.Topic, st.engine.DivertAll = st.kafka.Topic, st.kafka.DivertsAll()
	if d, err := parseDuration(st.kafka.Retention); err == nil && st.kafka.Retention != "-1" {
		st.kafka.Retention = d.String()
	}
	st.export.KeyPointer = st.kafka.Key
}

func defaultTopic(stream string) string { return "export." + stream }

// chooseResource settles what a stream exports: a stream named after a
// resource exports that one, every other has to say it.
func (l *loader) chooseResource(st *streamSettings, from origin) {
	const name = "EXPORT_RESOURCE"
	own := streamPrefix(st.name) + name
	if strings.HasPrefix(from.name, own) {
		return
	}
	resources := variableNamed(reflect.TypeFor[exportapi.Config](), name).values
	switch named := slices.Contains(resources, st.name); {
	case named && from.kind == fromDefault:
		st.export.Resource = st.name
	case named && st.export.Resource == st.name:
	case named:
		l.add(name, fmt.Sprintf("%s: %s is not for stream %s, which is named after a resource; set BRIDGE_STREAMS=%s, or %s=%s",
			from.name, st.export.Resource, st.name, st.export.Resource, own, st.export.Resource))
	default:
		l.add(name, fmt.Sprintf("%s: is required, because stream %s is not named after a resource, for example %s", own, st.name, resources[0]))
	}
}

func variableNamed(t reflect.Type, name string) variable {
	for _, v := range variablesOf(t) {
		if v.name == name {
			return v
		}
	}
	return variable{}
}

// windowEnd reads the end of a window. It must be the same instant at every
// start, or a window could not be resumed.
func (l *loader) windowEnd(text, stream string, now time.Time) int64 {
	ms := l.instant("EXPORT_END", text, stream, now)
	if later, err := parseInstant(text, now.Add(time.Hour)); err == nil && later != ms {
		l.add("EXPORT_END", fmt.Sprintf("EXPORT_END: %q is another time at every start, so the window could not be resumed; write it out, for example %s",
			text, time.UnixMilli(ms).UTC().Format(time.RFC3339)))
	}
	return ms
}

// instant reads a point in time, 0 if it cannot be read.
func (l *loader) instant(name, text, stream string, now time.Time) int64 {
	ms, err := parseInstant(text, now)
	if err != nil {
		v := variable{name: name, stream: true}
		_, from, _ := l.src.find(&v, stream)
		l.add(name, from.describe(name)+": "+err.Error())
	}
	return ms
}

// unsafe lists the settings that give up a protection.
func (st *streamSettings) unsafe() []string {
	var list []string
	add := func(on bool, name string) {
		if on {
			list = append(list, name)
		}
	}
	add(st.export.InsecureHTTP, "EXPORT_INSECURE_HTTP")
	add(st.kafka.TLSSkipVerify, "KAFKA_TLS_SKIP_VERIFY")
	add(st.kafka.SASLInsecure, "KAFKA_SASL_INSECURE")
	add(st.engine.OnCheckpointLoss == "redis", "BRIDGE_ON_CHECKPOINT_LOSS")
	return list
}

// validate asks about the parts that all streams share.
func (s *settings) validate(need uses) error {
	if need&usesCursor == 0 {
		return nil
	}
	cursor := s.cursor
	if s.embeddedRedis {
		cursor.URL = "redis://" + anyServer
	}
	return cursor.Validate()
}

// validate asks every package about its part.
func (st *streamSettings) validate(need uses) error {
	var errs []error
	if need&usesExport != 0 {
		export := st.export
		if st.simulated {
			export.URL = "http://" + anyServer
		}
		errs = append(errs, st.engine.Validate(), export.Validate())
	}
	if need&usesKafka != 0 {
		kafka := st.kafka
		if isEmbedded(&kafka) {
			kafka.Brokers = []string{anyServer}
		}
		errs = append(errs, kafka.Validate())
	}
	return errors.Join(errs...)
}

// isEmbedded reports whether Kafka is a server inside a process, which others
// know only by its address.
func isEmbedded(k *kafkasink.Config) bool { return slices.Equal(k.Brokers, []string{embedded}) }

var streamName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// streamNames returns the names that can be used. Names that differ only in -
// and _ would share their variables.
func (l *loader) streamNames(names []string) []string {
	var good []string
	prefixes := make(map[string]string)
	for _, name := range names {
		twin, taken := prefixes[streamPrefix(name)]
		switch {
		case !streamName.MatchString(name):
			l.add("BRIDGE_STREAMS", fmt.Sprintf("BRIDGE_STREAMS: %q is not a name of a-z, 0-9, _ and -, at most 63 long; commas are between names, for example events,users", name))
		case taken && twin == name:
			l.add("BRIDGE_STREAMS", fmt.Sprintf("BRIDGE_STREAMS: %q comes twice, for example events,users", name))
		case taken:
			l.add("BRIDGE_STREAMS", fmt.Sprintf("BRIDGE_STREAMS: %q and %q would share their variables %s..., rename one", twin, name, streamPrefix(name)))
		default:
			prefixes[streamPrefix(name)] = name
			good = append(good, name)
		}
	}
	return good
}

// checkTwins refuses two streams that would write the same events to the same
// topic.
func (l *loader) checkTwins(streams []streamSettings, need uses) {
	if need&(usesExport|usesKafka) != usesExport|usesKafka {
		return
	}
	for i := range streams {
		for j := range streams[:i] {
			a, b := &streams[j], &streams[i]
			if a.kafka.Topic == b.kafka.Topic && a.sameSource(b) {
				l.add("BRIDGE_STREAMS", fmt.Sprintf("BRIDGE_STREAMS: streams %s and %s have the same source and topic, remove one or set %sKAFKA_TOPIC",
					a.name, b.name, streamPrefix(b.name)))
			}
		}
	}
}

func (st *streamSettings) sameSource(other *streamSettings) bool {
	a, b := st.export, other.export
	return a.URL == b.URL && a.Path == b.Path && a.Resource == b.Resource && a.APIKey == b.APIKey &&
		slices.Equal(slices.Sorted(slices.Values(a.Events)), slices.Sorted(slices.Values(b.Events)))
}

// owner names this process in checkpoints and answers.
func (c *processConfig) owner() string {
	if c.InstanceID != "" {
		return c.InstanceID
	}
	host, err := os.Hostname()
	if err != nil {
		host = "exportbridge"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
