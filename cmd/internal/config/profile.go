package config

import (
	"embed"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// profileConfig selects the profile of a stream.
type profileConfig struct {
	Profile string `env:"EXPORT_PROFILE" stream:"yes" desc:"defaults of the settings for the export API of one service: a name that exportbridge config profile lists, or the path of a file, which contains a / or ends with .env; what is set takes precedence" example:"./acme.env"`
}

var defaultProfile = profileConfig{Profile: "croct"}

// profileVariable names the setting that selects a profile.
const profileVariable = "EXPORT_PROFILE"

// profileEnd is the end of the name of a file with a profile.
const profileEnd = ".env"

// profile has the defaults for the export API of one service.
type profile struct {
	text string
	// values are the defaults that differ from those of croct.
	values map[string]string
	// examples has an example for each setting that must be set.
	examples map[string]string
}

//go:embed profiles/*.env
var profileFiles embed.FS

// profiles are the profiles of services, by name. They follow the public documentation.
var profiles = sync.OnceValue(func() map[string]profile {
	all := make(map[string]profile)
	files, err := profileFiles.ReadDir("profiles")
	for _, file := range files {
		var text []byte
		if text, err = profileFiles.ReadFile(path.Join("profiles", file.Name())); err != nil {
			break
		}
		name := strings.TrimSuffix(file.Name(), profileEnd)
		if all[name], err = parseProfile(file.Name(), string(text)); err != nil {
			break
		}
	}
	if err != nil {
		panic(err) // cannot happen: a test loads every profile
	}
	return all
})

// toBeSet is the end of a line with a setting that has no default.
const toBeSet = "# to be set"

// parseProfile reads a profile. A line "#NAME=example  # to be set" has an example of a setting
// that the profile cannot know.
func parseProfile(file, text string) (profile, error) {
	p := profile{text: text, values: make(map[string]string), examples: make(map[string]string)}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line, unset := strings.CutPrefix(strings.TrimSpace(line), "#")
		if lines[i] = ""; unset && strings.HasSuffix(line, toBeSet) {
			lines[i] = line
		}
	}
	if err := parseEnv(file, strings.Join(lines, "\n"), inProfile(p.examples)); err != nil {
		return p, err
	}
	return p, parseEnv(file, text, inProfile(p.values))
}

// openSecrets are settings that may contain a secret, but do not in a profile.
var openSecrets = []string{"EXPORT_PARAMS", "EXPORT_HEADERS", "EXPORT_OAUTH2_PARAMS", "KAFKA_SASL_OAUTH_PARAMS"}

// ownOfDeployment are settings of the export that depend on the deployment, not on the service.
var ownOfDeployment = []string{
	profileVariable, "EXPORT_RESOURCE", "EXPORT_INSECURE_HTTP", "EXPORT_ALLOW_LINK_LOCAL",
	"EXPORT_TLS_CA", "EXPORT_TLS_CERT",
}

// inProfile returns a function that adds an assignment of a profile to a map.
func inProfile(to map[string]string) func(name, value string) error {
	return func(name, value string) error {
		vars := variables()
		i := slices.IndexFunc(vars, func(v Variable) bool { return v.Name == name })
		if i < 0 {
			return fmt.Errorf("%s is not a setting", name)
		}
		switch {
		case vars[i].Secret && !slices.Contains(openSecrets, name):
			return fmt.Errorf("%s is a secret, which no profile contains; set it in the environment", name)
		case slices.Contains(ownOfDeployment, name),
			vars[i].group() != "EXPORT" && name != "KAFKA_KEY" && !strings.HasPrefix(name, "KAFKA_CE_"):
			return fmt.Errorf("%s does not describe an export API; set it in the environment", name)
		}
		if value != "" {
			to[name] = value
		}
		return nil
	}
}

// isPath reports whether a value of EXPORT_PROFILE is a path, not a name.
func isPath(named string) bool {
	return strings.HasSuffix(named, profileEnd) || strings.ContainsAny(named, "/"+string(filepath.Separator))
}

// profile returns the profile that a value of EXPORT_PROFILE names.
func (s sources) profile(named string) (profile, error) {
	if !isPath(named) {
		p, known := profiles()[named]
		if !known {
			return p, fmt.Errorf("%q is not one of: %s; a path contains a / or ends with %s",
				named, strings.Join(ProfileNames(), ", "), profileEnd)
		}
		return p, nil
	}
	p, known := s.files.profiles[named]
	if known {
		return p, nil
	}
	text, err := s.files.read(named)
	if err != nil {
		return p, err
	}
	if p, err = parseProfile(named, text); err != nil {
		return p, err
	}
	s.files.profiles[named] = p
	return p, nil
}

// ProfileIn returns the value of EXPORT_PROFILE in the settings, "" for none.
func ProfileIn(from Sources) (string, error) {
	src, err := from.open()
	if err != nil {
		return "", err
	}
	named, at, err := src.given(&Variable{Name: profileVariable}, "")
	if err == nil && named != "" {
		if _, err = src.profile(named); err != nil {
			err = fmt.Errorf("%s: %w", at.describe(profileVariable), err)
		}
	}
	return named, err
}

// ProfileNames lists the profiles, the default first.
func ProfileNames() []string {
	names := []string{defaultProfile.Profile, "generic"}
	for _, name := range slices.Sorted(maps.Keys(profiles())) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Profiles returns a table of the profiles, with the first line of each.
func Profiles() [][]string {
	table := [][]string{{"PROFILE", "FOR"}}
	for _, name := range ProfileNames() {
		about, _, _ := strings.Cut(profiles()[name].text, "\n")
		table = append(table, []string{name, strings.TrimPrefix(about, "# ")})
	}
	return table
}

// Profile returns the file of a profile. ok is false for an unknown name.
func Profile(name string) (text string, ok bool) {
	p, ok := profiles()[name]
	return p.text, ok
}
