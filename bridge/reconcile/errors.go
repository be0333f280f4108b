package reconcile

import "fmt"

// Reason is why a comparison or a repair was rejected.
type Reason string

// The reasons.
const (
	// NeverRan: the stream has no checkpoint and will publish the range itself.
	NeverRan Reason = "never-ran"
	// PositionUnknown: the stream was moved and has read no page since.
	PositionUnknown Reason = "position-unknown"
	// NotPassed: the range ends after the live position, or after the API's clock.
	NotPassed Reason = "not-passed"
	// NotKept: the range begins before what the topic keeps.
	NotKept Reason = "not-kept"
	// OtherOrigin: the stream's resource, event types or ids differ from the Config.
	OtherOrigin Reason = "other-origin"
	// NoServerTime: the API's responses have no Date header.
	NoServerTime Reason = "no-server-time"
	// OtherSource: a page belongs to another source than the stream.
	OtherSource Reason = "other-source"
	// BackfillOpen: an unfinished backfill overlaps the range.
	BackfillOpen Reason = "backfill-open"
	// StreamPaused, NotRunning and NotAtEnd: missing events lack an ingestion
	// time, and the stream does not reach the end of the export.
	StreamPaused Reason = "stream-paused"
	NotRunning   Reason = "not-running"
	NotAtEnd     Reason = "not-at-end"
	// Moved: the stream was moved during the repair.
	Moved Reason = "moved"
	// TopicMade: the topic was recreated during the comparison.
	TopicMade Reason = "topic-made"
	// TopicLost: the topic was recreated since the stream's checkpoint, and no reset has
	// accepted the new one.
	TopicLost Reason = "topic-lost"
	// UnknownMark: a newer version of the program repaired the stream.
	UnknownMark Reason = "unknown-mark"
	// OtherRules: records under other rules for private data cannot be compared.
	OtherRules Reason = "other-rules"
	// OtherRoutes: the stream's topic or routes differ from the Config.
	OtherRoutes Reason = "other-routes"
	// CursorCycle: the API returned a cursor of the range again.
	CursorCycle Reason = "cursor-cycle"
	// CutOff: a full page of a range that cannot be shorter names no next one.
	CutOff Reason = "cut-off"
	// Endless: the API named a next page on very many empty pages in a row.
	Endless Reason = "endless"
)

// RejectedError means that a comparison or a repair was rejected. Events that the repair
// has already published stay.
type RejectedError struct {
	Reason Reason
	// Position is the live position, or the API's time, for NotPassed, for NotKept a time that is kept for some minutes,
	// in milliseconds since the epoch; 0 if it leaves nothing of the range, and for other
	// reasons.
	Position int64
	// Backfill is the id of the open backfill; set for BackfillOpen.
	Backfill string

	text string
}

func (e *RejectedError) Error() string { return e.text }

func reject(why Reason, format string, args ...any) *RejectedError {
	return &RejectedError{Reason: why, text: fmt.Sprintf(format, args...)}
}
