package ops

import (
	"context"
	"errors"
	"net/http"

	"exportbridge/bridge"
	"exportbridge/bridge/control"
	"exportbridge/bridge/kafkaclient"
)

// Error is an error that is answered with a status of its own.
type Error struct {
	// Status is an HTTP status, 400 or above.
	Status int
	// Err is what is answered.
	Err error
	// Hint says what to do, empty for nothing.
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// failure gives every error a status.
func failure(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if fault, ok := errors.AsType[*bridge.Fault](err); ok {
		return &Error{Status: http.StatusServiceUnavailable, Err: err, Hint: fault.Hint}
	}
	if _, ok := errors.AsType[*kafkaclient.IncompleteError](err); ok {
		return &Error{Status: http.StatusServiceUnavailable, Err: err, Hint: "exportbridge dlq list --timeout 10m waits longer than a request"}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &Error{Status: http.StatusGatewayTimeout, Err: err, Hint: "exportbridge check"}
	}
	return &Error{Status: http.StatusInternalServerError, Err: err}
}

// steered gives an error of a Controller its status: what is in the way of a
// change is a conflict, and what cannot be found out is unavailable.
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
	const look = "look at the status, to see whether it was applied"
	answer := func(status int, hint string) error { return &Error{Status: status, Err: err, Hint: hint} }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pending):
		return answer(http.StatusConflict, "the same again when that one is done")
	case errors.As(err, &refused) && refused.Restored:
		return answer(http.StatusConflict, "Redis had lost its copy of the cursor, which is there again: the same once more")
	case errors.Is(err, control.ErrRefused):
		return answer(http.StatusConflict, "look at the status, and plan it again")
	case errors.As(err, &missing):
		return answer(http.StatusNotFound, "an entry of the history, or a reset")
	case errors.As(err, &absent) && absent.Live != nil:
		return answer(http.StatusServiceUnavailable, absent.Live.Hint)
	case errors.As(err, &late) && late.State == bridge.RequestWithdrawn:
		return answer(http.StatusServiceUnavailable, "the same once more, when the stream is well")
	case errors.As(err, &late):
		return answer(http.StatusServiceUnavailable, look)
	case errors.As(err, &away):
		return answer(http.StatusServiceUnavailable, "start Redis, or correct REDIS_URL, and the same again")
	case errors.As(err, &fault):
		return answer(http.StatusServiceUnavailable, fault.Hint)
	}
	return answer(http.StatusServiceUnavailable, "")
}
