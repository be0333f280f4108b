package ops

import (
	"context"
	"errors"
	"net/http"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/kafkaclient"
)

// Error is an error with an HTTP status and a hint.
type Error struct {
	// Status is an HTTP status, 400 or above.
	Status int
	// Err is the error in the answer.
	Err error
	// Hint is what to do; may be empty.
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// failure returns the status of an error.
func failure(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if fault, ok := errors.AsType[*bridge.Fault](err); ok {
		return &Error{Status: http.StatusServiceUnavailable, Err: err, Hint: fault.Hint}
	}
	if _, ok := errors.AsType[*kafkaclient.IncompleteError](err); ok {
		return &Error{Status: http.StatusServiceUnavailable, Err: err, Hint: "run exportbridge check"}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &Error{Status: http.StatusGatewayTimeout, Err: err, Hint: "run exportbridge check"}
	}
	return &Error{Status: http.StatusInternalServerError, Err: err}
}

// steered gives an error of a Controller its status: 409 for a rejected change, 503
// for a server that fails.
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
	answer := func(status int, hint string) error { return &Error{Status: status, Err: err, Hint: hint} }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pending):
		return answer(http.StatusConflict, "retry when that request is done")
	case errors.As(err, &refused) && refused.Restored:
		return answer(http.StatusConflict, "Redis had lost the cursor and has it again; retry")
	case errors.As(err, &refused) && refused.NoStart:
		return answer(http.StatusConflict, "use a rewind, or the earliest event")
	case errors.Is(err, control.ErrRejected):
		return answer(http.StatusConflict, "check the status and plan again")
	case errors.As(err, &missing) && missing.Left != nil:
		return answer(http.StatusNotFound, "use entry "+missing.Left.String()+", the newest with another cursor before the last move, or a reset")
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
