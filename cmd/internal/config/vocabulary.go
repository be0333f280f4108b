package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// An unknown name with one of ownPrefixes is a mistake. Other programs use sharedPrefixes
// too: an unknown name with one of them is reported only if a setting has a similar name.
var (
	ownPrefixes    = []string{"EXPORT_", "CURSOR_", "BRIDGE_", "REDIS_", "STREAM_", "EVENT_"}
	sharedPrefixes = []string{"KAFKA_", "HTTP_", "METRICS_", "LOG_", "SCHEMA_"}
)

// nearEnough is the largest number of typing mistakes in a name that counts as misspelt.
const nearEnough = 2

// synonyms are names of other programs for a setting, except for names that lack one
// word of it.
var synonyms = map[string]string{
	"KAFKA_BOOTSTRAP_SERVERS": "KAFKA_BROKERS", "KAFKA_BOOTSTRAP_SERVER": "KAFKA_BROKERS",
	"KAFKA_BOOTSTRAP_BROKERS": "KAFKA_BROKERS", "KAFKA_BROKER_LIST": "KAFKA_BROKERS",
	"KAFKA_SERVERS": "KAFKA_BROKERS", "KAFKA_HOST": "KAFKA_BROKERS", "KAFKA_URL": "KAFKA_BROKERS",
	"KAFKA_SECURITY_PROTOCOL": "KAFKA_TLS_ENABLED", "KAFKA_SSL_ENABLED": "KAFKA_TLS_ENABLED",
	"KAFKA_SSL_CA": "KAFKA_TLS_CA",
	"KAFKA_USER":   "KAFKA_SASL_USERNAME", "KAFKA_SASL_USER": "KAFKA_SASL_USERNAME", "KAFKA_ACKS": "KAFKA_DELIVERY",
	"KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": "KAFKA_SASL_OAUTH_TOKEN_URL",
	"KAFKA_SASL_OAUTH_TOKEN_ENDPOINT":           "KAFKA_SASL_OAUTH_TOKEN_URL",
	"REDIS_HOST":                                "REDIS_URL", "REDIS_ADDR": "REDIS_URL", "REDIS_DB": "REDIS_URL",
	"REDIS_DATABASE": "REDIS_URL",
	"EXPORT_TOKEN":   "EXPORT_API_KEY", "EXPORT_KEY": "EXPORT_API_KEY", "EXPORT_API_TOKEN": "EXPORT_API_KEY",
	"EXPORT_API_URL": "EXPORT_URL", "EXPORT_BASE_URL": "EXPORT_URL", "EXPORT_ENDPOINT": "EXPORT_URL",
	"HTTP_PORT": "HTTP_ADDR", "HTTP_LISTEN": "HTTP_ADDR",
}

// serviceLink matches the variables that Kubernetes sets in every container for every
// service, except <SERVICE>_PORT: the value tells whether that is one.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

func isServiceLink(name, value string) bool {
	return serviceLink.MatchString(name) || (strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://"))
}

// IsOurs reports whether a variable of that name may be a setting of this program.
func IsOurs(name string) bool {
	return hasPrefix(name, ownPrefixes) || hasPrefix(name, sharedPrefixes)
}

// vocabulary has the names of all settings.
type vocabulary struct {
	vars    map[string]*Variable
	names   []string // with their _FILE forms
	streams []string
}

func newVocabulary(vars []Variable, streams []string) *vocabulary {
	voc := &vocabulary{vars: make(map[string]*Variable, len(vars)), streams: streams}
	for i := range vars {
		voc.vars[vars[i].Name] = &vars[i]
		voc.names = append(voc.names, vars[i].Name, vars[i].Name+FileSuffix)
	}
	slices.Sort(voc.names)
	return voc
}

// unknown returns a line for every variable that looks like a setting but is none.
// The lines are sorted by variable.
func (voc *vocabulary) unknown(vars map[string]string) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if vars[name] == "" || isServiceLink(name, vars[name]) {
			continue
		}
		if line := voc.explain(name); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// explain says why a name is not a setting. It returns "" for a setting and for a
// name that is not meant for this program.
func (voc *vocabulary) explain(name string) string {
	switch {
	case voc.lookup(name) != nil, name == "HTTP_PROXY": // every program of a machine may get that one
		return ""
	case strings.HasPrefix(name, "STREAM_"):
		return voc.explainStream(name)
	case hasPrefix(name, ownPrefixes):
		return suggest(name+" is not a setting", voc.near(name, nearEnough+1))
	case hasPrefix(name, sharedPrefixes):
		if near := voc.near(name, nearEnough); near != "" {
			return suggest(name+" is not a setting", near)
		}
	default:
		return voc.explainPrefix(name)
	}
	return ""
}

// explainPrefix explains a name that is a setting but for typing mistakes in its prefix,
// such as KAKFA_TOPIC. Prefixes below five letters are too short to tell.
func (voc *vocabulary) explainPrefix(name string) string {
	prefix, rest, _ := strings.Cut(name, "_")
	near := Nearest(prefix+"_", slices.Concat(ownPrefixes, sharedPrefixes))
	if len(near) <= len("HTTP_") || voc.lookup(near+rest) == nil {
		return ""
	}
	return suggest(name+" is not a setting", near+rest)
}

// explainStream does the same for STREAM_<NAME>_<VARIABLE>.
func (voc *vocabulary) explainStream(name string) string {
	var prefixes []string
	of := "" // the stream with the longest name that fits
	for _, stream := range voc.streams {
		prefix := streamPrefix(stream)
		prefixes = append(prefixes, prefix)
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		switch v := voc.lookup(rest); {
		case v == nil: // it may be a setting of acme-eu, not of acme
			if len(stream) > len(of) {
				of = stream
			}
		case !v.stream:
			return fmt.Sprintf("%s cannot be set per stream; set %s", name, rest)
		default:
			return ""
		}
	}
	if of != "" {
		prefix := streamPrefix(of)
		near := voc.near(strings.TrimPrefix(name, prefix), nearEnough+1)
		if v := voc.lookup(near); v != nil && v.stream {
			near = prefix + near
		}
		return suggest(fmt.Sprintf("%s is not a setting of stream %s", name, of), near)
	}
	for _, rest := range voc.names {
		if prefix, ok := strings.CutSuffix(name, rest); ok && len(prefix) > len("STREAM__") {
			near := Nearest(prefix, prefixes)
			if near != "" {
				near += rest
			}
			return suggest(name+" names no stream of BRIDGE_STREAMS", near)
		}
	}
	return name + " is not a setting; per-stream variables are STREAM_<NAME>_<VARIABLE>"
}

// checkGiven reports names of --set that are not settings, and secrets: every user of
// the machine can read the command line.
func (voc *vocabulary) checkGiven(l *loader, given map[string]string) {
	for _, line := range voc.unknown(given) {
		l.add("", line)
	}
	for name := range given {
		v := voc.vars[name]
		if v == nil && !strings.HasSuffix(name, FileSuffix) {
			v = voc.inStream(name)
		}
		switch {
		case v != nil && v.Secret:
			l.addf(v.Name, "%s is a secret and has no place on the command line; set %s%s", name, name, FileSuffix)
		case v == nil && voc.lookup(name) == nil && voc.inStream(name) == nil && voc.explain(name) == "":
			l.add("", suggest(name+" is not a setting", voc.near(name, nearEnough+1)))
		}
	}
}

// near returns the setting that a name probably means, or "". The name may be that of
// another program, lack one word, or have at most limit typing mistakes.
func (voc *vocabulary) near(name string, limit int) string {
	base := strings.TrimSuffix(name, FileSuffix)
	suffix := name[len(base):]
	if voc.vars[synonyms[base]] != nil {
		return synonyms[base] + suffix
	}
	if near := nearestWithin(name, voc.names, limit); near != "" {
		return near
	}
	words, longer := strings.Split(base, "_"), ""
	for _, candidate := range voc.names {
		if lacksOne(words, strings.Split(candidate, "_")) && voc.vars[candidate] != nil {
			if longer != "" {
				return ""
			}
			longer = candidate + suffix
		}
	}
	return longer
}

// lacksOne reports whether full has one word more than words. That word is not the first.
func lacksOne(words, full []string) bool {
	for i := 1; i < len(full) && len(full) == len(words)+1; i++ {
		if slices.Equal(words, slices.Delete(slices.Clone(full), i, i+1)) {
			return true
		}
	}
	return false
}

// lookup returns the setting of that name, with or without _FILE, or nil.
func (voc *vocabulary) lookup(name string) *Variable {
	if v := voc.vars[name]; v != nil {
		return v
	}
	return voc.vars[strings.TrimSuffix(name, FileSuffix)]
}

// inStream returns the setting in a name of the form STREAM_<NAME>_<VARIABLE>, or nil.
func (voc *vocabulary) inStream(name string) *Variable {
	for _, stream := range voc.streams {
		if rest, ok := strings.CutPrefix(name, streamPrefix(stream)); ok {
			if v := voc.lookup(rest); v != nil {
				return v
			}
		}
	}
	return nil
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func suggest(text, near string) string {
	if near == "" {
		return text
	}
	return text + "; did you mean " + near + "?"
}

// Nearest returns the candidate that a name is a misspelling of, or "".
func Nearest(name string, candidates []string) string {
	return nearestWithin(name, candidates, nearEnough)
}

// nearestWithin returns the candidate with the fewest typing mistakes, at most
// limit, or "".
func nearestWithin(name string, candidates []string, limit int) string {
	best, fewest := "", limit+1
	for _, candidate := range candidates {
		if longer := len(candidate) - len(name); max(longer, -longer) >= fewest {
			continue
		}
		if n := editDistance(name, candidate); n < fewest {
			best, fewest = candidate, n
		}
	}
	return best
}

// editDistance counts the bytes to insert, delete or replace to get from a to
// b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
