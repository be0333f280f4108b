package cli

import "exportbridge/bridge"

// EngineHints says what the engine advises, by this program's commands and
// settings.
var EngineHints = map[bridge.Hint]string{
	bridge.HintAhead:                  "another bridge or a restored Redis wrote it: exportbridge cursor history, then exportbridge cursor reset",
	bridge.HintCheckpointBehind:       "find out what Kafka lost, then BRIDGE_ON_CHECKPOINT_LOSS=kafka (events come twice) or redis (events may be missing), or exportbridge cursor reset",
	bridge.HintCheckpointTopicLost:    "after an upgrade from a version without it: exportbridge topics create --execute. If the topic was deleted, restore it if possible; without it the copy of the cursor in Redis is used",
	bridge.HintCheckpointTopicMissing: "exportbridge topics create --execute",
	bridge.HintCheckpointUnknown:      "wait: the search continues every minute; or set the position: exportbridge cursor reset --to-earliest (or --to-datetime TIME, --to-latest) --execute",
	bridge.HintMissingGrants:          "exportbridge topics plan --acls",
	bridge.HintOverlapTooLong:         "lower EXPORT_OVERLAP, or exportbridge cursor reset --to-datetime",
	bridge.HintTopicMissing:           "exportbridge topics create --execute, or KAFKA_CREATE_TOPICS=true",
	bridge.HintTopicVanished:          "restore the topic if possible. Otherwise create it with exportbridge topics create --execute, then publish everything again: exportbridge cursor reset --to-earliest --execute, or continue at the same position: --to-current",
	bridge.HintCheckpointLost:         "say where to go on: exportbridge cursor reset --to-datetime TIME (or --to-latest, --to-earliest, --to-cursor) --execute",
	bridge.HintCursorRefused:          "the API does not accept the cursor any more: exportbridge cursor rewind --shift-by -1, or cursor reset --to-datetime",
	bridge.HintCursorTooLong:          "the API hands out a cursor that is too long to be sent back; ask its operator",
	bridge.HintCycle:                  "the API leads back to a page that was read before; move on with exportbridge cursor reset --to-datetime or --to-cursor",
	bridge.HintDeadLetters:            "exportbridge tail --dlq",
	bridge.HintForeign:                "the store holds something else under this stream's name: use another CURSOR_PREFIX or stream name, or a newer exportbridge; it is not overwritten",
	bridge.HintMapping:                "check EXPORT_RESOURCE and, with exportbridge check, how items are read; BRIDGE_ON_BAD_EVENT=dlq-all makes dead letters of all of them, exportbridge cursor reset --to-datetime moves over them",
	bridge.HintMaxEvents:              "--max-events reached",
	bridge.HintNoPosition:             "exportbridge cursor reset first",
	bridge.HintOrigin:                 "restore the setting, use another stream name, or accept the new one with exportbridge cursor reset",
	bridge.HintOtherTopic:             "another deployment? Give each its own stream name, or its own KAFKA_CHECKPOINT_TOPIC, BRIDGE_GROUP and CURSOR_PREFIX. To move the stream: exportbridge cursor reset",
	bridge.HintOverlapRepeats:         "events that were listed more than EXPORT_OVERLAP after their time may come twice",
	bridge.HintOwned:                  "stop that process first, or let it do the work: exportbridge cursor show",
	bridge.HintOwner:                  "another process runs this stream outside our group: stop one of them, or give both the same BRIDGE_GROUP, or different KAFKA_CHECKPOINT_TOPIC, CURSOR_PREFIX or stream names",
	bridge.HintResume:                 "exportbridge resume",
	bridge.HintSharedID:               "a consumer that deduplicates by ce_id must compare the values too; BRIDGE_ON_SHARED_ID says what becomes of them",
	bridge.HintSource:                 "EXPORT_API_KEY or EXPORT_URL belongs to another application: correct it, or accept the new one with exportbridge cursor reset",
	bridge.HintStartLater:             "exportbridge cursor reset --to-datetime TIME --execute",
	bridge.HintTail:                   "the API lists more items under one cursor than can be remembered: move on with exportbridge cursor reset --to-datetime or --to-cursor",
	bridge.HintTopicLost:              "bring the topic back if you can; or publish all again: exportbridge cursor reset --to-earliest --execute; or go on at the same position: exportbridge cursor reset --to-current --execute, then exportbridge verify --repair --from TIME --to TIME --execute publishes what is missing",
	bridge.HintTwoHistories:           "two histories of one stream: exportbridge cursor history, then exportbridge cursor reset to where it shall go on",
	bridge.HintUntil:                  "--until reached",
	bridge.HintUntilBefore:            "--until was reached before",
}
