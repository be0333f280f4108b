package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
	"exportbridge/cmd/internal/process"
	"exportbridge/cursorstore"
)

// Settings loads the settings that the command needs. preset are variables of the command,
// which take precedence over the environment; flags take precedence over preset. With an
// error about settings, Settings returns the effective values too.
func (a *App) Settings(need config.Uses, preset map[string]string) (*config.Settings, error) {
	s, err := config.Load(a.sources(preset), need)
	if s != nil {
		a.several = len(s.Streams) > 1 || s.ConfigFile != ""
		hint(s)
		if a.logs && process.LogsJSON(a.Stderr, &s.Process) {
			a.log = slog.New(slog.NewJSONHandler(a.Stderr, nil))
		}
	}
	if err == nil {
		return s, nil
	}
	wrong := &Error{Code: ExitUsage, Err: err}
	if s != nil {
		a.Warn(s) // an unknown name may be the misspelt name of a missing setting
		wrong.Hint = wrongSettings(err) + "; exportbridge config docs describes the settings"
	}
	return s, wrong
}

// hint sets the hints of the streams. The hints name the stream if there are, or may be,
// several streams.
func hint(s *config.Settings) {
	for i := range s.Streams {
		hints := func(h bridge.Hint) string { return EngineHints[h] }
		if len(s.Streams) > 1 || s.ConfigFile != "" {
			hints = hintsOf(s.Streams[i].Name)
		}
		s.Streams[i].Engine.Hints, s.Streams[i].Kafka.Hints = hints, hints
	}
}

// Reload loads all settings again, for a running process. Any goroutine may call it, but
// only one at a time.
func (a *App) Reload() (*config.Settings, error) {
	s, err := config.Load(a.sources(nil), config.UsesAll)
	if s != nil {
		hint(s)
	}
	return s, err
}

func (a *App) sources(preset map[string]string) config.Sources {
	return config.Sources{
		Flags: a.Given, Command: preset, Environ: a.Environ, EnvFile: a.envFile, Memory: process.MemoryLimit(a.Environ),
		Pipes: &a.pipes,
	}
}

// Profile returns the value of EXPORT_PROFILE, "" for none.
func (a *App) Profile() (string, error) {
	name, err := config.ProfileIn(a.sources(nil))
	if err != nil {
		err = &Error{Code: ExitUsage, Err: err, Hint: "exportbridge config profile"}
	}
	return name, err
}

// wrongSettings is the hint to set or correct the variables of an error.
func wrongSettings(err error) string {
	var names []string
	verb := "set "
	all, _ := errors.AsType[config.Problems](err)
	for _, p := range all {
		name := p.Variable
		if given, _, _ := strings.Cut(p.Message, ":"); strings.Contains(given, name) && !strings.Contains(given, " ") {
			name = given // the variable of a stream or of a file
		}
		if at := placed.FindStringSubmatch(p.Message); at != nil {
			name = at[1]
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
		if !missing.MatchString(p.Message) || placed.MatchString(p.Message) {
			verb = "correct "
		}
	}
	if len(names) == 0 || len(names) > 3 {
		return "correct the settings"
	}
	return verb + strings.Join(names, ", ")
}

// placed matches the message of a mistake in the file of BRIDGE_CONFIG or in one of its lists.
var placed = regexp.MustCompile(`^(\S+):[0-9]+:[0-9]+: `)

// missing matches the message of a setting without a value.
var missing = regexp.MustCompile(`^\S+ is (not set|required|empty)\b|^\S+: is required`)

// LogSettings is Settings for a command that logs to Stderr. If the log is JSON, warnings
// and the error that ends the command are lines of the log.
func (a *App) LogSettings(need config.Uses) (*config.Settings, error) {
	a.logs = true
	return a.Settings(need, nil)
}

// settingsAnnotation marks the commands that take settings, for the usage text.
const settingsAnnotation = "settings"

// TakeSettings adds --set, --env-file and a flag for each setting that is not secret. Help
// omits the flags of settings, which config docs lists.
func (a *App) TakeSettings(cmd *cobra.Command) {
	flags := cmd.Flags()
	for _, f := range a.settings() {
		if flags.Lookup(f.Name) == nil {
			flags.AddFlag(f)
		}
	}
	flags.Var(Parsed(new(string), a.set, "NAME=VALUE"), "set", "set a variable, such as EXPORT_PAGE_SIZE=500")
	flags.StringVar(&a.envFile, "env-file", "", "read NAME=VALUE lines from `FILE`; the environment takes precedence")
	if cmd.Annotations == nil {
		cmd.Annotations = make(map[string]string)
	}
	cmd.Annotations[settingsAnnotation] = "yes"
}

// settings returns the flags of the settings. The commands share them: flags of their own would
// take most of the start, and cobra keeps each flag that has completions for ever.
func (a *App) settings() []*pflag.Flag {
	if a.flags != nil {
		return a.flags
	}
	var all cobra.Command
	for _, v := range config.Variables() {
		if v.Secret {
			continue
		}
		flag := &pflag.Flag{
			Name:   v.FlagName(),
			Usage:  v.Description,
			Value:  a.setting(v.Name, v.Kind()),
			Hidden: true,
		}
		if v.Kind() == "true, false" {
			flag.NoOptDefVal = "true"
		}
		a.flags = append(a.flags, flag)
		all.Flags().AddFlag(flag)
		if choices := v.Choices(); len(choices) > 0 {
			Offer(&all, flag.Name, choices...)
		}
	}
	return a.flags
}

// setting returns the value of one flag. Loading the settings validates its value.
func (a *App) setting(name, kind string) pflag.Value {
	return Parsed(new(string), func(value string) (string, error) {
		a.Given[name] = value
		return value, nil
	}, kind)
}

// set takes a value of --set, which may be for a variable of one stream or of a file.
func (a *App) set(text string) (string, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return "", errors.New("expected NAME=VALUE, such as EXPORT_PAGE_SIZE=500")
	}
	a.Given[name] = value
	return text, nil
}

// Warn prints the warnings of the settings, each once: a watch loads the settings again and
// again.
func (a *App) Warn(s *config.Settings) {
	for _, line := range s.Warnings {
		if slices.Contains(a.warned, line) {
			continue
		}
		a.warned = append(a.warned, line)
		if a.log != nil {
			a.log.Warn("settings", "warning", line)
			continue
		}
		fmt.Fprintf(a.Stderr, "warning: %s\n", line)
	}
}

// OpenRedis connects to the Redis that keeps the cursors. The client logs nothing, because
// it returns its messages as errors too.
func OpenRedis(s *config.Settings) (*cursorstore.Client, error) {
	cursorstore.LogTo(nil)
	return cursorstore.Open(s.Cursor)
}

// StreamSettings returns the settings of the process and of a stream, for a command that
// uses the topics of the stream.
func (a *App) StreamSettings(need config.Uses, name string) (*config.Settings, *config.Stream, error) {
	s, err := a.Settings(need|config.UsesKafka, nil)
	if err != nil {
		return nil, nil, err
	}
	a.Warn(s)
	st, err := StreamNamed(s, name)
	return s, st, err
}

// StreamsSettings returns the settings with the named stream only, or with all streams
// for an empty name, for a command that uses their topics.
func (a *App) StreamsSettings(need config.Uses, name string) (*config.Settings, error) {
	s, err := a.Settings(need|config.UsesKafka, nil)
	if err != nil {
		return nil, err
	}
	a.Warn(s)
	if name == "" {
		return s, nil
	}
	st, err := StreamNamed(s, name)
	if err == nil {
		s.Streams = []config.Stream{*st}
	}
	return s, err
}

// StreamNamed returns the settings of the named stream, or of the only one.
func StreamNamed(s *config.Settings, name string) (*config.Stream, error) {
	for i := range s.Streams {
		if st := &s.Streams[i]; st.Name == name || name == "" && len(s.Streams) == 1 {
			return st, nil
		}
	}
	names := slices.Sorted(slices.Values(s.Names()))
	hint := "--stream " + names[0]
	if name == "" {
		return nil, WrongUsage(hint, "--stream is required with several streams: %v", names)
	}
	return nil, WrongUsage(hint, "unknown stream %q; BRIDGE_STREAMS lists %v", name, names)
}
