package cli

import (
	"cmp"
	"regexp"
	"strings"

	"exportbridge/bridge"
	"exportbridge/cmd/internal/process"
)

// The commands that many hints end with.
const (
	keepPosition = "keep the position: exportbridge cursor reset --to-current --execute"
	setPosition  = "set the position: exportbridge cursor reset " +
		"--to-datetime TIME (or --to-latest, --to-earliest, --to-cursor) --execute"
)

// EngineHints has the texts of the engine's hints, with this program's commands and settings.
var EngineHints = map[bridge.Hint]string{
	bridge.HintAhead: "see exportbridge cursor history, since another bridge or a restored Redis wrote a newer " +
		"checkpoint, then " + setPosition,
	bridge.HintCheckpointBehind: "find out what Kafka lost, then set BRIDGE_ON_CHECKPOINT_LOSS=kafka (duplicates " +
		"are possible) or redis (loss is possible), or " + setPosition,
	bridge.HintCheckpointTopicLost: "restore the topic if it was deleted; after an upgrade from a version " +
		"without it: exportbridge topics create --execute. Without the topic, the checkpoint in Redis is used",
	bridge.HintCheckpointTopicMissing: "check the topic name, KAFKA_CHECKPOINT_TOPIC; if it is right: " +
		"exportbridge topics create --execute",
	bridge.HintCheckpointUnknown: "wait: the search is repeated every minute; or set the position: exportbridge " +
		"cursor reset --to-earliest (or --to-datetime TIME, --to-latest) --execute",
	bridge.HintMissingGrants: "grant the permissions listed by exportbridge topics plan --acls",
	bridge.HintOverlapTooLong: "run exportbridge cursor reset --to-datetime TIME --execute; " +
		"a lower EXPORT_OVERLAP counts from the next recovery on",
	bridge.HintTopicMissing: "check the topic names, KAFKA_TOPIC, KAFKA_ROUTES and KAFKA_DLQ_TOPIC; if they are right, " +
		"create the topics: exportbridge topics create --execute, or set KAFKA_CREATE_TOPICS=true",
	bridge.HintTopicVanished: "restore the topic if possible. Otherwise create it with exportbridge topics " +
		"create --execute, then publish everything again: exportbridge cursor reset --to-earliest --execute, or keep " +
		"the position: --to-current",
	bridge.HintCheckpointLost: setPosition,
	bridge.HintCursorIgnored: "check EXPORT_CURSOR_IN, EXPORT_CURSOR_FIELD and EXPORT_CURSOR_PARAM: the API " +
		"ignores the cursor that it is sent; if it has none, follow the list by EXPORT_FOLLOW=windows",
	bridge.HintCursorBeside: "move the cursor, which the API rejects, for example because it has expired: exportbridge " +
		"cursor rewind --shift-by -1, or exportbridge cursor reset --to-datetime TIME --execute; set " +
		"EXPORT_CURSOR_ALONE=true instead if the API takes nothing beside any cursor",
	bridge.HintCursorForm: "restore EXPORT_CURSOR_IN and EXPORT_URL as they were; or, to continue with the new " +
		"ones, set the position: exportbridge cursor reset --to-datetime TIME (or --to-earliest) --execute",
	bridge.HintCursorRejected: "move the cursor, which the API rejects: exportbridge cursor rewind --shift-by -1, " +
		"whose error names an entry if a reset set the cursor; or exportbridge cursor reset --to-datetime TIME " +
		"--execute",
	bridge.HintCursorSuspect: "wait: the request is repeated, and after three tries one without the cursor shows " +
		"whether the cursor or the API is to blame",
	bridge.HintCursorTooLong: "ask the operator of the API for shorter cursors: this one is too long for a request",
	bridge.HintCutOff: "raise EXPORT_PAGE_SIZE, or set how a page names the next one: EXPORT_CURSOR_IN, " +
		"EXPORT_CURSOR_FIELD; exportbridge cursor reset --to-current --execute goes on without what is missing",
	bridge.HintCycle:       "skip the cycle: exportbridge cursor reset --to-datetime TIME (or --to-cursor) --execute",
	bridge.HintDeadLetters: "inspect them: exportbridge tail --dlq",
	bridge.HintEmptyEnd: "raise EXPORT_EMPTY_PAGES above the pages in a row that a filter can leave empty, or " +
		"set EXPORT_MORE_FIELD if a member of the page marks the end, then repeat the command",
	bridge.HintEndless: "set EXPORT_MORE_FIELD, or EXPORT_CURSOR_FIELD, to what marks the end of the results; if the " +
		"API marks none there, unset EXPORT_MORE_FIELD: EXPORT_EMPTY_PAGES then end a bounded run or range",
	bridge.HintForeign: "choose another CURSOR_PREFIX or stream name, or upgrade exportbridge: the store holds " +
		"other data under this name, which is not overwritten",
	bridge.HintLookBack: "raise retention.ms of the topic; to continue: exportbridge cursor reset --to-datetime TIME " +
		"--execute, which publishes the events since TIME again; TIME is before the position by at least " +
		"EXPORT_LOOK_BACK (EXPORT_LATE) and EXPORT_SETTLE",
	bridge.HintMapping: "run exportbridge check --sample 5 to see how items are read, and set EXPORT_ITEM_TIME, " +
		"EXPORT_ITEM_TIME_FORMAT or EXPORT_RESOURCE; BRIDGE_ON_BAD_EVENT=dlq-all diverts all of them to the DLQ, " +
		"exportbridge cursor reset --to-datetime TIME --execute skips them",
	bridge.HintMaxEvents: "start again to continue, since --max-events was reached",
	bridge.HintGap: "raise EXPORT_PAGE_SIZE or set EXPORT_CURSOR_IN and EXPORT_CURSOR_FIELD so that a listing is whole, " +
		"then publish from before the gap again: exportbridge cursor reset --to-datetime TIME --execute; --to-current " +
		"goes on without what is missing",
	bridge.HintKeyless: "correct KAFKA_KEY, which exportbridge check --sample 5 tests, or set KAFKA_KEY=none if " +
		"the order of events does not matter",
	bridge.HintNoPosition: "set the position: exportbridge cursor reset --to-datetime TIME (or --to-latest, " +
		"--to-earliest) --execute",
	bridge.HintFollow: "restore EXPORT_FOLLOW, choose another stream name, or go on the other way without what the " +
		"topic holds, from a stream that has caught up: exportbridge cursor reset --to-current --execute",
	bridge.HintOrigin: "restore the setting, choose another stream name, or accept the change and " + keepPosition,
	bridge.HintOtherStart: "restore EXPORT_START and EXPORT_END, choose another stream name, or begin the new window, " +
		"with the value of EXPORT_START as TIME: exportbridge cursor reset --to-datetime TIME --execute",
	bridge.HintOtherTopic: "check KAFKA_TOPIC. To continue in this topic and " + keepPosition +
		". If these are two deployments, give each its own stream name, or its own KAFKA_CHECKPOINT_TOPIC, " +
		"BRIDGE_GROUP and CURSOR_PREFIX",
	bridge.HintOverdue: "check the export API and any proxy with exportbridge check, and report it if it " +
		"persists: a request outlasted EXPORT_TIMEOUT many times over",
	bridge.HintOverlapRepeats: "expect duplicates of events that were listed more than EXPORT_OVERLAP after " +
		"their time",
	bridge.HintOwned: "stop that process, or let it do the work: exportbridge cursor show",
	bridge.HintOwner: "if this repeats, another process outside this group runs the stream: stop it, or set the " +
		"same BRIDGE_GROUP for both, or another KAFKA_CHECKPOINT_TOPIC, CURSOR_PREFIX or stream name for one",
	bridge.HintRequest: "restore the settings, or accept the list that they request by the source that the error " +
		"names: exportbridge cursor reset --to-datetime TIME --accept-source SOURCE --execute (--to-current only if " +
		"the cursor is of that list)",
	bridge.HintPageFails: "run exportbridge check: if the API works, it fails at this cursor only: lower " +
		"EXPORT_PAGE_SIZE, or go past it, which leaves out its events: exportbridge cursor reset --to-datetime TIME " +
		"--execute",
	bridge.HintResume: "run exportbridge resume",
	bridge.HintFirstAgain: "set EXPORT_PAGE_SIZE below the number of its items until the stream is past it: if the API " +
		"heeds the cursor, it then names other pages; else check EXPORT_CURSOR_IN, EXPORT_CURSOR_FIELD and EXPORT_CURSOR_PARAM; " +
		"a job keeps its settings: resume it when the stream is past the page, or begin another job",
	bridge.HintFullPage: "if more items follow, set EXPORT_CURSOR_FIELD to where the next cursor is, or raise " +
		"EXPORT_PAGE_SIZE above the number of items of one time",
	bridge.HintSharedID: "compare values, not only ce_id, to deduplicate; BRIDGE_ON_SHARED_ID decides how these " +
		"events are published",
	bridge.HintSource: "correct EXPORT_API_KEY or EXPORT_URL, which belong to another application, or accept it: " +
		"exportbridge cursor reset --to-datetime TIME --execute (--to-current only if the cursor is of its list)",
	bridge.HintStartLater: "run exportbridge cursor reset --to-datetime TIME --execute",
	bridge.HintTail: "move on with exportbridge cursor reset --to-datetime TIME (or --to-cursor) --execute: the " +
		"API lists more items under one cursor than can be remembered",
	bridge.HintTopicLost: "restore the topic if possible; or publish everything again: exportbridge cursor reset " +
		"--to-earliest --execute; or " + keepPosition +
		", then exportbridge verify --repair --from TIME --to TIME --execute publishes missing events",
	bridge.HintTwoHistories: "compare the two histories with exportbridge cursor history, then " + setPosition,
	bridge.HintUntil:        "raise --until to continue, since it was reached",
	bridge.HintUntilBefore:  "raise --until to continue, since it was reached before",
	bridge.HintWatermark: "check the clocks: if that of the API or, without a Date header, of this machine was wrong: " +
		"exportbridge cursor reset --to-datetime TIME --execute",
}

// settingsCommand matches a command that takes settings, and --help after it.
var settingsCommand = regexp.MustCompile(`\bexportbridge ` +
	`(?:(?:cursor|dlq|keys|schema|topics) \w+|backfill(?: list| watch| pause| resume| cancel)?|` +
	`config (?:show|env|import-env)|asyncapi|attest|check|forget|healthcheck|` +
	`pause|replay|resume|run|status|tail|verify)\b(?: --help)?`)

// Advice completes the commands in a text with the stream, if they require it, and with the
// environment file. An empty stream is that of --stream.
func (a *App) Advice(text, stream string) string {
	if a.several || a.stream != "" {
		text = process.NameStream(text, cmp.Or(stream, a.stream))
	}
	if a.envFile != "" {
		text = Completed(text, a.envFile)
	}
	return text
}

// plain matches a word that needs no quotes in a shell.
var plain = regexp.MustCompile(`^[\pL\d/._-]+$`)

// Completed adds the environment file to the commands in a text.
func Completed(text, file string) string {
	if !plain.MatchString(file) {
		file = "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	}
	return settingsCommand.ReplaceAllStringFunc(text, func(command string) string {
		if strings.HasSuffix(command, " --help") {
			return command
		}
		return command + " --env-file " + file
	})
}

// Advised applies Advice to the texts of fields, in place.
func (a *App) Advised(fields [][2]string, stream string) [][2]string {
	for i := range fields {
		fields[i][1] = a.Advice(fields[i][1], stream)
	}
	return fields
}

// hintsOf returns EngineHints with the stream in their commands.
func hintsOf(stream string) bridge.HintTexts {
	return func(h bridge.Hint) string { return process.NameStream(EngineHints[h], stream) }
}
