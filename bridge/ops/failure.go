package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/kafkaclient"
	"exportbridge/bridge/ops/door"
)

// Error is an error with an HTTP status and a hint.
type Error struct {
	// Status is an HTTP status, 400 or above.
	Status int
	// Err is the error in the answer.
	Err error
	// Hint is what to do; may be empty.
	Hint string

	who     door.Identity // whose request was refused, if he is known
	refused bool          // the request was rejected, whatever the status
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// errorf returns an error with a status and a hint.
func errorf(status int, hint, format string, args ...any) error {
	return &Error{Status: status, Err: fmt.Errorf(format, args...), Hint: hint}
}

func badRequest(hint, format string, args ...any) error {
	return errorf(http.StatusBadRequest, hint, format, args...)
}

// failure returns the status of an error.
func failure(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Status: http.StatusInternalServerError, Err: err}
	if fault, ok := errors.AsType[*bridge.Fault](err); ok {
		e.Status, e.Hint = http.StatusServiceUnavailable, fault.Hint
	} else if _, ok := errors.AsType[*kafkaclient.IncompleteError](err); ok {
		e.Status, e.Hint = http.StatusServiceUnavailable, "run exportbridge check"
	} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		e.Status, e.Hint = http.StatusGatewayTimeout, "run exportbridge check"
	}
	return e
}

// steered adds the status and the hint to an error of a Controller: 409 for a rejected
// change, 503 for a failing server.
func steered(err error) error {
	var (
		missing *control.NoEntryError
		absent  *control.NoCheckpointError
		pending *bridge.PendingError
		refused *control.RefusedError
		late    *control.UnacknowledgedError
		away    *control.StoreAwayError
		fault   *bridge.Fault
	)
	const look = "check the status: it may have been applied"
	answer := func(status int, hint string) error { return errorf(status, hint, "%w", err) }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pending):
		return answer(http.StatusConflict, "retry when that request is done")
	case errors.As(err, &refused) && refused.Restored:
		return answer(http.StatusConflict, "Redis had lost the cursor and has it again; retry")
	case errors.As(err, &refused) && refused.NoStart:
		return answer(http.StatusConflict, "use a rewind, or the earliest event")
	case errors.As(err, &refused) && refused.NeedsStart:
		return answer(http.StatusConflict, "use a rewind, or an event time")
	case errors.Is(err, control.ErrNoPosition):
		return answer(http.StatusConflict, "use an event time, or start the stream")
	case errors.Is(err, control.ErrRejected):
		return answer(http.StatusConflict, "check the status and plan again")
	case errors.As(err, &missing) && missing.Left != nil:
		return answer(http.StatusNotFound,
			"use entry "+missing.Left.String()+", the newest with another cursor before the last move, or a reset")
	case errors.As(err, &missing):
		return answer(http.StatusNotFound, "use an entry of the history, or a reset")
	case errors.As(err, &absent) && absent.Live != nil:
		return answer(http.StatusServiceUnavailable, absent.Live.Hint)
	case errors.As(err, &late) && late.Fenced():
		return answer(http.StatusServiceUnavailable, late.Live.Hint)
	case errors.As(err, &late) && late.State == bridge.CommandWithdrawn:
		return answer(http.StatusServiceUnavailable, "retry when the stream is healthy")
	case errors.As(err, &late):
		return answer(http.StatusServiceUnavailable, look)
	case errors.As(err, &away):
		return answer(http.StatusServiceUnavailable, "start Redis or correct REDIS_URL, then retry")
	case errors.As(err, &fault):
		return answer(http.StatusServiceUnavailable, fault.Hint)
	}
	return answer(http.StatusServiceUnavailable, "")
}
