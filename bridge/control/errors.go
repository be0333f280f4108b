package control

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"exportbridge/bridge"
)

// What callers tell apart without data. A *bridge.PendingError is returned as
// it is.
var (
	// ErrRefused means that nothing was changed, because whoever runs the stream, or a
	// rule, is against it. A *RefusedError or a *MovedError says why.
	ErrRefused = errors.New("refused")
	// ErrNoPosition means that a move cannot stay where the stream is.
	ErrNoPosition = errors.New("no checkpoint, so it has no position")
)

// Errors before anything is asked of the stream.

// NoCheckpointError means that neither Redis nor the checkpoint topic has a checkpoint of
// the stream. It is a bridge.ErrNoCheckpoint.
type NoCheckpointError struct {
	Stream string
	// Live is what the bridge says that runs the stream, nil where none does.
	Live *bridge.Status
	// Known are other streams that Redis knows.
	Known []string
}

func (e *NoCheckpointError) Error() string {
	text := fmt.Sprintf("no checkpoint of stream %s in Redis", e.Stream)
	switch {
	case e.Live != nil:
		text += "; " + liveText(e.Live)
	case len(e.Known) > 0:
		text += "; it knows: " + strings.Join(e.Known, ", ")
	}
	return text
}

func (e *NoCheckpointError) Unwrap() error { return bridge.ErrNoCheckpoint }

// NoEntryError means that neither Redis nor the checkpoint topic has the commit that a
// rewind looks for. It is what Err is, a bridge.ErrNoEntry or
// bridge.ErrNoCheckpoint.
type NoEntryError struct {
	// Time is what was looked for, zero if it was no time.
	Time time.Time
	// Left is the entry that the stream's last change left, nil where there was
	// none: a reset leads to where no history is.
	Left *bridge.Version
	Err  error
}

func (e *NoEntryError) Error() string { return e.Err.Error() }

func (e *NoEntryError) Unwrap() error { return e.Err }

// ForeignCursorError means that an exported cursor does not belong to the stream.
type ForeignCursorError struct {
	// Differences say how, at least one.
	Differences []string
}

func (e *ForeignCursorError) Error() string {
	return "the cursor does not belong here: " + e.Differences[0]
}

// liveText says in a few words what a bridge is doing.
func liveText(s *bridge.Status) string {
	text := fmt.Sprintf("%s is %s", s.Owner, s.State)
	if s.Reason != "" {
		text += fmt.Sprintf(" (%s)", s.Reason)
	}
	if s.Error != "" {
		text += ": " + cut(s.Error, 60)
	}
	return text
}

// Errors of a change that was asked for.

// RefusedError means that whoever runs the stream has refused the request, or it expired.
// Nothing was changed. It is an ErrRefused.
type RefusedError struct {
	// By is who refused it, empty where nobody took it up; Detail says why.
	By, Detail string
	// Expired is true where it was not applied before its deadline.
	Expired bool
	// Restored is true where Redis had lost its copy of the checkpoint, which is
	// there again: the same request once more can be applied.
	Restored bool
}

func (e *RefusedError) Error() string {
	if e.By == "" {
		return fmt.Sprintf("%s: %s", ErrRefused, e.Detail)
	}
	return fmt.Sprintf("%s by %s: %s", ErrRefused, e.By, e.Detail)
}

func (e *RefusedError) Unwrap() error { return ErrRefused }

// MovedError means that the stream was moved since the plan was made. It is an ErrRefused.
type MovedError struct {
	// Epoch is the stream's, Planned that of the plan.
	Epoch, Planned int64
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("%s: the stream was moved meanwhile: it is at epoch %d, the move was planned for %d", ErrRefused, e.Epoch, e.Planned)
}

func (e *MovedError) Unwrap() error { return ErrRefused }

// UnacknowledgedError means that nobody has answered a request in time.
type UnacknowledgedError struct {
	// ID is the request's. State is RequestWithdrawn where it was taken back:
	// nothing was changed; RequestClaimed where Owner is applying it; or
	// RequestUnknown where Redis does not answer, as Err says.
	ID    string
	State bridge.RequestState
	Owner string
	Err   error
	// Timeout is how long was waited, unless the caller was Interrupted.
	Timeout     time.Duration
	Interrupted bool
	// Live is what the bridge says that runs the stream, nil where none does.
	Live *bridge.Status
}

func (e *UnacknowledgedError) Error() string {
	switch {
	case e.State == bridge.RequestUnknown:
		return fmt.Sprintf("request %s is not acknowledged, and Redis does not answer: %v", e.ID, e.Err)
	case e.State == bridge.RequestClaimed:
		return fmt.Sprintf("request %s is being applied by %s, which has not acknowledged it within %s", e.ID, e.Owner, e.Timeout)
	case e.Interrupted:
		return fmt.Sprintf("interrupted: request %s is withdrawn, nothing was changed", e.ID)
	}
	text := fmt.Sprintf("no acknowledgement within %s: request %s is withdrawn, nothing was changed", e.Timeout, e.ID)
	if e.Live != nil {
		text += "; " + liveText(e.Live)
	}
	return text
}

func (e *UnacknowledgedError) Unwrap() error { return e.Err }

// Errors of a change while Redis is away.

// StoreAwayError means that Redis does not answer, and the stream cannot be changed
// without it.
type StoreAwayError struct {
	// Because is ErrStoreHolds, an *OwnedError, an *OwnerUnknownError or a
	// *TakenOverError.
	Because error
	// Err is Redis's.
	Err error
}

func (e *StoreAwayError) Error() string {
	return fmt.Sprintf("Redis does not answer, and %v: %v", e.Because, e.Err)
}

func (e *StoreAwayError) Unwrap() []error { return []error{e.Because, e.Err} }

// ErrStoreHolds means that at least once Redis holds the position.
var ErrStoreHolds = errors.New("at least once Redis holds the position")

// OwnedError means that a running bridge has the stream.
type OwnedError struct {
	Stream string
	By     Member
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("only through it can a running bridge be asked: %s runs stream %s", e.By, e.Stream)
}

// OwnerUnknownError means that Kafka does not say who runs the stream.
type OwnerUnknownError struct{ Err error }

func (e *OwnerUnknownError) Error() string {
	return fmt.Sprintf("whether a bridge runs the stream is not known: %v", e.Err)
}

func (e *OwnerUnknownError) Unwrap() error { return e.Err }

// TakenOverError means that a bridge has taken the stream while it was being changed.
// Whether the change was applied is not known.
type TakenOverError struct{ Err error }

func (e *TakenOverError) Error() string {
	return fmt.Sprintf("a bridge has started meanwhile (%v)", e.Err)
}

func (e *TakenOverError) Unwrap() error { return e.Err }
