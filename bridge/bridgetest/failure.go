package bridgetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"exportbridge/bridge"
)

// Failure is the form in which a call fails. All forms look the same to the caller: an
// error, and an unknown outcome.
type Failure int

const (
	// Failed keeps nothing.
	Failed Failure = iota
	// Persisted keeps everything; only the answer is lost.
	Persisted
	// Partly keeps the first half of a batch's events. Only a Sink in at-least-once mode
	// can fail in this form.
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

// calls counts the calls of a fake's method and says which of them fail. All
// methods may be called concurrently.
type calls[F any] struct {
	mu    sync.Mutex // guards all below; no other lock is taken under it
	made  int
	fails map[int]F // by the number of the call, from 1
}

// fail makes call number n fail in the form f.
func (c *calls[F]) fail(n int, f F) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails == nil {
		c.fails = make(map[int]F)
	}
	c.fails[n] = f
}

// next counts a call and returns the form in which it fails.
func (c *calls[F]) next() (form F, fails bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	form, fails = c.fails[c.made]
	return form, fails
}

func (c *calls[F]) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// breakDown sets a fake down under its mutex, until heal is called.
func breakDown(mu *sync.Mutex, set func(down bool)) (heal func()) {
	to := func(down bool) {
		mu.Lock()
		defer mu.Unlock()
		set(down)
	}
	to(true)
	return func() { to(false) }
}

// wait waits for d, or until the context ends.
func wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		bridge.Sleep(ctx, d)
	}
	return ctx.Err()
}
