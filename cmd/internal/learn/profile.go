package learn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/config"
)

// profile writes the findings as a profile, in the order of the settings. What was not
// proven is a question in a comment.
func (l *learner) profile() string {
	var b strings.Builder
	base := l.finding("EXPORT_URL").value
	_, host, _ := strings.Cut(base, "://")
	fmt.Fprintf(&b, "# learned from %s, with %d requests\n#\n", host, l.asked)
	b.WriteString("# A line with ? was not proven. Check it against the documentation of the API, then with\n" +
		"# EXPORT_PROFILE=<this file> exportbridge check --only api --sample 5\n")
	vars := config.Variables()
	order := func(f *finding) int {
		return slices.IndexFunc(vars, func(v config.Variable) bool { return v.Name == f.name })
	}
	slices.SortStableFunc(l.findings, func(a, b *finding) int { return order(a) - order(b) })
	for _, f := range l.findings {
		if f.why != "" || f.question != "" {
			b.WriteByte('\n')
		}
		if f.why != "" {
			comment(&b, "# ", f.why)
		}
		if f.question != "" {
			comment(&b, "# ? ", f.question)
		}
		switch {
		case f.example != "":
			fmt.Fprintf(&b, "#%s=%s  # to be set\n", f.name, strconv.Quote(f.example))
		case f.value != "":
			fmt.Fprintf(&b, "%s=%s\n", f.name, quoted(f.value))
		case f.question != "" || f.why != "": // the comment stands at its setting
			fmt.Fprintf(&b, "#%s=\n", f.name)
		}
	}
	return b.String()
}

// comment writes a text in lines that fit a screen.
func comment(b *strings.Builder, mark, text string) {
	const most = 100
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

// oneLine keeps names that the API chose from ending a comment or disguising it.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if bridge.Misleads(r) {
			return '?'
		}
		return r
	}, text)
}

// quoted quotes a value where an environment file needs it.
func quoted(value string) string {
	if strings.ContainsAny(value, " #\"'\\") || strings.ContainsFunc(value, bridge.Misleads) {
		return strconv.Quote(value)
	}
	return value
}
