package reconcile

import (
	"fmt"
	"time"
)

// Reason is why a comparison or a repair does not go on.
type Reason string

// The reasons.
const (
	// NeverRan: the stream has no checkpoint; it will publish the range itself.
	NeverRan Reason = "never-ran"
	// PositionUnknown: the stream was moved, and has read no page since.
	PositionUnknown Reason = "position-unknown"
	// NotPassed: the range ends after the live position.
	NotPassed Reason = "not-passed"
	// OtherOrigin: the stream asks the API for something else than the Config.
	OtherOrigin Reason = "other-origin"
	// BackfillOpen: an unfinished backfill may publish a part of the range.
	BackfillOpen Reason = "backfill-open"
	// StreamPaused, NotRunning and NotAtEnd: missing events lack an ingestion
	// time, and the stream cannot prove that it has passed them.
	StreamPaused Reason = "stream-paused"
	NotRunning   Reason = "not-running"
	NotAtEnd     Reason = "not-at-end"
	// Moved: the stream was moved during the repair.
	Moved Reason = "moved"
	// UnknownMark: a newer version has repaired the stream before.
	UnknownMark Reason = "unknown-mark"
	// CursorCycle: the API leads back to a page of the range.
	CursorCycle Reason = "cursor-cycle"
)

// RefusedError says why a comparison or a repair does not go on. What a repair
// has published until then is committed.
type RefusedError struct {
	Reason Reason
	// Position is the live stream's, in milliseconds since the epoch; set with
	// NotPassed.
	Position int64
	// Backfill is the id of the one that is open; set with BackfillOpen.
	Backfill string

	text string
}

func (e *RefusedError) Error() string { return e.text }

func refuse(why Reason, format string, args ...any) *RefusedError {
	return &RefusedError{Reason: why, text: fmt.Sprintf(format, args...)}
}

// instant is a time for people, ms in milliseconds since the epoch.
func instant(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
