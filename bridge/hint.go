package bridge

// Hint is a code for what an operator can do about a problem. The program around the
// engine provides the texts, with its commands and settings, in engine.Config.Hints.
type Hint string

// HintTexts returns the text of a hint, or "" if it has none. It may be called concurrently. nil
// has no texts.
type HintTexts func(Hint) string

// Of returns the text of a hint, or "".
func (t HintTexts) Of(h Hint) string {
	if t == nil {
		return ""
	}
	return t(h)
}

// The hints of the engine, as Fault.HintCode.
const (
	HintAhead            Hint = "store-ahead"        // look at the history, then reset
	HintCheckpointBehind Hint = "checkpoint-behind"  // find out what the sink lost, then choose a policy
	HintCheckpointLost   Hint = "checkpoint-lost"    // reset
	HintCursorIgnored    Hint = "cursor-ignored"     // correct how the cursor is sent
	HintCursorBeside     Hint = "cursor-beside"      // send the cursor alone, or rewind or reset
	HintCursorForm       Hint = "cursor-form"        // restore the settings, or reset
	HintCursorRejected   Hint = "cursor-refused"     // rewind or reset
	HintCursorSuspect    Hint = "cursor-suspect"     // wait for a request without a cursor
	HintCursorTooLong    Hint = "cursor-too-long"    // report it to the operator of the API
	HintCutOff           Hint = "list-cut-off"       // configure whole listings, or go on without what is missing
	HintCycle            Hint = "cycle"              // reset past the cursor
	HintFollow           Hint = "other-follow"       // restore the setting, or reset to continue from a time
	HintForeign          Hint = "foreign-checkpoint" // use another name, or upgrade
	HintMapping          Hint = "mapping"            // check how items are read
	HintLookBack         Hint = "look-back"          // keep records for longer, then reset
	HintOverdue          Hint = "fetch-overdue"      // check what the source waits for
	HintOrigin           Hint = "other-origin"       // restore the setting, or reset to accept it
	HintOtherStart       Hint = "other-start"        // restore the bounds, or reset to the start
	HintOtherTopic       Hint = "other-topic"        // correct the topic, reset to accept it, or separate two deployments
	HintOwned            Hint = "owned"              // stop the process that owns the stream
	HintOwner            Hint = "second-bridge"      // stop or separate one of two bridges
	HintRequest          Hint = "other-request"      // restore the settings, or reset to accept them
	HintPageFails        Hint = "page-fails"         // request smaller pages, or reset past the page
	HintResume           Hint = "resume"             // end the pause
	HintSource           Hint = "other-source"       // correct the credentials, or reset to accept the source
	HintTail             Hint = "tail"               // reset past the last page
	HintTopicLost        Hint = "topic-lost"         // restore the topic, publish again, or accept the loss
	HintTwoHistories     Hint = "two-histories"      // look at the history, then reset
	HintWatermark        Hint = "watermark-ahead"    // reset to a time before the API's clock
)

// The hints of adapters about the topics.
const (
	HintCheckpointTopicLost    Hint = "checkpoint-topic-lost"    // create or restore the topic
	HintCheckpointTopicMissing Hint = "checkpoint-topic-missing" // create the topic
	HintCheckpointUnknown      Hint = "checkpoint-unknown"       // wait for the search, or reset
	HintMissingGrants          Hint = "missing-grants"           // show the grants
	HintOverlapTooLong         Hint = "overlap-too-long"         // reset; lower the overlap for the next time
	HintTopicMissing           Hint = "topic-missing"            // create the topic
	HintTopicVanished          Hint = "topic-vanished"           // restore the topic, or create it and reset
)

// The hints of log records, answers and warnings.
const (
	HintDeadLetters    Hint = "dead-letters"       // inspect the dead letters
	HintEmptyEnd       Hint = "empty-end"          // raise the number of empty pages, or configure the end mark
	HintEndless        Hint = "endless"            // configure the end mark, or that there is none
	HintFirstAgain     Hint = "first-page-again"   // request smaller pages for a while
	HintFullPage       Hint = "full-page"          // find out whether more items follow
	HintGap            Hint = "gap"                // find the missing events, then reset
	HintKeyless        Hint = "keyless"            // correct the pointer, or choose no key
	HintNoPosition     Hint = "no-position"        // reset first
	HintOverlapRepeats Hint = "overlap-repeats"    // expect duplicates
	HintSharedID       Hint = "shared-id"          // let consumers compare values
	HintStartLater     Hint = "start-later"        // reset to begin later
	HintMaxEvents      Hint = "max-events-reached" // only as Status.Ended
	HintUntil          Hint = "until-reached"      // only as Status.Ended
	HintUntilBefore    Hint = "until-was-reached"  // only as Status.Ended
)
