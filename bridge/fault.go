package bridge

import (
	"errors"
	"fmt"
	"time"
)

// Errors that ports return, wrapped, and that the engine handles.
var (
	// ErrNoCheckpoint means that the store has no checkpoint of the stream.
	ErrNoCheckpoint = errors.New("no checkpoint")
	// ErrConflict means that the change was made from another checkpoint than the stored
	// one: another writer moved the stream.
	ErrConflict = errors.New("checkpoint moved by another writer")
	// ErrForeign means that the stored value is no checkpoint, or that of a newer version.
	// It is never overwritten.
	ErrForeign = errors.New("not a checkpoint of this version")
	// ErrFenced means that a newer session of the stream has begun, in this process or
	// another one.
	ErrFenced = errors.New("fenced by a newer session of the stream")
	// ErrRejected means that the page has an event that must not be published.
	ErrRejected = errors.New("page rejected")
	// ErrInvalidCommand means that the inbox had an invalid command.
	ErrInvalidCommand = errors.New("invalid request")
	// ErrNotOwner means that another process owns the stream.
	ErrNotOwner = errors.New("stream owned by another process")
)

// Class is how the engine handles a fault.
type Class int

// The classes, from harmless to serious.
const (
	// Transient is retried with back-off, for ever: 5xx, 408, network errors,
	// time-outs, truncated bodies, bodies that are not JSON.
	Transient Class = iota
	// Throttled is retried after Fault.RetryAfter: 429.
	Throttled
	// Malformed may be transient: it is retried three times, then blocks the stream
	// with the fault's Reason.
	Malformed
	// BadCursor may be a rejected cursor: 400, 404, 410, 414, 422 or 431 for a request
	// with a cursor. It is retried three times within a minute, then cross-checked by
	// a request without a cursor.
	BadCursor
	// Permanent blocks the stream at once. The request is repeated after
	// Fault.RetryAfter, or once a minute if that is 0.
	Permanent
)

// Reason is a stable code for why a stream is blocked.
type Reason string

// The reasons why a stream can be blocked.
const (
	ReasonAuth           Reason = "auth"
	ReasonConfig         Reason = "config"
	ReasonCursor         Reason = "cursor"
	ReasonCycle          Reason = "cycle"
	ReasonSchema         Reason = "schema"
	ReasonSize           Reason = "size"
	ReasonTail           Reason = "tail"
	ReasonMapping        Reason = "mapping"
	ReasonSource         Reason = "source"
	ReasonCheckpoint     Reason = "checkpoint"
	ReasonCheckpointLost Reason = "checkpoint-lost"
	ReasonRetention      Reason = "retention"
	ReasonTopic          Reason = "topic"
	ReasonEvent          Reason = "event"
	ReasonOwner          Reason = "owner"
	ReasonPaused         Reason = "paused" // only of a bounded run
)

// Fault is an error of a port with its classification. Any other error counts as
// Transient.
type Fault struct {
	// Class is how the engine handles the fault.
	Class Class
	// Code is a short stable label for metrics: an HTTP status, "timeout", "network",
	// "decode", or a Kafka error name.
	Code string
	// Reason is why the stream blocks, for Malformed and Permanent.
	Reason Reason
	// RetryAfter is the wait that the server asked for, or that the fault needs; 0 if
	// none.
	RetryAfter time.Duration
	// Unsent is set if no request was sent, since it would have been too early.
	Unsent bool
	// Hint tells the operator what to check, or which command helps. If it is empty,
	// HintCode stands for the text.
	Hint     string
	HintCode Hint
	Err      error
}

// Blockf returns a Permanent fault with the formatted error and a hint for the operator.
func Blockf(code string, reason Reason, hint, format string, args ...any) *Fault {
	return &Fault{Class: Permanent, Code: code, Reason: reason, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// BlockHintf is Blockf with the code of a hint.
func BlockHintf(code string, reason Reason, hint Hint, format string, args ...any) *Fault {
	return &Fault{Class: Permanent, Code: code, Reason: reason, HintCode: hint, Err: fmt.Errorf(format, args...)}
}

func (f *Fault) Error() string {
	if f.Err == nil {
		return fmt.Sprintf("%s %s", f.Code, f.Reason)
	}
	return f.Err.Error()
}

func (f *Fault) Unwrap() error { return f.Err }

// FaultOf returns the fault in err, or a Transient fault with err.
func FaultOf(err error) *Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	return &Fault{Class: Transient, Code: "error", Err: err}
}

// CodeStoreNeeded is the code of StoreNeeded.
const CodeStoreNeeded = "store-needed"

// StoreNeeded returns the fault of a stream that has no checkpoint in the sink and whose
// store is unreachable with err.
func StoreNeeded(err error) *Fault {
	f := *FaultOf(err)
	f.Code = CodeStoreNeeded
	f.Err = fmt.Errorf("the first start of a stream needs Redis, "+
		"which alone shows whether Kafka lost an earlier checkpoint: %w", f.Err)
	return &f
}

// BlockedError ends a bounded run (engine.Limits, or a window) that becomes blocked.
type BlockedError struct {
	Stream string
	// Reason is the code of Err. Hint tells the operator what to do.
	Reason Reason
	Hint   string
	Err    error
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("stream %s is blocked (%s): %v", e.Stream, e.Reason, e.Err)
}

func (e *BlockedError) Unwrap() error { return e.Err }
