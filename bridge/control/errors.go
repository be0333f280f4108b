package control

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
)

// Sentinel errors. A *bridge.PendingError is returned unchanged.
var (
	// ErrRejected means that the change was rejected and nothing was changed.
	ErrRejected = errors.New("refused")
	// ErrNoPosition means that the stream has no position to keep.
	ErrNoPosition = errors.New("no checkpoint")
	// ErrStoreHolds means that the position is in Redis, because the mode is at-least-once.
	ErrStoreHolds = errors.New("in at-least-once mode it has the position")
	// ErrOwnerUnknown means that the stream's group could not be looked up.
	ErrOwnerUnknown = errors.New("it is unknown whether a bridge runs the stream")
)

// Errors of looking up and planning.

// NoCheckpointError means that neither Redis nor the checkpoint topic has a
// checkpoint of the stream. It is a bridge.ErrNoCheckpoint.
type NoCheckpointError struct {
	Stream string
	// Live is the status of the stream's bridge, nil if none runs.
	Live *bridge.Status
	// Known are the other streams in Redis.
	Known []string
}

func (e *NoCheckpointError) Error() string {
	text := fmt.Sprintf("no checkpoint of stream %s in Redis", e.Stream)
	switch {
	case e.Live != nil:
		text += "; " + liveText(e.Live)
	case len(e.Known) > 0:
		text += "; known streams: " + strings.Join(e.Known, ", ")
	}
	return text
}

func (e *NoCheckpointError) Unwrap() error { return bridge.ErrNoCheckpoint }

// NoEntryError means that neither Redis nor the checkpoint topic has the target of a
// rewind. It wraps Err, a bridge.ErrNoEntry or a bridge.ErrNoCheckpoint.
type NoEntryError struct {
	// Time is the requested time, zero if none was requested.
	Time time.Time
	// Left is the newest entry with another cursor before the stream's last move. It is on
	// another branch. Left is nil if there is none, if its cursor is of another list, or if the
	// target is not a RewindPages.
	Left *bridge.Version
	Err  error
}

func (e *NoEntryError) Error() string { return e.Err.Error() }

func (e *NoEntryError) Unwrap() error { return e.Err }

// ForeignCursorError means that an exported cursor belongs to another stream,
// export or application.
type ForeignCursorError struct {
	// Differences has at least one element.
	Differences []string
}

func (e *ForeignCursorError) Error() string {
	return "the cursor belongs elsewhere: " + e.Differences[0]
}

// liveText summarizes the status of a bridge.
func liveText(s *bridge.Status) string {
	text := fmt.Sprintf("%s is %s", s.Owner, s.State.Text())
	if s.Reason != "" {
		text += fmt.Sprintf(" (%s)", s.Reason)
	}
	if s.Error != "" {
		text += ": " + cut(s.Error, 60)
	}
	return text
}

// Errors of a change.

// RefusedError means that the stream's owner rejected the request, or that the request
// expired. Nothing was changed. It is an ErrRejected.
type RefusedError struct {
	// By is the owner that rejected the request, empty if no owner claimed the request.
	// Detail is the reason.
	By, Detail string
	// Expired is true if the deadline passed before the request was applied.
	Expired bool
	// Restored is true if Redis had lost the checkpoint, which is restored now: a retry can
	// succeed.
	Restored bool
	// NoStart is true if the export cannot begin at a time, NeedsStart if each request
	// requires one and the target has none.
	NoStart, NeedsStart bool
}

func (e *RefusedError) Error() string {
	if e.By == "" {
		return fmt.Sprintf("%s: %s", ErrRejected, e.Detail)
	}
	return fmt.Sprintf("%s by %s: %s", ErrRejected, e.By, e.Detail)
}

func (e *RefusedError) Unwrap() error { return ErrRejected }

// NotPaused reports whether a resume was rejected because the stream is not paused.
func (e *RefusedError) NotPaused() bool { return e.Detail == bridge.NotPaused }

// UnacknowledgedError means that a request was not answered in time.
type UnacknowledgedError struct {
	// ID is the id of the request. State is CommandWithdrawn if the request was withdrawn
	// and nothing was changed, CommandClaimed if Owner is applying it, and CommandUnknown
	// if it may be applied or may have been: Err says what Redis does not do.
	ID    string
	State bridge.CommandState
	Owner string
	Err   error
	// Timeout is how long the caller waited. A wait that was Interrupted, or that ended
	// because another bridge has fenced the stream's, was shorter.
	Timeout     time.Duration
	Interrupted bool
	// Live is the status of the stream's bridge, nil if none runs.
	Live *bridge.Status
	// Unseen is the owner that does not report to this Redis, nil if there is none.
	Unseen *UnseenOwnerError
}

func (e *UnacknowledgedError) Error() string {
	switch e.State {
	case bridge.CommandUnknown:
		return fmt.Sprintf("request %s is not acknowledged, and Redis %v", e.ID, e.Err)
	case bridge.CommandClaimed:
		return fmt.Sprintf("request %s is being applied by %s, which has not acknowledged it yet", e.ID, e.Owner)
	}
	withdrawn := fmt.Sprintf("request %s is withdrawn, nothing was changed", e.ID)
	late := fmt.Sprintf("no acknowledgement within %s: %s", e.Timeout, withdrawn)
	switch {
	case e.Interrupted:
		return "interrupted: " + withdrawn
	case e.Fenced():
		return fmt.Sprintf("the stream applies no requests, %s; %s", liveText(e.Live), withdrawn)
	case e.Live != nil:
		return late + "; " + liveText(e.Live)
	case e.Unseen != nil:
		return late + "; " + e.Unseen.Error()
	}
	return late
}

func (e *UnacknowledgedError) Unwrap() error { return e.Err }

// Fenced reports whether the request was withdrawn because another bridge has fenced the
// stream's bridge. Live has the hint.
func (e *UnacknowledgedError) Fenced() bool { return e.Live != nil && e.Live.Fenced() }

// UnseenOwnerError means that a process owns the stream in Kafka but reports no status to
// this Redis. The process uses another Redis, database or prefix, or cannot reach Redis.
type UnseenOwnerError struct {
	Stream string
	By     bridge.Member
}

func (e *UnseenOwnerError) Error() string {
	return fmt.Sprintf("%s runs stream %s, but this Redis has no status of it", e.By, e.Stream)
}

// Errors of a change while Redis is unreachable.

// StoreAwayError means that Redis is unreachable and that the change needs Redis.
type StoreAwayError struct {
	// Because is ErrStoreHolds, ErrOwnerUnknown, an *OwnedError or a *TakenOverError.
	Because error
	// Err is the error of Redis.
	Err error
}

func (e *StoreAwayError) Error() string {
	return fmt.Sprintf("Redis does not answer, and %v: %v", e.Because, e.Err)
}

func (e *StoreAwayError) Unwrap() []error { return []error{e.Because, e.Err} }

// OwnedError means that a running bridge owns the stream.
type OwnedError struct {
	Stream string
	By     bridge.Member
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("it is the only way to reach a running bridge: %s runs stream %s", e.By, e.Stream)
}

// TakenOverError means that a bridge took over the stream during the change. The change may
// have been applied.
type TakenOverError struct{ Err error }

func (e *TakenOverError) Error() string {
	return fmt.Sprintf("a bridge took over the stream meanwhile (%v)", e.Err)
}

func (e *TakenOverError) Unwrap() error { return e.Err }
