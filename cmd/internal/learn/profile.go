package learn

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
)

// finding is the knowledge about a setting.
type finding struct {
	value    string
	why      string // why the value is right
	question string // what was not proven
	example  string // an example of a value that no profile may have
}

// profile has the settings that are known so far. An attempt changes a clone, which is dropped
// if the attempt fails.
type profile struct {
	findings map[string]finding
	// static are the parameters of each request, except those that a setting names.
	static []param
}

// none is the value of a setting for a part that an API does not have.
const none = "none"

func (p profile) clone() profile { return profile{maps.Clone(p.findings), p.static} }

// value returns the value of a setting, "" if it is not set.
func (p profile) value(name string) string { return p.findings[name].value }

// set sets a setting and, unless why is "", its reason.
func (p profile) set(name, value, why string) {
	f := p.findings[name]
	f.value, f.why = value, cmp.Or(why, f.why)
	p.findings[name] = f
}

// because sets the reason of a setting, "" for none.
func (p profile) because(name, why string) {
	f := p.findings[name]
	f.why = why
	p.findings[name] = f
}

// ask sets the question about a setting, "" for none.
func (p profile) ask(name, question string) {
	f := p.findings[name]
	f.question = question
	p.findings[name] = f
}

// drop forgets settings.
func (p profile) drop(names ...string) {
	for _, name := range names {
		delete(p.findings, name)
	}
}

// setSize sets the page size.
func (p profile) setSize(n int) {
	p.set("EXPORT_PAGE_SIZE", strconv.Itoa(n), "")
	p.set("EXPORT_MAX_PAGE_SIZE", strconv.Itoa(n), "")
}

// params returns the static parameters, except those that a setting names.
func (p profile) params() []param {
	return slices.DeleteFunc(slices.Clone(p.static), func(s param) bool {
		return s.name == p.value("EXPORT_CURSOR_PARAM") || s.name == p.value("EXPORT_START_PARAM") ||
			s.name == p.value("EXPORT_END_PARAM")
	})
}

// all returns the findings with EXPORT_PARAMS.
func (p profile) all() map[string]finding {
	all := maps.Clone(p.findings)
	var pairs, times []string
	for _, s := range p.params() {
		if pairs = append(pairs, s.pair()); s.isTime() {
			times = append(times, s.name)
		}
	}
	f := finding{value: strings.Join(pairs, ",")}
	if len(times) > 0 {
		f.question = strings.Join(times, ", ") + ": their values look like times, and they were not proven to be" +
			" a start and an end: every request has them as they are"
	}
	all["EXPORT_PARAMS"] = f
	return all
}

// environ returns the settings as an environment.
func (p profile) environ() (all []string) {
	for name, f := range p.all() {
		if f.value != "" {
			all = append(all, name+"="+f.value)
		}
	}
	return all
}

// text returns the settings in the order of the settings table, with reasons and questions as
// comments.
func (p profile) text(requests int) string {
	var b strings.Builder
	_, host, _ := strings.Cut(p.value("EXPORT_URL"), "://")
	fmt.Fprintf(&b, "# learned from %s, with %d requests\n#\n", host, requests)
	b.WriteString("# A line with ? was not proven. Check it against the documentation of the API, then with\n" +
		"# EXPORT_PROFILE=<this file> exportbridge check --only api --sample 5\n")
	all := p.all()
	for _, v := range config.Variables() {
		f := all[v.Name]
		if f.why != "" || f.question != "" {
			b.WriteByte('\n')
		}
		comment(&b, "# ", f.why)
		comment(&b, "# ? ", f.question)
		switch {
		case f.example != "":
			fmt.Fprintf(&b, "#%s=%s  # to be set\n", v.Name, strconv.Quote(f.example))
		case f.value != "":
			fmt.Fprintf(&b, "%s=%s\n", v.Name, quoted(f.value))
		case f.question != "" || f.why != "": // so that the comment stands above its setting
			fmt.Fprintf(&b, "#%s=\n", v.Name)
		}
	}
	return b.String()
}

// comment writes a comment in lines that fit a screen.
func comment(b *strings.Builder, mark, text string) {
	const most = 100
	if text == "" {
		return
	}
	line := mark
	for word := range strings.SplitSeq(oneLine(text), " ") {
		if len(line)+len(word) > most && line != mark {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = "#   "
		}
		line += word + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// oneLine replaces the characters by which names of the API could end or disguise a comment.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if bridge.Misleads(r) {
			return '?'
		}
		return r
	}, text)
}

// quoted quotes a value if an environment file requires it.
func quoted(value string) string {
	if strings.ContainsAny(value, " #\"'\\") || strings.ContainsFunc(value, bridge.Misleads) {
		return strconv.Quote(value)
	}
	return value
}
