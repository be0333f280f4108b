package bridge

// Hint is a code for what an operator can do about a problem. The program
// around the engine provides the texts, with its commands and settings, in
// engine.Config.Hints.
type Hint string

// The hints, as Fault.HintCode.
const (
	HintAhead            Hint = "store-ahead"        // another writer, or a restored store: look at the history, then reset
	HintCheckpointBehind Hint = "checkpoint-behind"  // find out what the sink lost, then choose a policy
	HintCheckpointLost   Hint = "checkpoint-lost"    // say where to go on
	HintCursorIgnored    Hint = "cursor-ignored"     // correct how the cursor is sent
	HintCursorBeside     Hint = "cursor-beside"      // send it alone, or rewind or reset
	HintCursorForm       Hint = "cursor-form"        // restore the settings, or reset
	HintCursorRefused    Hint = "cursor-refused"     // rewind or reset
	HintCursorSuspect    Hint = "cursor-suspect"     // wait: whether it is the cursor shows a request without one
	HintCursorTooLong    Hint = "cursor-too-long"    // the API's operator must know
	HintCycle            Hint = "cycle"              // reset past it
	HintForeign          Hint = "foreign-checkpoint" // use another name, or upgrade
	HintMapping          Hint = "mapping"            // check how items are read
	HintOverdue          Hint = "fetch-overdue"      // look for what the source waits for
	HintOrigin           Hint = "other-origin"       // restore the setting, or accept it by a reset
	HintOtherTopic       Hint = "other-topic"        // correct the topic, accept it by a reset, or part two deployments
	HintOwned            Hint = "owned"              // stop the process that has the stream
	HintOwner            Hint = "second-bridge"      // stop one of two, or part them
	HintRequest          Hint = "other-request"      // restore the settings, or accept them by a reset that names them
	HintPageFails        Hint = "page-fails"         // ask for less, or reset past it
	HintResume           Hint = "resume"             // end the pause
	HintSource           Hint = "other-source"       // correct the credentials, or accept by a reset
	HintTail             Hint = "tail"               // reset past it
	HintTopicLost        Hint = "topic-lost"         // bring it back, publish again, or accept
	HintTwoHistories     Hint = "two-histories"      // look at the history, then reset
)

// Hints about the sink's topics, which an adapter gives.
const (
	HintCheckpointTopicLost    Hint = "checkpoint-topic-lost"    // create or restore it
	HintCheckpointTopicMissing Hint = "checkpoint-topic-missing" // create it
	HintCheckpointUnknown      Hint = "checkpoint-unknown"       // wait for the search, or reset
	HintMissingGrants          Hint = "missing-grants"           // show the grants
	HintOverlapTooLong         Hint = "overlap-too-long"         // lower the overlap, or reset
	HintTopicMissing           Hint = "topic-missing"            // create it
	HintTopicVanished          Hint = "topic-vanished"           // restore it, or create it and reset
)

// Hints that are part of a log record or of an answer.
const (
	HintDeadLetters    Hint = "dead-letters"       // where they can be seen
	HintEmptyEnd       Hint = "empty-end"          // raise the number of empty pages, or name what marks the end
	HintFullPage       Hint = "full-page"          // how to find out whether more items follow
	HintKeyless        Hint = "keyless"            // correct the pointer, or want no key
	HintNoPosition     Hint = "no-position"        // reset first
	HintOverlapRepeats Hint = "overlap-repeats"    // what may come twice after a walk back
	HintSharedID       Hint = "shared-id"          // what consumers must compare
	HintStartLater     Hint = "start-later"        // how to begin later all the same
	HintMaxEvents      Hint = "max-events-reached" // as Status.Ended
	HintUntil          Hint = "until-reached"      // as Status.Ended
	HintUntilBefore    Hint = "until-was-reached"  // as Status.Ended
)

// Hints lists all of them.
var Hints = []Hint{
	HintAhead, HintCheckpointBehind, HintCheckpointLost, HintCursorBeside, HintCursorForm, HintCursorIgnored, HintCursorRefused, HintCursorSuspect,
	HintCursorTooLong, HintCycle, HintForeign, HintMapping,
	HintOrigin, HintOtherTopic, HintOverdue, HintOwned, HintOwner, HintPageFails, HintRequest, HintResume, HintSource, HintTail, HintTopicLost, HintTwoHistories,
	HintCheckpointTopicLost, HintCheckpointTopicMissing, HintCheckpointUnknown, HintMissingGrants, HintOverlapTooLong, HintTopicMissing, HintTopicVanished,
	HintDeadLetters, HintEmptyEnd, HintFullPage, HintKeyless, HintNoPosition, HintOverlapRepeats, HintSharedID, HintStartLater, HintMaxEvents, HintUntil, HintUntilBefore,
}
