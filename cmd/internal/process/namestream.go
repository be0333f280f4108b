package process

import (
	"cmp"
	"regexp"
	"strings"
)

// streamCommand matches a command in a text that needs --stream if there are several
// streams. It also matches the flag that selects streams, if the command has one.
var streamCommand = regexp.MustCompile(`\bexportbridge (?:cursor ` +
	`(?:export|history|import|reset|rewind|show)|backfill(?: cancel| list| pause| resume| watch)?|` +
	`dlq (?:list|retry|show)|schema (?:check|infer|register|types)|` +
	`attest|replay|pause|resume|tail|verify)\b(?: --(?:stream|all|match)\b)?`)

// NameStream returns a text whose commands name the stream. If stream is "", they have NAME
// in its place.
func NameStream(text, stream string) string {
	return streamCommand.ReplaceAllStringFunc(text, func(command string) string {
		if strings.Contains(command, " --") {
			return command
		}
		return command + " --stream " + cmp.Or(stream, "NAME")
	})
}
