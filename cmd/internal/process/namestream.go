package process

import (
	"cmp"
	"regexp"
	"strings"
)

// streamCommand matches a command of a text that needs --stream where there are
// several streams, with the flag if it has one.
var streamCommand = regexp.MustCompile(`\bexportbridge (?:cursor ` +
	`(?:export|history|import|reset|rewind|show)|backfill(?: cancel| list| pause| resume| watch)?|` +
	`dlq (?:list|retry|show)|keys rewrap|schema (?:check|infer|register|types)|` +
	`attest|forget|replay|pause|resume|tail|verify)\b(?: --stream \S+)?`)

// NameStream returns a text whose commands name the stream. NAME stands for one that
// is unknown, "".
func NameStream(text, stream string) string {
	return streamCommand.ReplaceAllStringFunc(text, func(command string) string {
		if strings.Contains(command, " --stream ") {
			return command
		}
		return command + " --stream " + cmp.Or(stream, "NAME")
	})
}
