package nextlink

import (
	"regexp"

	"exportbridge/bridge"
)

// leads matches the names of a next page, elsewhere those of other pages: both match the
// words of whole pointers. Some APIs write several words as one. certain matches names
// whose last word says that the value is a cursor, idle values that are a time or a word.
var (
	leads = regexp.MustCompile(`\b(` +
		`next(page|cursor|token|link|href|ur[il]|marker|key|id|offset|batch|results?|records?)*|` +
		`\w*cursors?(mark|token|id)?|continu(e|ation)(token|key)?|(page|skip) ?token|scroll ?id|bookmark|marker)\b|/after$`)
	elsewhere = regexp.MustCompile(
		`\b((prev|before|first|start|current|last|sync|delta)\w*|self|totals?|counts?|cache)\b`)
	certain = regexp.MustCompile(`\b(next\w*|\w*cursor\w*|page|\w*token|link|ur[il]|href|id|key|offset|mark|marker|` +
		`bookmark|continue|continuation|position|seq|sequence|after)$`)
	idle = regexp.MustCompile(`^([A-Za-z _-]{0,10}|\d{4}-\d\d-\d\d([ Tt].*)?|[A-Z][a-z]{2}, \d\d .*|\d{10,16})$`)
)

// leadsOn reports whether a header or pointer has the name of a next cursor. Unless the
// name is certain, as next_update is not, the value must be neither a time nor a word.
func leadsOn(name, value string) bool {
	words := bridge.Words(name)
	return leads.MatchString(words) && !elsewhere.MatchString(words) &&
		(certain.MatchString(words) || !idle.MatchString(value))
}
