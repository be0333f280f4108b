package bridgetest

import (
	"context"
	"errors"
	"time"
)

// Failure is the form in which a call fails. To the caller all forms look the
// same: an error and an unknown outcome.
type Failure int

const (
	// Failed keeps nothing.
	Failed Failure = iota
	// Persisted keeps everything; only the answer is lost.
	Persisted
	// Partly keeps the first half of a batch's events. It exists for a Sink
	// that delivers at least once, and nowhere else.
	Partly
)

func (f Failure) String() string {
	switch f {
	case Failed:
		return "failed"
	case Persisted:
		return "failed but persisted"
	case Partly:
		return "partly persisted"
	}
	return "unknown failure"
}

// ErrInjected is in the error of every call that a fake was told to fail.
var ErrInjected = errors.New("injected failure")

// ErrDown is in the error of every call to a fake whose server is down.
var ErrDown = errors.New("server is down")

// wait passes d of time, or returns the context's error.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
